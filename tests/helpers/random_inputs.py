"""Images of noise and poses of any space, drawn by a seed, in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from upright import Pose, Space
from upright.families import Chain

__all__ = ["MIXED", "draw", "noise", "parts_of", "poses_of"]

MIXED = "brightness(0.1) shift(3px) contrast rotate(30) zoom(0.8..1.2) gamma blur(1px)"


def noise(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64).to(dtype)


def poses_of(triples: list[Any]) -> Pose:
    return Pose(torch.tensor(triples, dtype=torch.float64))


def draw(text: str, *shape: int, seed: int = 1) -> Pose:
    pose = Space.of(text).sample(*shape, generator=torch.Generator().manual_seed(seed))
    return pose.to(dtype=torch.float64)


def parts_of(pose: Pose) -> list[tuple[str, Pose]]:
    """A pose of each family of a chain, in the order of the text."""
    parts, start = [], 0
    for each in pose.chain.families:
        columns = pose.values[..., start : start + len(each.axes)]
        parts.append((each.name, Pose(columns, Chain((each,)))))
        start += len(each.axes)
    return parts
