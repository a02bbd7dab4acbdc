"""`facts.json`, which lies beside the arrays of a stored set: where they came from, what they are.

    {"name": ..., "origin": ...,
     "variant": {"train": ..., "test": ...},   official, rebuilt, or by MD5
     "content": {"train": ..., "test": ...},   digests that do not depend on the order
     "sha256": {"train_images": ..., ...},     digests of the arrays, in their order
     "noted": {"train": ..., "test": ...}}     sizes, times and a sample, to be seen at each use

Files of earlier versions have neither variant nor content: all they can hold is the usual order.
Nor have they notes, which are taken when the set is used next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from upright.data.known import SPLITS, KnownSet
from upright.data.notes import Note
from upright.data.raw import array_names
from upright.data.recognise import BY_MD5, Recognised, by_content, by_digests
from upright.data.registry import Split
from upright.files import write_whole

__all__ = ["FACTS", "Facts", "read_facts", "write_facts"]

FACTS = "facts.json"

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Facts:
    """Where a stored set came from, and which variant each split is; nothing where unknown."""

    origin: str
    recognised: Mapping[Split, Recognised]
    notes: Mapping[Split, Note] = field(default_factory=dict)
    """How the files of each split were when all of it was checked last."""


def write_facts(folder: Path, known: KnownSet, facts: Facts) -> None:
    """Write them beside the arrays, whole or not at all."""
    each = facts.recognised.items()
    content = {
        "name": known.name,
        "origin": facts.origin,
        "variant": {split: found.variant for split, found in each},
        "content": {split: found.content for split, found in each},
        "sha256": {name: digest for _, one in each for name, digest in one.digests.items()},
        "noted": {split: note.to_json() for split, note in facts.notes.items()},
    }
    write_whole(folder / FACTS, json.dumps(content, indent=1).encode())


def read_facts(folder: Path, known: KnownSet) -> Facts:
    """Read them again; what is damaged or missing is unknown."""
    try:
        content = json.loads((folder / FACTS).read_bytes())
        origin = str(content["origin"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return Facts("unknown", {})
    recognised = _each(lambda split: _recognised(known, split, content))
    # Half of a set is no set: what is missing or damaged in one split makes the other doubtful.
    whole = recognised if len(recognised) == len(SPLITS) else {}
    return Facts(origin, whole, _each(lambda split: Note.from_json(content["noted"][split])))


def _each(read: Callable[[Split], _Read]) -> dict[Split, _Read]:
    """Read something of each split; one of which it cannot be read is left out."""
    found: dict[Split, _Read] = {}
    for split in SPLITS:
        with suppress(LookupError, TypeError, AttributeError):
            found[split] = read(split)
    return found


def _recognised(known: KnownSet, split: Split, content: Any) -> Recognised:
    digests = {name: str(content["sha256"][name]) for name in array_names(split)}
    usual = by_digests(known, split, digests)
    if usual is not None:
        return usual
    variant, sum_ = str(content["variant"][split]), str(content["content"][split])
    found = by_content(known, split, sum_, digests)
    if found is None and variant != BY_MD5:
        raise LookupError(f"no variant of {known.name} is called {variant!r}")
    return found or Recognised(known.name, BY_MD5, sum_, digests, usual=None)
