"""Options of penalties and attacks in the notation: fields of theirs, read and written by kind.

Both name their options (``Penalty.options``, ``Attack.options``). What is a number, a word, true or
false, none, or several of these with ``/`` between them can be one: the field's annotation says how
it is read.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from upright.attacks import Attack
from upright.penalties import Penalty

__all__ = [
    "alike",
    "number",
    "read_option",
    "read_value",
    "with_values",
    "without_options",
    "write_option",
]

Choice = TypeVar("Choice", bound=Attack | Penalty)

_MARKS = frozenset(",()")
"""What the notation has for itself."""


def read_option(part: Choice, name: str, text: str) -> Choice:
    """Give a penalty or an attack with another value of one of its options."""
    field = part.options()[name]
    return with_values(part, {field: read_value(_kind(part, field), text)})


def write_option(part: Attack | Penalty, name: str) -> str:
    """Write the value of an option, so that ``read_option`` gives it back."""
    field = part.options()[name]
    value = getattr(part, field)
    text = _write(_kind(part, field), value)
    if text is None or text != text.strip() or _MARKS & {*text}:
        raise ValueError(
            f"the notation cannot write {name}={value!r} of {type(part).__name__}: an option is a "
            "number, a plain word, true, false or none, of the kind that the field declares"
        )
    return text


def without_options(attack: Attack) -> Attack:
    """Give an attack with the defaults of its options, which its name alone stands for."""
    if not (named := {*attack.options().values()}):
        return attack
    fields = dataclasses.fields(attack)  # type: ignore[arg-type]
    defaults = {each.name: each.default for each in fields if each.name in named}
    if len(defaults) < len(named) or dataclasses.MISSING in defaults.values():
        raise ValueError(
            f"options of {type(attack).__name__} must be fields with a default: its name alone "
            "stands for one attack"
        )
    return with_values(attack, defaults)


def with_values(part: Choice, values: dict[str, Any]) -> Choice:
    """Give it with other values of fields."""
    return dataclasses.replace(part, **values) if values else part  # type: ignore[type-var]


def alike(one: object, other: object) -> bool:
    """Whether two penalties or attacks are the same; of a class without ``==``, by what it holds.

    >>> alike(object(), object())
    False
    """
    if one == other:
        return True
    held = getattr(one, "__dict__", None)
    return type(one) is type(other) and held is not None and held == vars(other)


def number(value: float) -> str:
    """Write a number, as short as it reads back the same."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))


def _kind(part: object, field: str) -> Any:
    kind: Any = type(part)
    try:
        return _hints(kind)[field]
    except NameError as error:
        raise ValueError(
            f"the kind of {type(part).__name__}.{field} cannot be told ({error}); define the class "
            "in a module, which imports what its annotations name"
        ) from error


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def read_value(kind: Any, text: str) -> Any:
    """Read a value of the kind that a field's annotation asks for."""
    try:
        return _read(kind, text)
    except ValueError:
        word = kind.__name__ if type(kind) is type else str(kind).replace("typing.", "")
        raise ValueError(f"{text!r} is not of the kind {word}") from None


def _read(kind: Any, text: str) -> Any:
    if _is_union(kind):
        # None first: its one word is also a text.
        kinds = sorted(get_args(kind), key=lambda each: each is not types.NoneType)
        return _first(each for one in kinds for each in _tried(one, text))
    if get_origin(kind) is tuple:
        parts = text.split("/")
        return tuple(map(_read, _kinds(kind, len(parts)), parts))
    if get_origin(kind) is Literal:
        return _first(each for each in get_args(kind) if _write(type(each), each) == text)
    if kind in (bool, types.NoneType):
        return _first(each for each in (True, False, None) if _is(kind, each, text))
    if kind in (int, float, str) and (value := kind(text)) == value:  # as nan is not
        return value
    raise ValueError("no such kind, or no number")


def _tried(kind: Any, text: str) -> Iterator[Any]:
    try:
        yield _read(kind, text)
    except ValueError:
        return


def _first(found: Iterator[Any]) -> Any:
    for each in found:
        return each
    raise ValueError("no value has this text")


def _is(kind: type, value: object, text: str) -> bool:
    return type(value) is kind and str(value).lower() == text


def _write(kind: Any, value: Any) -> str | None:
    """Write a value of a kind; None where that would not be read as the same."""
    try:
        texts = [*_texts(kind, value)]
    except ValueError:
        return None
    return next((text for text in texts if [*_tried(kind, text)] == [value]), None)


def _texts(kind: Any, value: Any) -> Iterator[str]:
    """The texts by which a value may be written, one for each type that it may have."""
    if _is_union(kind):
        for each in get_args(kind):
            yield from _texts(each, value)
    elif get_origin(kind) is tuple and isinstance(value, tuple) and value:
        parts = map(_write, _kinds(kind, len(value)), value)
        yield "/".join(part or "" for part in parts)
    elif kind is float and isinstance(value, int | float):
        yield number(value)
    elif value is None or isinstance(value, bool):
        yield str(value).lower()
    elif isinstance(value, int | str):
        yield str(value)


def _kinds(kind: Any, count: int) -> tuple[Any, ...]:
    """The types of the values of a tuple that has so many."""
    kinds = get_args(kind)
    if ... in kinds:
        return kinds[:1] * count
    if len(kinds) != count:
        raise ValueError(f"{kind} has {len(kinds)} parts, and not {count}")
    return kinds


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)
