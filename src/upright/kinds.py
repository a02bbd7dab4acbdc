"""Whether the fields of a dataclass are of the kinds that their annotations ask for."""

from __future__ import annotations

import dataclasses
import math
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

__all__ = ["check_kinds"]


def check_kinds(instance: Any) -> None:
    """Refuse a value of another kind than its field has."""
    hints = get_type_hints(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not _is_a(hints[field.name], value):
            raise ValueError(f"{field.name} is {value!r}, but must be {field.type}")


def _is_a(kind: Any, value: object) -> bool:
    of, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if of is Literal:
        return value in parts
    if isinstance(kind, UnionType):
        return any(_is_a(part, value) for part in parts)
    if of is dict:
        return isinstance(value, dict) and all(
            isinstance(name, str) and _is_a(parts[1], part) for name, part in value.items()
        )
    if of is tuple:
        return isinstance(value, tuple) and all(_is_a(parts[0], part) for part in value)
    if isinstance(value, bool):
        return kind is bool
    if kind is float and isinstance(value, int | float):
        return -math.inf < value < math.inf
    return isinstance(value, kind)
