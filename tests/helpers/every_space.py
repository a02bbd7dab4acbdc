"""A space of each family, and some of several, for tests that take them through everything."""

from __future__ import annotations

__all__ = ["EVERY_SPACE", "LIMITED", "SEVERAL"]

LIMITED = {
    "shift": "shift(2px, 1px)",
    "rotate": "rotate(-10..25)",
    "zoom": "zoom(0.8..1.3)",
    "stretch": "stretch(0.9..1.1, 0.8..1.25)",
    "shear": "shear(8)",
    "perspective": "perspective(0.15)",
    "brightness": "brightness(-0.1..0.3)",
    "contrast": "contrast(0.7..1.5)",
    "gamma": "gamma(0.5..2)",
    "saturation": "saturation(0.2..2)",
    "hue": "hue(40)",
    "blur": "blur(0..1.5px)",
}
"""Each family with limits that are not its usual ones."""

SEVERAL = (
    "shift(10%) rotate(20) zoom(0.9..1.1)",
    "shift(2px) brightness(0.2) rotate(15)",
    "blur(0..1px) shift(1px) contrast(0.8..1.25)",
)
"""Spatial families alone, and with others before, between and behind them."""

EVERY_SPACE = (*LIMITED.values(), *SEVERAL)
