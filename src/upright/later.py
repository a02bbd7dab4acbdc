"""Fields that came later than what was first written down with the others.

At its default such a field says what was always meant. There it is left out, so that hashes, keys
and states of the first days stay what they are; one that differs is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

__all__ = ["later_defaults", "without_defaults"]


def later_defaults(kind: type, *names: str) -> dict[str, Any]:
    """Give the defaults of the fields of a dataclass that came later."""
    known = {field.name: field.default for field in fields(kind)}
    return {name: known[name] for name in names}


def without_defaults(values: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what came later and is at its default."""
    return {
        name: value for name, value in values.items() if name not in later or value != later[name]
    }
