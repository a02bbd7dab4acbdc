"""From records and saved arrays to one HTML file and the figures beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from upright.checks import few
from upright.files import write_whole
from upright.record_files import Damage, read, read_folder
from upright.records import Record
from upright.report.data import runtime_points
from upright.report.exhibition import Exhibition, record_id, told_apart
from upright.report.figures import Drawing, all_drawings
from upright.report.figures.draw import EDGE, GRID, INK, SERIES
from upright.report.model import Leaderboard, Table
from upright.report.page.board import leaderboard_sheet
from upright.report.page.payload import payload
from upright.report.page.sheet import methods_sheet, paper_sheet, records_sheet
from upright.report.page.side_by_side import side_by_side
from upright.report.runs import group_runs
from upright.report.saved import read_saved

__all__ = ["Contents", "read_contents", "write_report"]

_SCRIPTS = (
    "tools.js",
    "theme.js",
    "tables.js",
    "chart.js",
    "axes.js",
    "warp.js",
    "exhibit.js",
    "map.js",
    "card.js",
    "stage.js",
    "explorer.js",
)


@dataclass(frozen=True)
class Contents:
    """All that a report is made from."""

    records: tuple[Record, ...]
    exhibitions: tuple[Exhibition, ...]
    damaged: tuple[Damage, ...] = ()
    tables: tuple[Table, ...] = ()
    """Of the paper, with what was measured."""
    leaderboards: tuple[Leaderboard, ...] = ()
    """Of data sets on which something was measured as the paper asks."""


def read_contents(results: Path, saved: Sequence[Path] = ()) -> Contents:
    """Read records and saved arrays.

    Args:
        results: a file of records, or a folder with such files (``*.jsonl``).
        saved: folders of `upright evaluate --save`; unless told, ``saved`` in the folder of the
            results, or the folders in it.
    """
    if not results.exists():
        raise ValueError(f"{results} does not exist; `upright evaluate --record` makes records")
    found = read_folder(results) if results.is_dir() else read(results)
    folders = saved or _saved_folders(results if results.is_dir() else results.parent)
    contents = Contents(
        found.records,
        told_apart([read_saved(folder) for folder in folders]),
        found.damaged,
    )
    if not contents.records and not contents.exhibitions:
        why = f": {few([*map(str, found.damaged)])}" if found.damaged else ""
        raise ValueError(
            f"{results} has neither records nor saved arrays{why}; `upright evaluate` makes both, "
            "with --record FILE and --save DIR"
        )
    return contents


def write_report(contents: Contents, folder: Path) -> Path:
    """Write ``index.html`` and ``figures/``; give the path of the page."""
    runs, points = group_runs(contents.records), runtime_points(contents.records)
    drawings = all_drawings(contents.records, contents.exhibitions)
    for drawing in drawings:
        drawing.write(folder / "figures")
    known = {record_id(record) for record in contents.records}
    sheets = [methods_sheet(runs)] if runs else []
    sheets += [paper_sheet(table) for table in contents.tables]
    text = (
        _environment()
        .get_template("page.html")
        .render(
            made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            contents=contents,
            has_run_times=bool(points),
            pairs=list(filter(None, map(side_by_side, contents.exhibitions))),
            boards=[leaderboard_sheet(board) for board in contents.leaderboards],
            sheets=sheets,
            records=records_sheet(contents.records),
            drawings=[(drawing, _themed(drawing)) for drawing in drawings],
            data=_json(payload(contents.exhibitions, points, known)),
            style=_asset("page.css"),
            script=Markup("\n").join(_asset(name) for name in _SCRIPTS),
        )
    )
    path = folder / "index.html"
    # A name of JSON or of a disk may hold what UTF-8 does not.
    write_whole(path, text.encode(errors="backslashreplace"))
    return path


def _saved_folders(results: Path) -> list[Path]:
    inside = results / "saved"
    candidates = [inside, *sorted(path for path in inside.glob("*") if path.is_dir())]
    return [folder for folder in candidates if (folder / "shown.safetensors").is_file()]


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("upright.report.page", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(name: str) -> Markup:
    """The project's own files go into the page as they are."""
    return Markup(files("upright.report.page").joinpath("assets", name).read_text("utf-8"))


def _json(value: object) -> Markup:
    """JSON that may stand in a script element: a class could be called ``</script>``."""
    return Markup(json.dumps(value, allow_nan=False).replace("<", "\\u003c"))


def _themed(drawing: Drawing) -> Markup:
    """Let the page choose the colours of a figure, for light and for dark."""
    text = drawing.svg[drawing.svg.index("<svg") :].replace("fill: #ffffff", "fill: none")
    for name, colour in {"ink": INK, "edge": EDGE, "line": GRID}.items():
        text = text.replace(colour, f"var(--{name})")
    for number, colour in enumerate(SERIES, start=1):
        text = text.replace(colour, f"var(--series-{number})")
    return Markup(text)
