"""Tables and data for figures: from records only, never from a model."""

from upright.report.model import (
    Cell,
    Column,
    Difference,
    Estimate,
    Reduction,
    Row,
    Source,
    Table,
    Verdict,
)

__all__ = [
    "Cell",
    "Column",
    "Difference",
    "Estimate",
    "Reduction",
    "Row",
    "Source",
    "Table",
    "Verdict",
]
