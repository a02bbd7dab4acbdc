"""Poses that an attack gives, which are looked at where the attack is not this package's."""

from __future__ import annotations

from upright.pose import Pose
from upright.space import Space

__all__ = ["check_inside", "check_poses", "check_shape"]


def check_poses(who: str, poses: Pose, space: Space, wanted: str, shape: tuple[int, ...]) -> None:
    """Check that poses have the shape that is wanted, and lie in the space."""
    check_shape(who, poses, wanted, shape)
    check_inside(who, poses, space)


def check_shape(who: str, poses: Pose, wanted: str, shape: tuple[int, ...]) -> None:
    """Check that poses have a shape."""
    if tuple(poses.shape) != shape:
        raise ValueError(f"{who} gives poses of shape {tuple(poses.shape)}, but {wanted} is asked")


def check_inside(who: str, poses: Pose, space: Space) -> None:
    """Check that poses lie in a space, which waits for their values."""
    inside = space.contains(poses)
    if not inside.all():
        outside = poses.like(poses.values[~inside])[0]
        raise ValueError(
            f"{who} gives {outside.in_words()}, which lies outside {space}; "
            "space.project brings poses back"
        )
