"""Tables and data for figures: from records only, never from a model."""

from upright.report.model import (
    Cell,
    Column,
    Difference,
    Estimate,
    Leaderboard,
    Reduction,
    Row,
    Source,
    Spread,
    Standing,
    Table,
    TrainingTime,
    Verdict,
)

__all__ = [
    "Cell",
    "Column",
    "Difference",
    "Estimate",
    "Leaderboard",
    "Reduction",
    "Row",
    "Source",
    "Spread",
    "Standing",
    "Table",
    "TrainingTime",
    "Verdict",
]
