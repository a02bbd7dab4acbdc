"""Measure and raise the worst-case accuracy of image classifiers under small motions."""

from upright import interrupts  # noqa: F401  first: Ctrl-C is heard while the rest is imported
from upright._version import __version__
from upright.attacks import (
    Attack,
    CandidateSearch,
    GridSearch,
    RandomSearch,
    RefiningClimb,
    RefiningSearch,
    Score,
    SpatialPGD,
    WorstCase,
    parse_attack,
)
from upright.checks import SuspiciousInput
from upright.ensemble import ensemble
from upright.evaluation import AttackResult, Evaluation, FooledPoses, evaluate
from upright.normalised import Normalised
from upright.objective import LossTerms, Objective, RegularizedLoss, name_penalty
from upright.penalties import KL, L2, Penalty
from upright.pose import Pose
from upright.sources import Preprocess, load_model
from upright.space import PAPER, Space
from upright.tta import tta
from upright.warp import warp, warp_all

__all__ = [
    "KL",
    "L2",
    "PAPER",
    "Attack",
    "AttackResult",
    "CandidateSearch",
    "Evaluation",
    "FooledPoses",
    "GridSearch",
    "LossTerms",
    "Normalised",
    "Objective",
    "Penalty",
    "Pose",
    "Preprocess",
    "RandomSearch",
    "RefiningClimb",
    "RefiningSearch",
    "RegularizedLoss",
    "Score",
    "Space",
    "SpatialPGD",
    "SuspiciousInput",
    "WorstCase",
    "__version__",
    "ensemble",
    "evaluate",
    "load_model",
    "name_penalty",
    "parse_attack",
    "tta",
    "warp",
    "warp_all",
]
