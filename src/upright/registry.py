"""What is known by a name: attacks, networks, data sets, sources of models, families.

    ATTACKS: Registry[Callable[..., Attack]] = Registry("attack")

    @ATTACKS.register("wo-K (as in wo-10)", r"wo-(\\d+)", about="the worst of K random poses")
    def worst_of(tries: str) -> Attack: ...

    found = ATTACKS.find("wo-20")
    attack = found.value(*found.groups)

A name that nothing has is told what there is, and what is nearest to it.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

__all__ = [
    "Found",
    "Registered",
    "Registry",
    "UnknownNameError",
    "is_ours",
    "similar_names",
    "source_file",
]

T = TypeVar("T")


class UnknownNameError(ValueError):
    """Nothing is registered that has this name."""


@dataclass(frozen=True)
class Registered(Generic[T]):
    """What is registered; see ``Registry.register``."""

    form: str
    pattern: re.Pattern[str]
    value: T
    about: str
    precedence: int

    @property
    def examples(self) -> list[str]:
        """The words of the form that are names themselves: in ``wo-K (as in wo-10)`` the last."""
        words = (word.strip("(),;") for word in self.form.split())
        return [word for word in words if self.pattern.fullmatch(word)]


@dataclass(frozen=True)
class Found(Generic[T]):
    """What a name stands for, and what its pattern captured of it."""

    value: T
    groups: tuple[str | None, ...]


class Registry(Mapping[str, T], Generic[T]):
    """Values of one kind by name; as a mapping, by their forms."""

    def __init__(
        self,
        kind: str,
        *,
        any_case: bool = False,
        alphabetical: bool = True,
        synonyms: Mapping[str, str] | None = None,
        code_of: Callable[[T], object] | None = None,
    ) -> None:
        """Make an empty one.

        Args:
            kind: What messages call a value, such as ``attack``.
            any_case: Whether upper and lower case are the same in names.
            alphabetical: The order in lists; else that of registration.
            synonyms: What others call something, in small letters, and how it is called here:
                these are not understood, but told.
            code_of: Gives the class or function by which a value is told from others; by default
                the value itself.
        """
        self.kind = kind
        self._flags = re.IGNORECASE if any_case else re.NOFLAG
        self._alphabetical = alphabetical
        self._synonyms = dict(synonyms or {})
        self._code_of = code_of or (lambda value: value)
        self._entries: dict[str, Registered[T]] = {}

    def __getitem__(self, form: str) -> T:
        return self._entries[form].value

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries) if self._alphabetical else self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[Registered[T], ...]:
        """All that is registered."""
        return tuple(self._entries[form] for form in self)

    def register(
        self, form: str, pattern: str | None = None, *, about: str = "", precedence: int = 0
    ) -> Callable[[T], T]:
        """Make the decorated value known.

        Args:
            form: As people type the name and as messages list it: ``rnd``, ``wo-K (as in wo-10)``.
            pattern: Matches whole names; without, the form is the name.
            about: What help says of it, beside the form.
            precedence: Of several whose patterns match a name, the one with the highest is meant.
        """
        matching = re.compile(re.escape(form) if pattern is None else pattern, self._flags)

        def register(value: T) -> T:
            entry = Registered(form, matching, value, about, precedence)
            self._make_room(entry)
            self._entries[form] = entry
            return value

        return register

    def find(self, name: str) -> Found[T]:
        """Give what a name stands for, in whatever order all was registered."""
        found = [
            (entry, match)
            for entry in self.entries
            if (match := entry.pattern.fullmatch(name)) is not None
        ]
        if not found:
            raise self.unknown(name)
        highest = max(entry.precedence for entry, _ in found)
        (entry, match), *others = (each for each in found if each[0].precedence == highest)
        if others:
            raise ValueError(
                f"{name!r} means two of what is registered, {entry.form} and {others[0][0].form}: "
                "change a pattern, or give one of them precedence"
            )
        return Found(entry.value, match.groups())

    def unknown(self, name: str) -> UnknownNameError:
        """Make the error for a name that nothing has."""
        near = self.nearest(name)
        hint = f" (nearest: {near})" if near else ""
        return UnknownNameError(
            f"no {self.kind} is called {name!r}{hint}; there are {', '.join(self)}"
        )

    def nearest(self, name: str) -> str:
        """Give the name that somebody may have meant; empty where none is near."""
        names = [each for entry in self.entries for each in entry.examples or [entry.form]]
        return self._synonyms.get(name.lower()) or "".join(similar_names(name, names))

    def listing(self) -> str:
        """List all for help, each in a line: its form, and what is said about it."""
        return "\n".join(
            f"· {entry.form}" + (f" – {entry.about}" if entry.about else "")
            for entry in self.entries
        )

    def _make_room(self, entry: Registered[T]) -> None:
        """Forget code that is loaded again; other code needs another name."""
        alike = [
            known
            for known in self.entries
            if known.form == entry.form or known.pattern == entry.pattern
        ]
        for known in alike:
            if not _is_again(self._code_of(known.value), self._code_of(entry.value)):
                raise ValueError(
                    f"another {self.kind} is called {known.form!r}: choose another name"
                )
        for known in alike:
            if known.form != entry.form:  # else it keeps its place
                del self._entries[known.form]


def similar_names(name: str, names: Iterable[str], *, most: int = 1) -> list[str]:
    """Give the names that are most like one, whatever their case.

    >>> similar_names("Rotat", ["shift", "rotate"])
    ['rotate']
    """
    spelled = {each.lower(): each for each in names}
    return [spelled[each] for each in difflib.get_close_matches(name.lower(), spelled, most, 0.5)]


def _is_again(known: object, value: object) -> bool:
    """Whether code is other code whose file, or cell of a notebook, is loaded again."""
    one, other = (inspect.unwrap(each) if callable(each) else each for each in (known, value))
    if not hasattr(other, "__qualname__"):
        return one is other
    if _called(one) != _called(other):
        return False
    first, second = source_file(one), source_file(other)
    # What was typed in has no file, and is told by its name alone.
    return not (first and second) or first == second or first.read_bytes() == second.read_bytes()


def _called(code: object) -> tuple[object, object]:
    """What code is called; that of this package with its module."""
    module = getattr(code, "__module__", None) if is_ours(code) else None
    return getattr(code, "__qualname__", None), module


def is_ours(code: object) -> bool:
    """Whether a class or a function is of this package."""
    return (getattr(code, "__module__", None) or "").partition(".")[0] == __package__


def source_file(code: object) -> Path | None:
    """The file that defines a class or a function; None where there is none, or it is no code."""
    try:
        file = Path(inspect.getsourcefile(code) or "").resolve()  # type: ignore[arg-type]
    except (OSError, TypeError):
        return None
    return file if file.is_file() else None
