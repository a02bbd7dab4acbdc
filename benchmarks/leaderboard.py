"""The leaderboard in Markdown: networks that were measured here, beside what others report.

    python benchmarks/leaderboard.py --markdown docs/leaderboard.md

What stands on it, ``upright.paper.leaderboard`` says, as for the page of ``upright report``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hardest_tables
import members
from change_tables import changes, in_markdown
from hardest_tables import Hardest, table
from members import Members

from upright.files import write_whole
from upright.models import is_network
from upright.paper import INVARIANCE
from upright.paper.leaderboard import leaderboard
from upright.record_files import read, read_folder
from upright.records import Record, Reported
from upright.report.model import Estimate, Leaderboard, Standing
from upright.report.sections import fill_sections
from upright.train.network import is_own_code

RESULTS = Path("results")
MORE = "continuum/training.jsonl"
"""Records of whole test sets that are not in the folder itself; where they are there."""
HELD_OUT = "stronger/held-out.jsonl"
"""Records of held-out training images, by which recipes are chosen."""
DATA_SETS = ("cifar10", "svhn", "cifar100")
SOURCE = "*reported*: [{}](paper.md), table `{}`"


def board_in_markdown(board: Leaderboard) -> str:
    """Lay out a board, with how much of what was measured it shows."""
    head = (
        *("network", "trained by", "recipe", "natural", board.metric, board.finer, "seeds"),
        *("parameters", "GFLOP", "training, s", "on"),
    )
    rows = [_cells(row) for row in board.rows]
    return f"{table(head, rows, text=3, numbers=6)}\n\n{board.total}"


def _cells(row: Standing) -> tuple[str, ...]:
    time = row.training
    return (
        " + ".join(_network(name) for name in row.networks),
        f"`{row.method}`",
        _recipe(row),
        *(_accuracy(found, row) for found in row.accuracies),
        str(row.seeds),
        "" if row.parameters is None else f"{row.parameters:,}",
        "" if row.operations is None else f"{row.operations / 1e9:.3g}",
        "" if time is None else f"{time.seconds:,.0f} ({time.sharing})",
        "" if time is None else time.hardware,
    )


def _network(name: str) -> str:
    """What one can type is code; a name that only a paper has is none."""
    return f"`{name}`" if is_network(name) or is_own_code(name) else name


def _recipe(row: Standing) -> str:
    if not isinstance(row.attacked, Reported):
        return ", ".join(map(in_markdown, row.recipe))
    return "; ".join(filter(None, (SOURCE.format(row.source, row.attacked.table), row.caveat)))


def _accuracy(found: Estimate | Reported | None, row: Standing) -> str:
    """In per cent, with the standard deviation between seeds; of fewer seeds than the row has, how
    many, and whether it is of other runs of them. Of a reported one the mean alone."""
    if found is None:
        return ""
    mean = f"{100 * found.mean:.2f}"
    if isinstance(found, Reported):
        return mean
    spread = "" if found.stderr is None else f" ± {100 * found.stderr * found.n**0.5:.2f}"
    of = "" if found.n == row.seeds else f" ({found.n} of them)"
    if isinstance(row.attacked, Estimate) and not set(found.sources) <= set(row.attacked.sources):
        of += " (other runs)"
    return f"{mean}{spread}{of}"


def sections(
    records: Sequence[Record],
    held_out: Sequence[Record],
    hardest: Iterable[Hardest],
    means: Iterable[Members],
) -> Mapping[str, str]:
    """What the documentation shows, by the names of its sections."""
    boards = {name: board_in_markdown(leaderboard(INVARIANCE, name, records)) for name in DATA_SETS}
    more = {"changes": changes(held_out)} | hardest_tables.sections(hardest)
    return boards | more | members.sections(means)


def read_all(results: Path) -> tuple[list[Record], list[Record], list[Hardest], list[Members]]:
    """All records that may count, those to choose by, and what is known of the images that fail."""
    records = [*read_folder(results).records, *_read(results / MORE)]
    hardest = [Hardest.read(path) for path in sorted(results.glob("hardest/*.json"))]
    means = [Members.read(path) for path in sorted(results.glob("members/*.json"))]
    return records, _read(results / HELD_OUT), hardest, means


def _read(path: Path) -> list[Record]:
    return list(read(path).records) if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add: Any = parser.add_argument
    add("--markdown", type=Path, required=True, help="write the tables into this page")
    add("--results", type=Path, default=RESULTS, help="the folder of records")
    options = parser.parse_args(arguments)
    page = fill_sections(options.markdown.read_text(), sections(*read_all(options.results)))
    write_whole(options.markdown, page.encode())


if __name__ == "__main__":
    main()
