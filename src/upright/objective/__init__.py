"""Objectives: the paper's training methods as points of one product."""

from upright.objective.loss import LossTerms, RegularizedLoss, evaluation_mode
from upright.objective.notation import GRAMMAR, name_penalty
from upright.objective.product import Batch, Objective, Target

__all__ = [
    "GRAMMAR",
    "Batch",
    "LossTerms",
    "Objective",
    "RegularizedLoss",
    "Target",
    "evaluation_mode",
    "name_penalty",
]
