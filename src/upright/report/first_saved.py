"""Saved arrays of the first version, whose poses were all shifts and turns, as they are now."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

__all__ = ["as_now"]

_NAMES = {
    "dx_px": "grid/dx",
    "dy_px": "grid/dy",
    "angle_degrees": "grid/angle",
    "turned": "predicted_along",
}
"""What each array of the first version is called now."""

Arrays = dict[str, NDArray[Any]]


def as_now(about: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Give the text and the arrays of a file of any version as those of this one."""
    if not arrays.keys() & _NAMES.keys():
        return about, arrays
    named = {_NAMES.get(name, name): array for name, array in arrays.items()}
    if "turned" in arrays:
        return about, named
    dx, dy, angle = (_limits(arrays[name]) for name in _NAMES if name in arrays)
    return about | {"space": f"shift({dx}px, {dy}px) rotate({angle})", "along": "angle"}, named


def _limits(values: NDArray[Any]) -> str:
    """The limits of an axis, by the ends of its grid; they were not saved."""
    return f"{values.min():.6g}..{values.max():.6g}"
