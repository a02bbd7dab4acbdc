"""Accuracy under attacks, for any callable that maps images to logits."""

from upright.evaluation.oracle import ORACLE, Locator, Oracle
from upright.evaluation.question import Precision, Question
from upright.evaluation.result import (
    AttackResult,
    ClassAccuracy,
    Evaluation,
    Interval,
    SlopeEstimate,
)
from upright.evaluation.run import evaluate, examine
from upright.fooled import FooledPoses

__all__ = [
    "ORACLE",
    "AttackResult",
    "ClassAccuracy",
    "Evaluation",
    "FooledPoses",
    "Interval",
    "Locator",
    "Oracle",
    "Precision",
    "Question",
    "SlopeEstimate",
    "evaluate",
    "examine",
]
