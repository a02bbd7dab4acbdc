"""Objectives: the paper's training methods as points of one product."""

from upright.modes import evaluation_mode
from upright.objective.any_objective import (
    AnyObjective,
    as_objective,
    known_objective,
    make_loss,
    parse_objective,
)
from upright.objective.criterion import Criterion
from upright.objective.locnet import LocNet, LocNetLoss, located_pose
from upright.objective.loss import LossTerms, RegularizedLoss
from upright.objective.notation import grammar, name_penalty
from upright.objective.product import BatchType, Objective, Target

__all__ = [
    "AnyObjective",
    "BatchType",
    "Criterion",
    "LocNet",
    "LocNetLoss",
    "LossTerms",
    "Objective",
    "RegularizedLoss",
    "Target",
    "as_objective",
    "evaluation_mode",
    "grammar",
    "known_objective",
    "located_pose",
    "make_loss",
    "name_penalty",
    "parse_objective",
]
