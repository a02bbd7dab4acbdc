"""Measuring: a model by name is loaded, evaluated and recorded here, and nowhere else."""

from upright.measure.as_asked import as_asked
from upright.measure.doubts import doubts, notes
from upright.measure.guest import Guest
from upright.measure.measured import (
    Loaded,
    Measured,
    Subject,
    load,
    load_images,
    measure,
    question_of_run,
    record_of,
)
from upright.measure.oracle import measure_oracle
from upright.measure.run import measure_run
from upright.measure.save import check_can_save, choose_shown, save_answers
from upright.measure.to_zoo import add_to_zoo
from upright.train import FinishedRun

__all__ = [
    "FinishedRun",
    "Guest",
    "Loaded",
    "Measured",
    "Subject",
    "add_to_zoo",
    "as_asked",
    "check_can_save",
    "choose_shown",
    "doubts",
    "load",
    "load_images",
    "measure",
    "measure_oracle",
    "measure_run",
    "notes",
    "question_of_run",
    "record_of",
    "save_answers",
]
