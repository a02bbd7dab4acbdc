"""Rules that a thing keeps or breaks: each is tried, and all that are broken are told at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

__all__ = ["Rules", "alike", "drawing", "keeps", "noise"]

Rules = Mapping[str, Callable[[], None]]
"""What tries a rule, by the rule in words; it raises where the rule is broken."""


def keeps(who: str, rules: Rules) -> None:
    """Raise ``AssertionError`` where rules are broken, with what was seen of each."""
    broken = {}
    for rule, attempt in rules.items():
        try:
            attempt()
        except Exception as error:  # whatever a stranger's code may raise
            broken[rule] = f"{error}".strip() or type(error).__name__
    if broken:
        told = "".join(f"\n- {rule}: {seen}" for rule, seen in broken.items())
        raise AssertionError(f"{who} breaks {len(broken)} of {len(rules)} rules:{told}")


def alike(found: Tensor, expected: Tensor, *, to: float = 0.0) -> None:
    """Check that tensors agree in type, shape and, up to a difference, in values."""
    torch.testing.assert_close(found, expected, rtol=0, atol=to)


def drawing(seed: int = 0) -> torch.Generator:
    """Give a generator that draws the same each time."""
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Give numbers between 0 and 1 in double precision."""
    return torch.rand(shape, generator=drawing(seed), dtype=torch.float64)
