"""``upright report``: one page with tables, figures and an explorer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from upright.cli.messages import say
from upright.cli.options import run_families, writable
from upright.paper import INVARIANCE
from upright.paper.leaderboard import leaderboards
from upright.paper.tables import fill_tables
from upright.terminal import tell

__all__ = ["Report"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write one HTML file that shows results: tables, figures, and an explorer of poses.

    It opens from disk, and needs neither network nor server.
    """

    results: Positional[Annotated[Path, arg(metavar="RESULTS")]]
    """A file of records (`upright evaluate --record`), or a folder with such files (*.jsonl)."""
    out: Annotated[Path, arg(metavar="DIR")]
    """Where the page goes, as index.html, with the figures beside it as SVG and PNG."""
    saved: UseAppendAction[
        Annotated[tuple[Path, ...], arg(metavar="DIR", help_behavior_hint="")]
    ] = ()
    """A folder of `upright evaluate --save`; give it several times for several data sets.
    Without it, the folder `saved` beside the records, or the folders in it."""
    families: UseAppendAction[
        Annotated[tuple[Path, ...], arg(metavar="FILE.py", help_behavior_hint="")]
    ] = ()
    """Run a file of families of your own first, so that what was saved over them can be shown."""

    def __call__(self) -> None:
        """Write the page, and say where it is."""
        # Here, since no other command needs matplotlib, which takes most of a second to import.
        from upright.report.page import read_contents, write_report

        writable(self.out / "index.html")
        run_families(self.families)
        contents = read_contents(self.results, self.saved)
        for damage in contents.damaged:
            say(f"warning: passed over {damage}")
        for file in (file for each in contents.exhibitions for file in each.unguarded):
            say(f"warning: {file} has no digest, so that nobody can tell whether it was altered")
        tables = fill_tables(INVARIANCE, INVARIANCE.layouts, contents.records)
        filled = replace(
            contents,
            tables=tuple(table for table in tables if any(cell.measured for cell in table.cells)),
            leaderboards=leaderboards(INVARIANCE, contents.records),
        )
        tell(str(write_report(filled, self.out)))
