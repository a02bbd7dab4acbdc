"""An objective: one point in the product of the paper's independent choices.

| choice                       | values                                                        |
|------------------------------|---------------------------------------------------------------|
| what the cross-entropy sees  | ``nat``: originals, ``rob``: transformed, ``mix``: both       |
| penalty                      | none, ``L2``, ``KL``                                          |
| x' of the penalty maximises  | the penalty itself, or the cross-entropy                      |
| x' of the cross-entropy      | maximises it, or is the x' of the penalty                     |
| how x' is searched           | any attack                                                    |
| weight of the penalty        | λ                                                             |
| draws                        | how many x' stand for each original                           |

Forward passes for b unique images, where the attack takes s for one image (k for ``Wo-k``, 5 for
``S-PGD``, 0 for ``rnd``: a single try needs no score):

| objective                                  | search        | training pass |
|--------------------------------------------|---------------|---------------|
| ``std``, ``AT(nat, ·)``                    | 0             | b             |
| ``std*`` = ``AT(rob, rnd)``                | 0             | b             |
| ``AT(rob, ·)``                             | s b           | b             |
| ``AT(mix, ·)``                             | s b           | 2b            |
| ``ALP``, ``KL-C`` in any batch             | s b           | 2b            |
| ``L2(nat, ·)``, ``KL(nat, ·)``, ``KL(rob, ·)`` | s b + b   | 2b            |
| ``L2(rob, Wo-k)``, ``L2(mix, ·)``, ``KL(mix, ·)`` | k b + b | 3b           |
| the same with ``S-PGD``                    | 2 s b + b     | 3b            |

With ``rnd`` no search is needed at all, and both x' are one: 2b in the training pass. With m draws,
every transformed image counts m times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from upright.attacks import Attack, CandidateSearch, RandomSearch
from upright.penalties import Penalty

__all__ = ["BatchType", "Objective", "Target"]

BatchType = Literal["nat", "rob", "mix"]
"""What the cross-entropy sees: originals, transformed images, or the mean of both."""
Target = Literal["cross-entropy", "penalty"]
"""What a transformed image is chosen to maximise."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a training step minimises: cross-entropy on a batch, plus λ times a penalty.

    ``Objective.parse("KL(rob, Wo-10)")`` reads the paper's notation, and ``str`` gives it back.
    """

    batch: BatchType
    attack: Attack | None = None
    """How x' is searched; None where no transformed image is needed."""
    penalty: Penalty | None = None
    penalty_target: Target = "penalty"
    """What the x' of the penalty maximises."""
    batch_target: Target = "cross-entropy"
    """What the x' of the cross-entropy maximises."""
    weight: float = 1.0
    """λ, of the penalty."""
    draws: int = 1
    """How many x' stand for each original."""

    def __post_init__(self) -> None:
        if self.batch not in get_args(BatchType):
            raise ValueError(f"batch {self.batch!r} is not one of {', '.join(get_args(BatchType))}")
        if self.attack is None and (self.penalty is not None or self.batch != "nat"):
            raise ValueError("transformed images need an attack that finds them")
        if self.draws < 1 or not 0 <= self.weight < math.inf:
            raise ValueError(
                f"draws must be at least 1 and λ finite and not negative, "
                f"but are {self.draws} and {self.weight}"
            )
        for target in (self.penalty_target, self.batch_target):
            if target not in get_args(Target):
                raise ValueError(f"target {target!r} is not one of {', '.join(get_args(Target))}")
        if self.penalty is None and "penalty" in self.targets:
            raise ValueError("without a penalty, x' can only maximise the cross-entropy")

    @staticmethod
    def parse(text: str, *, weight: float | None = None) -> Objective:
        """Read the paper's notation; ``weight`` replaces the λ in it.

        >>> Objective.parse("KL(rob, Wo-10)").weight
        8.0
        >>> str(Objective.parse("AT(rob, rnd)")), str(Objective.parse("L2(nat,Wo-5)", weight=2))
        ('std*', 'L2(nat, Wo-5; λ=2)')
        """
        from upright.objective.notation import parse

        return parse(text, weight=weight)

    def __hash__(self) -> int:
        # The attack and the penalty may be a user's own, and have none.
        return hash((self.batch, type(self.attack), type(self.penalty), self.weight, self.draws))

    def __str__(self) -> str:
        from upright.objective.notation import write

        return write(self)

    def text(self, spell: Callable[[Attack], str]) -> str:
        """Write it with a spelling of one's own for the attack.

        >>> Objective.parse("KL(rob, Wo-10; λ=2)").text(lambda attack: "Wo-k")
        'KL(rob, Wo-k; λ=2)'
        """
        from upright.objective.notation import write

        return write(self, spell=spell)

    def canonical(self) -> Objective:
        """Give the one that stands for all that train alike.

        One random draw leaves nothing to search for, so that what x' maximises means nothing: ALP
        is L2 then, and KL-C is KL.

        >>> print(Objective.parse("ALP(rob, Wo-1)").canonical())
        L2(rob, rnd)
        """
        from upright.objective.notation import canonical

        return canonical(self)

    @property
    def usual_weight(self) -> float:
        """The λ that its name stands for."""
        from upright.objective.notation import usual_weight

        return usual_weight(self)

    def with_usual_weight(self) -> Objective:
        """Give what it would be without a λ of its own.

        >>> print(Objective.parse("KL(rob, Wo-10; λ=4, direction=transformed)").with_usual_weight())
        KL(rob, Wo-10; direction=transformed)
        """
        return replace(self, weight=self.usual_weight)

    @property
    def tries(self) -> int | None:
        """How many random poses are tried for an x'; None where it is searched for otherwise."""
        return self.attack.tries if isinstance(self.attack, RandomSearch) else None

    @property
    def targets(self) -> tuple[Target, ...]:
        """The different x' that a step needs, by what they maximise."""
        wanted: list[Target] = []
        if self.batch != "nat":
            wanted.append(self.batch_target)
        if self.penalty is not None:
            wanted.append(self.penalty_target)
        return tuple(dict.fromkeys(wanted))

    @property
    def single_try(self) -> bool:
        """Whether x' is drawn once, so that there is nothing to choose and nothing to score."""
        return isinstance(self.attack, CandidateSearch) and self.attack.passes_per_image == 1

    @property
    def sees_originals(self) -> bool:
        """Whether the training pass needs the originals."""
        return self.batch != "rob" or self.penalty is not None
