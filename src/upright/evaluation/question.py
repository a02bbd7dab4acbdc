"""What an evaluation is asked: all that its answer depends on, but for the model and the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from upright.attacks import Attack, parse_attack, usual_grid
from upright.checks import check_at_least_1
from upright.evaluation.told import has_address, told
from upright.factories import digest_of_code
from upright.later import later_defaults, without_defaults
from upright.seeds import seed_for
from upright.space import PAPER, Space
from upright.warp import Fill, Interpolation, Resampling, check_canvas, check_chain

__all__ = ["LATER", "Precision", "Question", "named_attacks"]

Precision = Literal["float32", "float16", "bfloat16"]

_MOST_POSES = 10_000_000
"""Of one image: they are listed before the first is tried."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What an evaluation is asked, by default as the paper asks; see ``evaluate`` for each word.

    One question has one ``Record.key``, whoever asks it, and continues from one state.
    """

    attacks: Mapping[str, Attack] = field(default_factory=dict)
    """By the names under which they were asked for."""
    only_accuracy: bool = False
    space: Space = PAPER
    fill: Fill = "black"
    interpolation: Interpolation = "bilinear"
    canvas: int = 0
    view: int | None = None
    top: int = 1
    include_identity: bool = False
    limit: int | None = None
    sample: int | None = None
    """So many images, drawn at random; of those up to the limit, where there is one."""
    seed: int | None = None
    """Of the poses that attacks draw; None for a fixed one."""
    drawn_seed: int | None = None
    """What a generator gave, in place of a seed."""
    # How data and network are to be taken, whoever takes them.
    split: Literal["train", "test", "held-out", "kept"] = "test"
    resize: int | None = None
    """What the shorter side of images is scaled to, in pixels."""
    center_crop: int | None = None
    """The side of the square that is cut out of images then, in pixels."""
    precision: Precision = "float32"
    """Of the network."""
    compile: bool = False
    """Whether the network is compiled, which rounds its sums otherwise."""

    def __post_init__(self) -> None:
        check_at_least_1(limit=self.limit, sample=self.sample, top=self.top, view=self.view)
        for attack in self.attacks.values():
            attack.check_space(self.space)
        check_canvas(self.canvas)
        resampling = self.resampling  # which looks at its own words
        check_chain(self.space.chain, resampling.interpolation)

    @staticmethod
    def of(
        attacks: Sequence[str | Attack] | None,
        *,
        space: Space | str = PAPER,
        generator: torch.Generator | None = None,
        **words: Any,
    ) -> Question:
        """Ask as ``evaluate`` is asked: attacks by name, and a generator that gives the seed.

        Without attacks it is the grid that is usual for the space.
        """
        drawn, box = None if generator is None else _draw(generator), Space.of(space)
        asked = [usual_grid(box)] if attacks is None else attacks
        return Question(attacks=named_attacks(asked), space=box, drawn_seed=drawn, **words)

    @property
    def resampling(self) -> Resampling:
        """How images are moved, once they lie on their canvas."""
        return Resampling(self.fill, self.interpolation, self.view, margin=self.canvas)

    @property
    def passes_per_image(self) -> int:
        """Forward passes for one image that nothing fools, the natural one included."""
        return 1 + sum(attack.passes_per_image for attack in self.attacks.values())

    def for_state(self) -> dict[str, object]:
        """Give it as states hold it, which belong to a model and data that are taken already.

        What older ones do not know is there only where it differs.
        """
        later = without_defaults({name: getattr(self, name) for name in LATER}, LATER)
        if digest := self.space.chain.code_digest:
            later["code_of_families"] = digest
        return {name.replace("_", " "): value for name, value in later.items()} | {
            "attacks": {name: told(attack) for name, attack in self.attacks.items()},
            "space": str(self.space),
            "only accuracy": self.only_accuracy,
            "warp": [self.fill, self.interpolation, self.canvas],
            "limit": self.limit,
            "seed": self._seed_of_draws,
        }

    def for_record(self) -> dict[str, Any]:
        """Give it as records hold it, beside what each attack left."""
        if self.drawn_seed is not None:
            raise ValueError("what a generator draws is not drawn again: ask with a seed instead")
        asked = {name: getattr(self, name) for name in _RECORDED}
        own = {
            "code_of_families": self.space.chain.code_digest,
            "code_of_attacks": digest_of_code(*self.attacks.values()),
        }
        known = {name: digest for name, digest in own.items() if digest}
        return without_defaults(asked | {"space": str(self.space)}, LATER) | known

    def space_for(self, images: Tensor) -> Space:
        """Give the space with limits that fit what the model sees of images."""
        height, width = images.shape[-2:] if self.view is None else (self.view, self.view)
        return self.space.in_pixels(height, width)

    def generator(self, attack: Attack, start: int) -> torch.Generator:
        """Give an attack's draws for the chunk that starts there, whatever ran before it."""
        return torch.Generator().manual_seed(seed_for(self._seed_of_draws, attack, start))

    def places(self, count: int) -> Tensor | None:
        """Give the places of the images to visit, of so many, in that order; None for all in turn.

        It is a random order that the seed fixes: a smaller sample is the first of a larger one.
        """
        if self.sample is None:
            return None
        generator = torch.Generator().manual_seed(seed_for(self._seed_of_draws, "order", 0))
        return torch.randperm(count, generator=generator)[: self.sample]

    @property
    def _seed_of_draws(self) -> int:
        """A seed draws as a generator with that seed does."""
        if self.drawn_seed is not None:
            return self.drawn_seed
        return 0 if self.seed is None else _draw(torch.Generator().manual_seed(self.seed))


LATER = later_defaults(Question, "top", "include_identity", "view", "sample", "compile")
"""What the first states and records do not have, with what they had."""

_RECORDED = (
    *("space", "split", "limit", "resize", "center_crop", "fill", "interpolation", "canvas"),
    *("view", "precision", "seed", "top", "include_identity", "sample", "compile"),
)


def _draw(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator))


def _are_one(one: Attack, other: Attack) -> bool:
    """Whether two attacks are one by all their text: fields may not be there to be compared."""
    return one is other or (str(one) == str(other) and told(one) == told(other))


def named_attacks(attacks: Sequence[str | Attack]) -> dict[str, Attack]:
    """Give attacks by the names under which they were asked for."""
    if isinstance(attacks, str | Attack):
        raise ValueError(f"attacks must be a list, as in attacks=[{str(attacks)!r}]")
    named: dict[str, Attack] = {}
    for asked in attacks:
        attack = parse_attack(asked) if isinstance(asked, str) else asked
        name = asked if isinstance(asked, str) else str(attack)
        if (poses := attack.passes_per_image) > _MOST_POSES:
            raise ValueError(f"{name} has {poses:,} poses: at most {_MOST_POSES:,} can be listed")
        if has_address(name):
            raise ValueError(
                f"{type(attack).__name__} has no name: give it a __str__ that names it"
            )
        if not _are_one(named.setdefault(name, attack), attack):
            raise ValueError(f"two attacks are called {name!r}: give each a __str__ of its own")
        if again := [other for other in named if other != name and _are_one(named[other], attack)]:
            raise ValueError(f"{name!r} and {again[0]!r} are one attack: ask for it once")
    return named
