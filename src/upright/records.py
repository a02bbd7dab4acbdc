"""Records: what was measured, and what is needed to measure it again.

Accuracies are fractions, from 0 to 1, also those that the paper reports. ``record_files`` has the
files that hold records.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import reprlib
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from upright.kinds import check_kinds
from upright.later import space_text

__all__ = [
    "Key",
    "Origin",
    "Record",
    "Reported",
    "from_json",
    "to_json",
]

_VERSION = 1
"""Of the lines; to be raised when a field changes its meaning."""
_MOST = 2**63 - 1
_LONGEST_SECONDS = 1e10
_RANGES: dict[str, tuple[float, float]] = {
    "seed": (0, _MOST),
    "images": (1, _MOST),
    "steps": (0, _MOST),
    "train_seconds": (0, _LONGEST_SECONDS),
    "evaluate_seconds": (0, _LONGEST_SECONDS),
    "forward_passes": (0, _MOST),
    "beside": (1, _MOST),
}
"""What can be: whoever adds records up or draws them can rely on it."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """An accuracy in the paper: a fraction, its standard error, and the table that prints it."""

    mean: float
    stderr: float | None
    table: str

    def __post_init__(self) -> None:
        check_kinds(self)
        _check_fraction("mean", self.mean)
        _check_fraction("stderr", self.stderr or 0.0)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What computed a result."""

    commit: str | None
    """Of the code, with ``+dirty`` where it was changed since; None if unknown."""
    versions: dict[str, str]
    hardware: str

    def __post_init__(self) -> None:
        check_kinds(self)


class Key(NamedTuple):
    """What two records share if and only if they answer the same question."""

    recipe_hash: str
    seed: int
    metrics: tuple[str, ...]
    evaluation_hash: str


@dataclass(frozen=True, kw_only=True)
class Record:
    """One evaluation of one trained network, of two together, or of a model that was brought."""

    dataset: str
    """On which it was evaluated; the recipe has the one on which it was trained."""
    method: str
    """The objective, in the paper's notation; of a guest, what it is called."""
    model: str
    """The network; of a guest, how it was asked for."""
    seed: int
    """Of the training; of a guest, 0."""
    recipe: dict[str, Any]
    """Of two networks together: ``locnet`` and ``classifier``, each a recipe, and ``oracle``. Of a
    mean: its ``members``, each of these or a recipe, and what it is ``over``. Of a guest: its
    ``name``, its ``source`` and the ``weights_digest``."""
    recipe_hash: str
    evaluation: dict[str, Any]
    """What was asked: part of the data, poses, warp, seed of the attacks."""
    measured: dict[str, float]
    """Accuracies as fractions: ``nat``, and one by the name of each attack."""
    images: int
    reported: dict[str, Reported]
    """What the paper has for the same, where it has it."""
    steps: int | None
    """Of the training; None for a guest alone."""
    train_seconds: float | None
    """Wall time, over all resumptions. Runs that trained side by side shared it. None for a guest
    alone."""
    evaluate_seconds: float
    forward_passes: int
    """Images sent through the network to evaluate it."""
    data_digest: dict[str, str]
    """SHA-256 of the images and of the labels that were evaluated."""
    commit: str | None
    """Of the code that evaluated, with ``+dirty`` where it was changed since; None if unknown."""
    versions: dict[str, str]
    hardware: str
    """The device that evaluated."""
    finished: str
    """When the evaluation was done: UTC, as in ISO 8601."""
    beside: int | None = None
    """The most runs that ever trained side by side with it and shared its ``train_seconds``, itself
    included: 1 is alone. None if unknown."""
    trained_by: tuple[Origin, ...] = ()
    """What trained it: another entry for each resumption by something else. Empty if unknown."""
    data_variant: str | None = None
    """Which images of a known data set, where all of a split were evaluated: ``official``,
    ``rebuilt`` or ``by MD5``, and whether in another order than the usual one. None if unknown."""
    data_content: dict[str, str] | None = None
    """The same for the same images in any order, where the order is not the usual one and what was
    measured does not depend on it: what ``data_digest`` is in the usual order, or the digest of a
    content that has none. Poses that are drawn for an image depend on its place: None then."""

    def __post_init__(self) -> None:
        check_kinds(self)
        for name, (low, high) in _RANGES.items():
            _check_range(name, getattr(self, name), low, high)
        for name in ("recipe", "evaluation"):
            # Tuples become lists at once, so that a record equals itself read again.
            plain = json.loads(json.dumps(getattr(self, name), allow_nan=False))
            object.__setattr__(self, name, plain)
        for metric, accuracy in self.measured.items():
            _check_fraction(metric, accuracy)
        for name in ("steps", "train_seconds"):
            if getattr(self, name) is None and not self.is_guest:
                raise ValueError(f"{name} is None, but only of a guest it is unknown")
        if datetime.fromisoformat(self.finished).utcoffset() is None:
            raise ValueError(f"finished has no time zone: {self.finished}")

    @property
    def of_several(self) -> bool:
        """Whether it is of what is made of networks, and of none of them alone.

        A LocNet and the classifier behind it, or a mean.
        """
        return "locnet" in self.recipe or "members" in self.recipe

    @property
    def seeds(self) -> tuple[int, ...]:
        """What tells one run of a method from another: of several networks, the seeds of all."""
        if not self.of_several:
            return (self.seed,)
        members = self.recipe.get("members")
        each_of = members if isinstance(members, list) else [self.recipe]
        found = [_seeds_in(each) for each in each_of if isinstance(each, dict)]
        return tuple(seed for seeds in sorted(found) for seed in seeds) or (self.seed,)

    @property
    def finished_at(self) -> datetime:
        """When the evaluation was done, whichever the time zone in which that is told."""
        return datetime.fromisoformat(self.finished)

    @property
    def is_guest(self) -> bool:
        """Whether it is of a model of whose training nothing is known here."""
        return "source" in self.recipe

    @property
    def is_oracle(self) -> bool:
        """Whether it is of two networks that read the attack's own pose, and are no defence."""
        return "locnet" in self.recipe and self.recipe.get("oracle") is not False

    @property
    def trained_on(self) -> str:
        """The hardware that trained, all of it; where that is unknown, what evaluated."""
        names = dict.fromkeys(each.hardware for each in self.trained_by)
        return " and ".join(names) or self.hardware

    @property
    def images_digest(self) -> dict[str, str]:
        """What two records share that were measured on the same images, as far as order matters."""
        return self.data_content or self.data_digest

    @property
    def key(self) -> Key:
        """The question that this record answers."""
        asked = json.dumps([self.evaluation, self.images_digest], sort_keys=True)
        digest = hashlib.sha256(asked.encode()).hexdigest()[:12]
        return Key(self.recipe_hash, self.seed, tuple(sorted(self.measured)), digest)


def _seeds_in(recipe: dict[str, Any]) -> tuple[int, ...]:
    """The seed of a recipe, or those of the two of a pair."""
    parts = [recipe.get(name) for name in ("locnet", "classifier")]
    found = [part.get("seed") for part in (*parts, recipe) if isinstance(part, dict)]
    return tuple(seed for seed in found if isinstance(seed, int))


def to_json(record: Record) -> dict[str, Any]:
    """Give a record as JSON holds it, with the version of its fields."""
    return {"version": _VERSION, **asdict(record)}


def from_json(content: object) -> Record:
    """Make a record of what ``to_json`` gave; a field that is missing or wrong is named."""
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    content = dict(content)
    version = content.pop("version", None)
    if version != _VERSION:
        raise ValueError(f"of version {version!r}, but this program reads version {_VERSION}")
    for name in ("evaluation", "recipe"):
        if isinstance(content.get(name), dict):
            content[name] = _with_space_texts(content[name])
    reported = content.get("reported")
    if isinstance(reported, dict):
        content["reported"] = {name: _build(Reported, part) for name, part in reported.items()}
    trained_by = content.get("trained_by")
    if isinstance(trained_by, list):
        content["trained_by"] = tuple(_build(Origin, part) for part in trained_by)
    return _build(Record, content)


def _with_space_texts(content: dict[str, Any]) -> dict[str, Any]:
    """Bring spaces of the first days into the form that they have now, in both of two recipes."""
    return {
        name: space_text(value)
        if name == "space"
        else _with_space_texts(value)
        if name in ("locnet", "classifier") and isinstance(value, dict)
        else value
        for name, value in content.items()
    }


_Kind = TypeVar("_Kind", Origin, Record, Reported)


def _build(kind: type[_Kind], values: object) -> _Kind:
    """Make a dataclass of values by name; those that are missing or not known are named."""
    if not isinstance(values, dict):
        raise ValueError(f"no {kind.__name__}: {values!r}")
    fields = dataclasses.fields(kind)
    known = {field.name for field in fields}
    if unknown := sorted(set(values) - known):
        names = ", ".join(ascii(name)[1:-1] for name in unknown)
        raise ValueError(f"{kind.__name__} has no {names}")
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    if missing := sorted(needed - set(values)):
        raise ValueError(f"{kind.__name__} without {', '.join(missing)}")
    return kind(**values)


def _check_range(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        told = reprlib.repr(value)  # a whole number of JSON may have thousands of digits
        raise ValueError(f"{name} is {told}, but must lie between {low} and {high:.4g}")


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value}, but must be a fraction: divide percentages by 100")
