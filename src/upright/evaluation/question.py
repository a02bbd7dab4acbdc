"""What an evaluation is asked: all that its answer depends on, but for the model and the data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from upright.attacks import Attack, parse_attack
from upright.space import TransformSpace
from upright.warp import Fill, Interpolation

__all__ = ["Question", "named_attacks"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """The settings of an evaluation. See ``evaluate`` for what each one means."""

    attacks: dict[str, Attack]
    space: TransformSpace
    only_accuracy: bool
    fill: Fill
    interpolation: Interpolation
    canvas: int
    limit: int | None
    seed: int

    @property
    def passes_per_image(self) -> int:
        """Forward passes for one image that nothing fools, the natural one included."""
        return 1 + sum(attack.passes_per_image for attack in self.attacks.values())

    def as_json(self) -> dict[str, object]:
        return {
            "attacks": {name: repr(attack) for name, attack in self.attacks.items()},
            "space": asdict(self.space),
            "only accuracy": self.only_accuracy,
            "warp": [self.fill, self.interpolation, self.canvas],
            "limit": self.limit,
            "seed": self.seed,
        }

    def generator(self, name: str, start: int) -> torch.Generator:
        """Give an attack's draws for the chunk that starts there, whatever ran before it."""
        digest = hashlib.sha256(f"{self.seed} {name} {start}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def named_attacks(attacks: Sequence[str | Attack]) -> dict[str, Attack]:
    """Give attacks by their names."""
    if isinstance(attacks, str | Attack):
        raise ValueError(f"attacks must be a list, as in attacks=[{str(attacks)!r}]")
    parsed = [parse_attack(attack) if isinstance(attack, str) else attack for attack in attacks]
    return {str(attack): attack for attack in parsed}
