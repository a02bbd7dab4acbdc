"""Poses: one tensor, with a named column for each axis of a chain of families.

Convention
----------
Zero is the identity in every column. The paper's poses are ``dx`` and ``dy`` in pixels, positive to
the right and down, and ``angle`` in degrees, positive counter-clockwise as displayed: first the
rotation about the image's centre, then the translation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from upright.families import RIGID, Chain, Shift, matrix_product

__all__ = ["Pose"]


@dataclass(frozen=True, eq=False)
class Pose:
    """A batch of poses: ``values`` has a column for each axis of the ``chain``, in its last axis.

    The axis before it runs over images (length 1: the same pose for every image); those further in
    front, if there are any, run over candidates for each image. A column is an attribute by its
    name: ``pose.dx``, ``pose.angle``, ``pose.zoom``.
    """

    values: Tensor
    chain: Chain = RIGID

    def __post_init__(self) -> None:
        if self.values.ndim == 0 or self.values.shape[-1] != len(self.chain.axes):
            names = ", ".join(self.chain.column_of)
            raise ValueError(
                f"poses of {self.chain} have {len(self.chain.axes)} columns ({names}), but this "
                f"tensor has the shape {tuple(self.values.shape)}"
            )

    @staticmethod
    def of(
        dx: Any = 0.0, dy: Any = 0.0, angle: Any = 0.0, *, dtype: torch.dtype | None = None
    ) -> Pose:
        """Make one of the paper's poses from numbers, sequences or tensors, broadcast.

        >>> Pose.of(dx=1.5, angle=[-30, 0, 30])
        Pose(dx=[1.5, 1.5, 1.5] px, dy=[0.0, 0.0, 0.0] px, angle=[-30.0, 0.0, 30.0] degrees)
        """
        return Pose.made(RIGID, dtype=dtype, dx=dx, dy=dy, angle=angle)

    @staticmethod
    def made(chain: Chain, *, dtype: torch.dtype | None = None, **columns: Any) -> Pose:
        """Make a pose of any chain from columns by name; those that are not named are zero.

        >>> from upright.families import chain_of
        >>> Pose.made(chain_of("shift zoom"), dx=[1, 2])
        Pose(dx=[1.0, 2.0] px, dy=[0.0, 0.0] px, zoom=[0.0, 0.0] (log of a factor))
        """
        if unknown := set(columns) - set(chain.column_of):
            raise ValueError(
                f"{chain} has no axis called {', '.join(sorted(unknown))}; it has "
                f"{', '.join(chain.column_of)}"
            )
        values = [columns.get(name, 0.0) for name in chain.column_of]
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
        return Pose(torch.stack(torch.broadcast_tensors(*parts), -1), chain)

    @staticmethod
    def zeros(
        *shape: int,
        chain: Chain = RIGID,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Pose:
        """Make the pose that changes nothing."""
        return Pose(torch.zeros(*shape, len(chain.axes), device=device, dtype=dtype), chain)

    @staticmethod
    def cat(poses: Sequence[Pose], dim: int = 0) -> Pose:
        """Join poses of one chain along one axis, counted from the front."""
        if len({pose.chain.names for pose in poses}) > 1:
            raise ValueError("poses of different families cannot be joined")
        return poses[0].like(torch.cat([pose.values for pose in poses], dim))

    def like(self, values: Tensor) -> Pose:
        """Give other poses of the same chain."""
        return Pose(values, self.chain)

    def split(self, count: int) -> list[Pose]:
        """Cut into parts of so many, along the first axis."""
        return [self.like(part) for part in self.values.split(count)]

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_") or name in ("values", "chain"):  # of a copy that is being made
            raise AttributeError(name)
        place = self.chain.column_of.get(name)
        if place is None:
            raise AttributeError(
                f"a pose of {self.chain} has no {name!r}; its columns are "
                f"{', '.join(self.chain.column_of)}"
            )
        return self.values[..., place]

    @property
    def shape(self) -> torch.Size:
        """Candidates, if there are any, then images."""
        return self.values.shape[:-1]

    @property
    def device(self) -> torch.device:
        """Where the values lie."""
        return self.values.device

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Pose:
        places = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [place for place in places if not isinstance(place, Tensor)]:
            return self.like(self.values[(*places, slice(None))])
        return self.like(self.values[places])

    def __repr__(self) -> str:
        units = {"factor": "(log of a factor)", "%": "px"}  # only limits are in per cent
        parts = [
            f"{axis.name}={_shown(column)} {units.get(axis.unit, axis.unit)}".rstrip()
            for axis, column in zip(self.chain.axes, self.values.unbind(-1), strict=True)
        ]
        return f"Pose({', '.join(parts)})"

    def in_words(self) -> str:
        """Say where a single pose is.

        >>> Pose.of(dx=1, angle=-30)[0].in_words()
        'dx 1 px, dy 0 px, angle -30 degrees'
        """
        if self.shape:
            raise ValueError("these are several poses; take one, as in poses[0].in_words()")
        values = zip(self.chain.axes, self.values.tolist(), strict=True)
        return ", ".join(f"{axis.name} {axis.show(value)}" for axis, value in values)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Pose:
        """Move to a device, or change the dtype."""
        return self.like(self.values.to(device=device, dtype=dtype))

    def compose(self, then: Pose) -> Pose:
        """Give the one pose that acts as this pose followed by ``then``.

        For chains whose poses are a group: a single family whose poses add up, or turns and zooms;
        or a shift with either of these behind it, if it is no perspective.

        >>> Pose.of(dx=1).compose(then=Pose.of(angle=90))
        Pose(dx=[0.0] px, dy=[-1.0] px, angle=[90.0] degrees)
        """
        self._check_group()
        if then.chain.names != self.chain.names:
            raise ValueError(f"a pose of {self.chain} and one of {then.chain} do not compose")
        first, second = torch.broadcast_tensors(self.values, then.values)
        if not self._shifts_others:
            return self.like(first + second)
        shift = _turned(self.chain, second, first[..., :2]) + second[..., :2]
        return self.like(torch.cat((shift, first[..., 2:] + second[..., 2:]), -1))

    def inverse(self) -> Pose:
        """Give the pose that undoes this one, of the same chains as ``compose``."""
        self._check_group()
        if not self._shifts_others:
            return self.like(-self.values)
        shift = -_turned(self.chain, -self.values, self.values[..., :2])
        return self.like(torch.cat((shift, -self.values[..., 2:]), -1))

    @property
    def _shifts_others(self) -> bool:
        return isinstance(self.chain.families[0], Shift) and len(self.chain.families) > 1

    def _check_group(self) -> None:
        if not self.chain.is_group:
            raise ValueError(
                f"two poses of {' '.join(self.chain.names)} are not one pose of it; multiply their "
                "matrices instead (pose.chain.matrix)"
            )


def _turned(chain: Chain, values: Tensor, shift: Tensor) -> Tensor:
    """A shift, turned and scaled by the families behind it."""
    linear = Chain(chain.families[1:]).matrix(values[..., 2:], (1, 1))[..., :2, :2]
    return matrix_product(linear, shift[..., None])[..., 0]


def _shown(column: Tensor) -> str:
    text = str([round(value, 4) for value in column.flatten().tolist()[:6]])
    return text.replace("]", ", ...]") if column.numel() > 6 else text
