"""What an evaluation found, with all that its outputs need to know."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from upright.checks import Model
from upright.data import LabelledImages
from upright.evaluation import Evaluation, Question
from upright.measure import FinishedRun, Guest, record_of
from upright.paper import with_reported
from upright.records import Record
from upright.report.saved import Shown

__all__ = ["Measured"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A finished evaluation."""

    evaluation: Evaluation
    model: Model
    """As it was evaluated."""
    data: LabelledImages
    data_name: str
    """As they were asked for."""
    question: Question
    device: torch.device
    subject: FinishedRun | Guest | None = None
    """Whom its record is about, where there is to be one."""
    shown: Shown | None = None
    """The images to keep, if any."""

    @cached_property
    def record(self) -> Record:
        """Made once, so that all who keep it keep the same."""
        assert self.subject is not None  # or nobody would ask
        record = record_of(
            self.subject,
            self.evaluation,
            data_name=self.data_name,
            data=self.data,
            question=self.question,
            device=self.device,
        )
        return with_reported(record, also_called=self.data_name)
