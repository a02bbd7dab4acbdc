"""The paper: what it reports, which runs fill which of its cells, and how a cell is judged."""

from upright.paper.cells import paper_method, wanted, with_reported
from upright.paper.layout import LAYOUTS, Layout, table_names
from upright.paper.reported import PrintedNumber, all_reported, paper_rows, reported

__all__ = [
    "LAYOUTS",
    "Layout",
    "PrintedNumber",
    "all_reported",
    "paper_method",
    "paper_rows",
    "reported",
    "table_names",
    "wanted",
    "with_reported",
]
