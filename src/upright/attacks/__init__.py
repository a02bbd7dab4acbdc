"""Searches for the worst pose: one file for each attack."""

from upright.attacks.base import (
    ATTACKS,
    Attack,
    CandidateSearch,
    Rounds,
    RoundSearch,
    Score,
    WorstCase,
    attack_name,
    parse_attack,
    pick_worst,
    worse_of,
)
from upright.attacks.gradient import scored
from upright.attacks.grid import GridSearch, usual_grid
from upright.attacks.pgd import SpatialPGD
from upright.attacks.random import RandomSearch
from upright.attacks.refine import RefiningSearch
from upright.attacks.refine_climb import RefiningClimb

__all__ = [
    "ATTACKS",
    "Attack",
    "CandidateSearch",
    "GridSearch",
    "RandomSearch",
    "RefiningClimb",
    "RefiningSearch",
    "RoundSearch",
    "Rounds",
    "Score",
    "SpatialPGD",
    "WorstCase",
    "attack_name",
    "parse_attack",
    "pick_worst",
    "scored",
    "usual_grid",
    "worse_of",
]
