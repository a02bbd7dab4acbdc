"""What an evaluation is asked: all that its answer depends on, but for the model and the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from upright.attacks import Attack, parse_attack, usual_grid
from upright.checks import check_at_least_1
from upright.later import later_defaults, without_defaults
from upright.seeds import seed_for
from upright.space import PAPER, Space
from upright.warp import Fill, Interpolation, Resampling, check_canvas, check_chain

__all__ = ["Question", "named_attacks"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """The settings of an evaluation. See ``evaluate`` for what each one means."""

    attacks: dict[str, Attack]
    space: Space = PAPER
    only_accuracy: bool = False
    fill: Fill = "black"
    interpolation: Interpolation = "bilinear"
    canvas: int = 0
    view: int | None = None
    limit: int | None = None
    seed: int = 0
    top: int = 1
    include_identity: bool = False

    def __post_init__(self) -> None:
        check_at_least_1(limit=self.limit, top=self.top, view=self.view)
        for attack in self.attacks.values():
            attack.check_space(self.space)
        check_canvas(self.canvas)
        check_chain(self.space.chain, self.resampling.interpolation)

    @staticmethod
    def of(
        attacks: Sequence[str | Attack] | None,
        *,
        space: Space | str = PAPER,
        generator: torch.Generator | None = None,
        **settings: Any,
    ) -> Question:
        """Ask as ``evaluate`` is asked: attacks by name, and a generator that gives the seed.

        Without attacks it is the grid that is usual for the space.
        """
        seed = 0 if generator is None else int(torch.randint(2**62, (), generator=generator))
        box = Space.of(space)
        asked = [usual_grid(box)] if attacks is None else attacks
        return Question(attacks=named_attacks(asked), space=box, seed=seed, **settings)

    @property
    def resampling(self) -> Resampling:
        """How images are moved, once they lie on their canvas."""
        return Resampling(self.fill, self.interpolation, self.view)

    @property
    def passes_per_image(self) -> int:
        """Forward passes for one image that nothing fools, the natural one included."""
        return 1 + sum(attack.passes_per_image for attack in self.attacks.values())

    def as_json(self) -> dict[str, object]:
        """Give it as states hold it: what older ones do not know is there only where it differs."""
        mine = {name: getattr(self, name) for name in _LATER}
        later = without_defaults(mine, _LATER)
        if digest := self.space.chain.code_digest:
            later["code_of_families"] = digest
        return {name.replace("_", " "): value for name, value in later.items()} | {
            "attacks": {name: repr(attack) for name, attack in self.attacks.items()},
            "space": str(self.space),
            "only accuracy": self.only_accuracy,
            "warp": [self.fill, self.interpolation, self.canvas],
            "limit": self.limit,
            "seed": self.seed,
        }

    def space_for(self, images: Tensor) -> Space:
        """Give the space with limits that fit what the model sees of images."""
        height, width = images.shape[-2:] if self.view is None else (self.view, self.view)
        return self.space.in_pixels(height, width)

    def generator(self, attack: Attack, start: int) -> torch.Generator:
        """Give an attack's draws for the chunk that starts there, whatever ran before it."""
        return torch.Generator().manual_seed(seed_for(self.seed, attack, start))


_LATER = later_defaults(Question, "top", "include_identity", "view")
"""What the first states do not know."""


def named_attacks(attacks: Sequence[str | Attack]) -> dict[str, Attack]:
    """Give attacks by the names under which they were asked for."""
    if isinstance(attacks, str | Attack):
        raise ValueError(f"attacks must be a list, as in attacks=[{str(attacks)!r}]")
    named: dict[str, Attack] = {}
    for asked in attacks:
        attack = parse_attack(asked) if isinstance(asked, str) else asked
        name = asked if isinstance(asked, str) else str(attack)
        if " object at 0x" in name:
            raise ValueError(
                f"{type(attack).__name__} has no name: give it a __str__ that names it"
            )
        if named.setdefault(name, attack) != attack:
            raise ValueError(f"two attacks are called {name!r}: give each a __str__ of its own")
    return named
