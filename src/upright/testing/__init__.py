"""For tests of what you write yourself: networks, transformations, attacks and penalties.

* ``assert_invariant``, ``assert_equivariant`` and their errors say how far a network is from
  saying the same of a moved image.
* ``check_family``, ``check_attack`` and ``check_penalty`` try the rules that all else relies on,
  and say of each that is broken what was seen.
"""

from upright.testing.attacks import check_attack
from upright.testing.families import check_family
from upright.testing.networks import (
    Transformation,
    assert_equivariant,
    assert_invariant,
    equivariance_error,
    invariance_error,
    moved_by,
    quarter_turns,
)
from upright.testing.penalties import check_penalty

__all__ = [
    "Transformation",
    "assert_equivariant",
    "assert_invariant",
    "check_attack",
    "check_family",
    "check_penalty",
    "equivariance_error",
    "invariance_error",
    "moved_by",
    "quarter_turns",
]
