"""Measuring: a model by name is loaded, evaluated and recorded here, and nowhere else."""

from upright.measure.guest import Guest
from upright.measure.record import FinishedRun, record_of
from upright.measure.results import Results
from upright.measure.save import Subject, choose_shown, grid_among, keep
from upright.measure.taken import in_precision, load_images, question_of_run
from upright.measure.to_zoo import add_to_zoo

__all__ = [
    "FinishedRun",
    "Guest",
    "Results",
    "Subject",
    "add_to_zoo",
    "choose_shown",
    "grid_among",
    "in_precision",
    "keep",
    "load_images",
    "question_of_run",
    "record_of",
]
