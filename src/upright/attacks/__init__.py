"""Searches for the worst pose: one file for each attack.

Every module here is imported below, so a new file needs to be named nowhere.
"""

import pkgutil
from importlib import import_module

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

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
