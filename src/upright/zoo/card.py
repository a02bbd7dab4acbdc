"""A model's card: what it is, how it was trained, and what its packed weights were measured to do.

All of it is data, of which ``to_markdown`` makes the text: the two cannot differ.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from upright.records import Record, from_json, to_json
from upright.registry import UnknownNameError
from upright.space import Space
from upright.train import Recipe

__all__ = ["Card", "read_card", "write_card"]

_VERSION = 1
"""Of the file; to be raised when a field changes its meaning."""
_MOST_PIXELS = 1 << 14
"""Along a side; also the most channels and classes."""
_DAMAGE = (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError)
"""What JSON that is not what was written can make its reader raise."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """What is known of a model of the zoo."""

    name: str
    """As in ``cifar10/kl-rob-wo10``."""
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    """Channels, height and width of the images that it was measured on."""
    train_digest: str
    """SHA-256 of the images and labels that it was trained on."""
    weights_digest: str
    """SHA-256 of the file of weights."""
    records: tuple[Record, ...]
    """Of evaluations of the packed weights, all of one recipe. What two have, the first tells."""
    note: str = ""
    """What else is to be known, such as of which seeds it is the best."""
    data_terms: str = ""
    """What the training data allow, as far as their makers say; empty where it is unknown."""

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def recipe(self) -> Recipe:
        """How it was trained."""
        return Recipe.from_json(self.records[0].recipe)

    @property
    def train_seconds(self) -> float:
        """Wall time, over all resumptions; runs that trained side by side shared it."""
        seconds = self.records[0].train_seconds
        assert seconds is not None  # or it would not be a card
        return seconds

    @property
    def measured(self) -> dict[str, Record]:
        """The record that holds each accuracy, by ``nat`` and the names of attacks."""
        found: dict[str, Record] = {}
        for record in self.records:
            for metric in record.measured:
                found.setdefault(metric, record)
        return found


def write_card(card: Card) -> bytes:
    """Give the content of a card's file. The name is that of the file."""
    content = {
        "version": _VERSION,
        "classes": card.classes,
        "image_shape": card.image_shape,
        "train_digest": card.train_digest,
        "weights_digest": card.weights_digest,
        "note": card.note,
        "data_terms": card.data_terms,
        "records": [to_json(record) for record in card.records],
    }
    return json.dumps(content, indent=1, allow_nan=False).encode() + b"\n"


def read_card(name: str, content: bytes) -> Card:
    """Read what ``write_card`` gave; what is wrong with it is said in one line."""
    try:
        return _card(name, json.loads(content))
    except UnknownNameError:
        raise
    except _DAMAGE as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _card(name: str, content: dict[str, Any]) -> Card:
    if content["version"] != _VERSION:
        raise ValueError(f"of version {content['version']!r}, but this program reads {_VERSION}")
    return Card(
        name=name,
        classes=tuple(content["classes"]),
        image_shape=tuple(content["image_shape"]),
        train_digest=content["train_digest"],
        weights_digest=content["weights_digest"],
        note=content["note"],
        data_terms=content.get("data_terms", ""),  # which older cards do not have
        records=tuple(from_json(record) for record in content["records"]),
    )


def _check(card: Card) -> None:
    texts = (*card.classes, card.name, card.train_digest, card.weights_digest, card.note)
    if not all(isinstance(text, str) for text in (*texts, card.data_terms)):
        raise ValueError("classes, digests, the note and the terms must be text")
    sizes = (*card.image_shape, len(card.classes))
    if len(sizes) != 4 or not all(isinstance(n, int) and 0 < n <= _MOST_PIXELS for n in sizes):
        raise ValueError(
            f"no images of shape {card.image_shape} in {len(card.classes)} classes can be"
        )
    if not card.records:
        raise ValueError("nothing was measured")
    if any(record.recipe != card.records[0].recipe for record in card.records):
        raise ValueError("its records are of several recipes")
    if card.recipe.is_locnet:
        raise ValueError("a LocNet finds poses, and is no classifier")
    for record in card.records:
        _check_told(record)


def _check_told(record: Record) -> None:
    """Check what the text tells of a record, beyond what every record has to hold."""
    if record.train_seconds is None:
        raise ValueError("nothing is known of its training")
    float(record.train_seconds)  # an integer of JSON may be too large for that
    asked = record.evaluation
    Space.of(asked["space"])
    texts = [asked[name] for name in ("split", "fill", "interpolation", "precision")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("it does not say how it was evaluated")
