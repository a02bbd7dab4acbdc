"""Spaces of the paper's kind by their numbers, for tests that vary these."""

from __future__ import annotations

from upright.space import Space

__all__ = ["rigid", "rigid_box"]


def rigid(max_translation: float, max_angle: float, *, unit: str = "px") -> Space:
    """One limit for both shifts, in pixels or as a part of the image, and one for the angle."""
    return rigid_box(max_translation, max_translation, max_angle, unit=unit)


def rigid_box(
    max_dx: float = 3.0, max_dy: float = 3.0, max_angle: float = 30.0, *, unit: str = "px"
) -> Space:
    """A limit for each axis."""
    part, sign = (1, "px") if unit == "px" else (100, "%")
    shifts = f"{part * max_dx!r}{sign}, {part * max_dy!r}{sign}"
    return Space.of(f"shift({shifts}) rotate({max_angle!r})")
