"""What was written down in the first days, and what came later.

A field that came later says at its default what was always meant. There it is left out, so that
hashes, keys and states of the first days stay what they are; one that differs is written. Spaces,
which are texts, were the four numbers of the paper's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

__all__ = [
    "LATER_IN_RECIPES",
    "first_space",
    "later_defaults",
    "question_now",
    "space_text",
    "without_defaults",
]

LATER_IN_RECIPES = {
    "average": 0.0,
    "center_crop": None,
    "cosine": False,
    "cutout": 0,
    "decay": 1.0,
    "decay_every": 1,
    "families_digest": "",
    "held_out": False,
    "interpolation": "bilinear",
    "jitter": None,
    "mixup": 0.0,
    "model_digest": "",
    "objective_digest": "",
    "optimizer": "sgd",
    "pretrained": "",
    "pretrained_digest": "",
    "resize": None,
    "smoothing": 0.0,
    "teacher": "",
    "teacher_digest": "",
    "teacher_share": 0.0,
    "view": None,
    "warmup": 0,
}
"""Fields that the first recipes do not have, with what they had. They are the recipe's defaults,
which a test compares: a report, made from records alone, knows nothing of recipes."""


def later_defaults(kind: type, *names: str) -> dict[str, Any]:
    """Give the defaults of the fields of a dataclass that came later."""
    known = {field.name: field.default for field in fields(kind)}
    return {name: known[name] for name in names}


def without_defaults(values: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what came later and is at its default."""
    return {
        name: value for name, value in values.items() if name not in later or value != later[name]
    }


def space_text(space: Any) -> Any:
    """Give a space as the text that it is now; what is no space of the first days stays as it is.

    >>> space_text({"max_dx": 3.0, "max_dy": 3.0, "max_angle": 30.0, "unit": "px"})
    'shift(3px) rotate(30)'
    """
    if not isinstance(space, Mapping) or set(space) != set(_FIRST):
        return space
    *limits, unit = (space[name] for name in _FIRST)
    if unit not in ("px", "image") or not all(_is_number(limit) for limit in limits):
        return space
    dx, dy, angle = limits
    if unit == "image":
        dx, dy = (float(f"{100 * limit:.12g}") for limit in (dx, dy))
    sign = "px" if unit == "px" else "%"
    shifts = dict.fromkeys(f"{_short(limit)}{sign}" for limit in (dx, dy))
    return f"shift({', '.join(shifts)}) rotate({_short(angle)})"


def first_space(text: str) -> Any:
    """Give a space as it was written in the first days, where it could be; else its text.

    >>> first_space("shift(3px) rotate(30)")
    {'max_dx': 3.0, 'max_dy': 3.0, 'max_angle': 30.0, 'unit': 'px'}
    """
    match = _RIGID.fullmatch(text)
    if match is None:
        return text
    dx, unit, dy, angle = match[1], match[2], match[4] or match[1], match[5]
    part = 1 if unit == "px" else 100
    named = zip(_FIRST, (float(dx) / part, float(dy) / part, float(angle)), strict=False)
    return dict(named) | {"unit": "px" if unit == "px" else "image"}


def question_now(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Give what an evaluation of the first days was asked as it would be put now.

    The steps of a climb were always the paper's then, which in its space are those of the axes.
    """
    now = {name: space_text(value) if name == "space" else value for name, value in asked.items()}
    attacks = now.get("attacks")
    if now.get("space") == _PAPER and isinstance(attacks, dict):
        now["attacks"] = {
            name: attack.replace(_FIRST_STEPS, "step_size=None")
            if isinstance(attack, str)
            else attack
            for name, attack in attacks.items()
        }
    return now


_PAPER = "shift(3px) rotate(30)"
_FIRST_STEPS = "step_size=(0.03, 0.03, 0.3)"
_FIRST = ("max_dx", "max_dy", "max_angle", "unit")
_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_RIGID = re.compile(rf"shift\({_NUMBER}(px|%)(, {_NUMBER}\2)?\) rotate\({_NUMBER}\)")
"""With limits that mirror each other: others have two dots."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


def _short(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
