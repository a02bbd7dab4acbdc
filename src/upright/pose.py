"""A rotation about the image's centre, followed by a translation.

Convention
----------
* ``dx`` in pixels, positive moves the content right; ``dy`` in pixels, positive moves it down.
* ``angle`` in degrees, positive turns the content counter-clockwise as displayed.
* First the rotation about the image's centre, then the translation.

In coordinates relative to the centre (x right, y down) a pose maps ``p`` to ``R p + t`` with
``R = [[cos, sin], [-sin, cos]]``: the sign of the sine is the one that turns counter-clockwise
when y points down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor

__all__ = ["Pose", "cos_sin_degrees"]


@dataclass(frozen=True, eq=False)
class Pose:
    """A batch of poses: ``dx`` and ``dy`` in pixels, ``angle`` in degrees, of one shape.

    The last axis runs over images (length 1: the same pose for every image); the axes before it, if
    there are any, run over candidates for each image.
    """

    dx: Tensor
    dy: Tensor
    angle: Tensor
    _stacked: Tensor | None = field(default=None, init=False, repr=False)
    """What all three are views of, if they are: most poses are drawn, chosen and applied as one
    tensor, and need not be put together anew each time."""

    def __post_init__(self) -> None:
        if not self.dx.shape == self.dy.shape == self.angle.shape:
            raise ValueError(
                f"dx, dy and angle need one shape, but have {tuple(self.dx.shape)}, "
                f"{tuple(self.dy.shape)} and {tuple(self.angle.shape)}; Pose.of broadcasts them"
            )

    @staticmethod
    def of(
        dx: Any = 0.0, dy: Any = 0.0, angle: Any = 0.0, *, dtype: torch.dtype | None = None
    ) -> Pose:
        """Make a pose from numbers, sequences or tensors, broadcast against each other.

        >>> Pose.of(dx=1.5, angle=[-30, 0, 30])
        Pose(dx=[1.5, 1.5, 1.5] px, dy=[0.0, 0.0, 0.0] px, angle=[-30.0, 0.0, 30.0] degrees)
        """
        values = (dx, dy, angle)
        if dtype is None:
            dtype = reduce(torch.promote_types, (torch.as_tensor(value).dtype for value in values))
            dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        device = next((value.device for value in values if isinstance(value, Tensor)), None)
        # The dtype from the start: a number that becomes float32 first has lost its digits.
        # A number by a fill: a CUDA graph cannot capture a copy from the host.
        parts = [
            torch.full((1,), value, dtype=dtype, device=device)
            if isinstance(value, int | float)
            else torch.atleast_1d(torch.as_tensor(value, dtype=dtype, device=device))
            for value in values
        ]
        return Pose(*torch.broadcast_tensors(*parts))

    @staticmethod
    def zeros(
        *shape: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Pose:
        """Make the pose that moves nothing."""
        zero = torch.zeros(shape, device=device, dtype=dtype)
        return Pose(zero, zero, zero)

    @staticmethod
    def unstack(stacked: Tensor) -> Pose:
        """Read poses from a tensor whose last axis holds dx, dy and angle."""
        pose = Pose(*stacked.unbind(-1))
        object.__setattr__(pose, "_stacked", stacked)
        return pose

    @staticmethod
    def cat(poses: Sequence[Pose], dim: int = 0) -> Pose:
        """Join poses along one axis."""
        return Pose.unstack(torch.cat([pose.stack() for pose in poses], dim))

    def stack(self) -> Tensor:
        """Give one tensor whose last axis holds dx, dy and angle; what ``unstack`` was given."""
        if self._stacked is not None:
            return self._stacked
        return torch.stack((self.dx, self.dy, self.angle), -1)

    @property
    def shape(self) -> torch.Size:
        """Of dx, dy and angle alike: candidates, if there are any, then images."""
        return self.dx.shape

    @property
    def device(self) -> torch.device:
        """Where dx lies, and with it the rest."""
        return self.dx.device

    def __len__(self) -> int:
        return len(self.dx)

    def __getitem__(self, index: Any) -> Pose:
        return Pose(self.dx[index], self.dy[index], self.angle[index])

    def __repr__(self) -> str:
        def show(part: Tensor) -> str:
            return str([round(value, 4) for value in part.flatten().tolist()[:6]]).replace(
                "]", ", ...]" if part.numel() > 6 else "]"
            )

        return (
            f"Pose(dx={show(self.dx)} px, dy={show(self.dy)} px, angle={show(self.angle)} degrees)"
        )

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Pose:
        """Move to a device, or change the dtype."""
        return Pose(
            *(part.to(device=device, dtype=dtype) for part in (self.dx, self.dy, self.angle))
        )

    def compose(self, then: Pose) -> Pose:
        """Give the one pose that acts as this pose followed by ``then``.

        >>> Pose.of(dx=1).compose(then=Pose.of(angle=90))
        Pose(dx=[0.0] px, dy=[-1.0] px, angle=[90.0] degrees)
        """
        cos, sin = cos_sin_degrees(then.angle)
        return Pose(
            cos * self.dx + sin * self.dy + then.dx,
            cos * self.dy - sin * self.dx + then.dy,
            self.angle + then.angle,
        )

    def inverse(self) -> Pose:
        """Give the pose that undoes this one."""
        cos, sin = cos_sin_degrees(self.angle)
        return Pose(sin * self.dy - cos * self.dx, -sin * self.dx - cos * self.dy, -self.angle)


def cos_sin_degrees(angle: Tensor) -> tuple[Tensor, Tensor]:
    """Give cosine and sine of an angle in degrees, exact at every multiple of 90.

    The angle is reduced to [-45, 45] before it is turned into radians, which no float holds
    exactly.
    """
    quarter_turns = torch.round(angle.detach() / 90)
    rest = torch.deg2rad(angle - 90 * quarter_turns)
    cos, sin = torch.cos(rest), torch.sin(rest)
    odd = torch.remainder(quarter_turns, 2) == 1
    sign = torch.where(torch.remainder(quarter_turns, 4) >= 2, -1.0, 1.0).to(angle.dtype)
    return sign * torch.where(odd, -sin, cos), sign * torch.where(odd, cos, sin)
