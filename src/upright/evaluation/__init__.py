"""Accuracy under attacks, for any callable that maps images to logits."""

from upright.evaluation.oracle import ORACLE, Locator, Oracle
from upright.evaluation.question import Precision, Question
from upright.evaluation.result import (
    AttackResult,
    ClassAccuracy,
    Evaluation,
    SlopeEstimate,
)
from upright.evaluation.run import evaluate, examine
from upright.fooled import FooledPoses
from upright.intervals import Difference, Interval, difference

__all__ = [
    "ORACLE",
    "AttackResult",
    "ClassAccuracy",
    "Difference",
    "Evaluation",
    "FooledPoses",
    "Interval",
    "Locator",
    "Oracle",
    "Precision",
    "Question",
    "SlopeEstimate",
    "difference",
    "evaluate",
    "examine",
]
