"""A batch without images is moved as any other: a loader may end with one."""

from __future__ import annotations

import pytest
import torch

from upright import Pose, Space, warp
from upright.transforms import Random


@pytest.mark.parametrize("space", ["shift rotate", "shift perspective", "brightness(0.1)"])
def test_no_images_are_moved_to_none(space: str) -> None:
    nothing = torch.empty(0, 3, 8, 8)
    box = Space.of(space).in_pixels(8, 8)
    for poses in (box.zeros(0), box.zeros(1)):
        assert warp(nothing, poses).shape == (0, 3, 8, 8)
    assert warp(nothing, Pose.zeros(5, 1)).shape == (5, 0, 3, 8, 8)
    assert Random(space)(nothing).shape == (0, 3, 8, 8)
