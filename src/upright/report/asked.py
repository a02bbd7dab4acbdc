"""What an evaluation was asked that the paper was not, in words to stand beside its numbers.

Top-5 accuracies, or those under smaller poses, are higher by what they are: beside the others, they
would say that a model is better.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upright.families import UnknownFamilyError
from upright.records import Record
from upright.space import PAPER, Space

__all__ = ["ABOVE_NATURAL", "above_natural", "unlike_the_paper"]

ABOVE_NATURAL = (
    "above natural: the attack does not try images as they are, unless the identity is included"
)

_PAPER = {
    "top": 1,
    "include_identity": False,
    "space": str(PAPER),
    "view": None,
    "fill": "black",
    "interpolation": "bilinear",
    "canvas": 0,
    "split": "test",
    "limit": None,
    "sample": None,
    "resize": None,
    "center_crop": None,
    "weights": None,
}
"""What the paper asked; a test compares the defaults of the settings."""
_ANY = ("precision", "compile", "seed", "code_of_attacks")
"""How the network rounds, and of the draws: another one asks the same. An attack's code says
nothing of the numbers of other attacks."""
_WORDS = {
    "top": "top-{}",
    "include_identity": "identity included",
    "fill": "{} fill",
    "interpolation": "{} interpolation",
    "canvas": "canvas of {} px",
    "view": "view of {} px",
    "split": "{} images",
    "limit": "the first {} images",
    "sample": "{} images drawn at random",
    "resize": "resized to {} px",
    "center_crop": "cropped to {} px",
    "code_of_families": "families by code {:.8}",
    "weights": "weights rounded to {}",
}


def unlike_the_paper(record: Record) -> str:
    """Say in what an evaluation differs from the paper's; empty where in nothing that matters.

    What is not known here, as of a newer version, is said by its name.
    """
    asked = _PAPER | {name: each for name, each in record.evaluation.items() if name not in _ANY}
    limit = asked["limit"]
    if isinstance(limit, int) and limit > record.images:
        asked["limit"] = None  # which left none out
    differs = (name for name in asked if name not in _PAPER or asked[name] != _PAPER[name])
    return "; ".join(_in_words(name, asked[name]) for name in differs)


def above_natural(measured: Mapping[str, float]) -> list[str]:
    """Name the attacks that leave more than natural accuracy: none of them tried the identity."""
    natural = measured.get("nat")
    return [name for name, value in measured.items() if natural is not None and value > natural]


def _in_words(name: str, value: Any) -> str:
    if name == "space":
        try:
            return Space.of(value).in_words()
        except UnknownFamilyError:  # of somebody's own, whose file nobody runs for it
            return f"poses of {value}"
        except ValueError:  # of a file that anybody may have written
            return "other poses"
    # Not formatted by: a record's own names are outside text.
    return _WORDS[name].format(value) if name in _WORDS else f"{name} {value}"
