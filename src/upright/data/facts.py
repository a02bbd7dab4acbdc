"""`facts.json`, which lies beside the arrays of a stored set: where they came from, what they are.

    {"name": ..., "origin": ...,
     "variant": {"train": ..., "test": ...},   official, rebuilt, or by MD5
     "content": {"train": ..., "test": ...},   digests that do not depend on the order
     "sha256": {"train_images": ..., ...}}     digests of the arrays, in their order

Files of earlier versions have neither variant nor content: all they can hold is the usual order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upright.data.known import SPLITS, KnownSet
from upright.data.raw import array_names
from upright.data.recognise import BY_MD5, Identity, by_content, by_digests
from upright.data.registry import Split
from upright.files import write_whole

__all__ = ["FACTS", "Facts", "read_facts", "write_facts"]

FACTS = "facts.json"


@dataclass(frozen=True)
class Facts:
    """Where a stored set came from, and which variant each split is; nothing where unknown."""

    origin: str
    identities: Mapping[Split, Identity]


def write_facts(folder: Path, known: KnownSet, facts: Facts) -> None:
    """Write them beside the arrays, whole or not at all."""
    each = facts.identities.items()
    content = {
        "name": known.name,
        "origin": facts.origin,
        "variant": {split: identity.variant for split, identity in each},
        "content": {split: identity.content for split, identity in each},
        "sha256": {name: digest for _, one in each for name, digest in one.digests.items()},
    }
    write_whole(folder / FACTS, json.dumps(content, indent=1).encode())


def read_facts(folder: Path, known: KnownSet) -> Facts:
    """Read them again; what is damaged or missing is unknown."""
    try:
        content = json.loads((folder / FACTS).read_bytes())
        origin = str(content["origin"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return Facts("unknown", {})
    try:
        return Facts(origin, {split: _identity(known, split, content) for split in SPLITS})
    except (LookupError, TypeError):
        return Facts(origin, {})


def _identity(known: KnownSet, split: Split, content: Any) -> Identity:
    digests = {name: str(content["sha256"][name]) for name in array_names(split)}
    usual = by_digests(known, split, digests)
    if usual is not None:
        return usual
    variant, sum_ = str(content["variant"][split]), str(content["content"][split])
    found = by_content(known, split, sum_, digests)
    if found is None and variant != BY_MD5:
        raise LookupError(f"no variant of {known.name} is called {variant!r}")
    return found or Identity(known.name, BY_MD5, sum_, digests, usual=None)
