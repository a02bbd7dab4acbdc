"""The set of poses that is searched: a box in dx, dy and angle around the zero pose."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from upright.pose import Pose

__all__ = ["PAPER", "TransformSpace"]


@dataclass(frozen=True, kw_only=True)
class TransformSpace:
    """All poses with |dx| <= max_dx, |dy| <= max_dy and |angle| <= max_angle.

    ``max_angle`` is in degrees. ``max_dx`` and ``max_dy`` are in pixels or, with ``unit="image"``,
    in fractions of the image's width and height, which ``in_pixels`` resolves.
    """

    max_dx: float = 3.0
    max_dy: float = 3.0
    max_angle: float = 30.0
    unit: Literal["px", "image"] = "px"

    def __post_init__(self) -> None:
        limits = (self.max_dx, self.max_dy, self.max_angle)
        if not all(0 <= limit <= sys.float_info.max for limit in limits):
            raise ValueError(f"limits must be finite and not negative, but are {limits}")
        if self.unit not in ("px", "image"):
            raise ValueError(f"unit {self.unit!r} is neither 'px' nor 'image'")

    @staticmethod
    def of(
        max_translation: float, max_angle: float, *, unit: Literal["px", "image"] = "px"
    ) -> TransformSpace:
        """Make a space with one limit for both translations."""
        return TransformSpace(
            max_dx=max_translation, max_dy=max_translation, max_angle=max_angle, unit=unit
        )

    @staticmethod
    def covering(transformation_sets: Iterable[Pose]) -> TransformSpace:
        """Make the smallest space that leads from any member of a transformation set to any other.

        This is the paper's construction (appendix A.1): the search set is (-Δ*, Δ*), where Δ* is
        the largest |dx|, |dy| and |angle| of a pose that takes one member of a set to another
        member of the same set. Each set lists its members as poses of one common image.
        """
        largest = torch.zeros(3, dtype=torch.float64)
        for members in transformation_sets:
            pose = members.to(dtype=torch.float64)
            between = pose.inverse()[:, None].compose(then=pose[None, :])
            nearest_turn = torch.remainder(between.angle + 180, 360) - 180
            between = Pose(between.dx, between.dy, nearest_turn)
            largest = torch.maximum(largest, between.stack().abs().amax((0, 1)))
        max_dx, max_dy, max_angle = largest.tolist()
        return TransformSpace(max_dx=max_dx, max_dy=max_dy, max_angle=max_angle)

    def in_pixels(self, height: int, width: int) -> TransformSpace:
        """Resolve limits that are relative to the image's size.

        >>> TransformSpace.of(0.125, 30, unit="image").in_pixels(height=224, width=320).limits
        (40.0, 28.0, 30)
        """
        if self.unit == "px":
            return self
        return replace(self, max_dx=self.max_dx * width, max_dy=self.max_dy * height, unit="px")

    def in_words(self) -> str:
        """Say how far images are moved.

        >>> TransformSpace().in_words()
        'shifts of at most 3 px, rotations of at most 30 degrees'
        """
        unit, scale = ("px", 1.0) if self.unit == "px" else ("% of the image", 100.0)
        shifts = dict.fromkeys(f"{scale * limit:g}" for limit in (self.max_dx, self.max_dy))
        shift = " by ".join(shifts)
        return f"shifts of at most {shift} {unit}, rotations of at most {self.max_angle:g} degrees"

    @property
    def limits(self) -> tuple[float, float, float]:
        """The limits of dx and dy in pixels and of the angle in degrees."""
        if self.unit != "px":
            raise ValueError(
                "limits are relative to the image; call in_pixels(height, width) first"
            )
        return self.max_dx, self.max_dy, self.max_angle

    def grid(self, counts: Sequence[int]) -> Pose:
        """Give evenly spaced poses, ends included: ``counts`` values of dx, dy and angle.

        ``grid((5, 5, 31))`` are the paper's 775 poses. A count of 1 gives the value 0.

        >>> TransformSpace().grid((2, 1, 3))[:4]
        Pose(dx=[-3.0, -3.0, -3.0, 3.0] px, dy=[0.0, 0.0, 0.0, 0.0] px, \
angle=[-30.0, 0.0, 30.0, -30.0] degrees)
        """
        if len(counts) != 3 or min(counts) < 1:
            raise ValueError(f"a grid needs three counts of at least 1, but got {tuple(counts)}")
        # Fractions of the limit, as linspace can miss the zero pose by a rounding error.
        axes = [
            limit * (torch.arange(1 - count, count, 2, dtype=torch.float64) / max(1, count - 1))
            for limit, count in zip(self.limits, counts, strict=True)
        ]
        return Pose(*(part.flatten().float() for part in torch.meshgrid(*axes, indexing="ij")))

    def sample(
        self,
        *shape: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> Pose:
        """Draw poses uniformly from the box."""
        device = device or (generator.device if generator is not None else None)
        poses = torch.rand(*shape, 3, generator=generator, device=device).sub_(0.5)
        # Plain numbers, not a tensor of limits: a CUDA graph cannot capture a copy from the host.
        for axis, limit in enumerate(self.limits):
            poses[..., axis].mul_(2 * limit)
        return Pose.unstack(poses)

    def project(self, pose: Pose) -> Pose:
        """Give the nearest pose in the box."""
        parts = zip((pose.dx, pose.dy, pose.angle), self.limits, strict=True)
        return Pose(*(part.clamp(-limit, limit) for part, limit in parts))

    def contains(self, pose: Pose) -> Tensor:
        """Say for each pose whether it lies in the box."""
        parts = zip((pose.dx, pose.dy, pose.angle), self.limits, strict=True)
        return torch.stack([part.abs() <= limit for part, limit in parts]).all(0)


PAPER = TransformSpace()
"""The paper's space: translations of at most 3 px and rotations of at most 30 degrees."""
