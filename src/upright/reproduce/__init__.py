"""The paper's experiments: what it reports, and records of runs beside it."""

from upright.reproduce.record import FinishedRun, record_of
from upright.reproduce.reported import Row, all_reported, paper_rows, reported

__all__ = ["FinishedRun", "Row", "all_reported", "paper_rows", "record_of", "reported"]
