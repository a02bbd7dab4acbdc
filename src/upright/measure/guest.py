"""What is known of a model that was not trained here: anybody's network, file or function.

A record of such a guest has this in place of a recipe. So nothing that looks for runs can take it
for one: it fills no cell of the paper, and stands beside none of its numbers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from upright.checks import Model
from upright.evaluation import Oracle
from upright.identity import Identity, file_digest

__all__ = ["Guest", "weights_digest"]


@dataclass(frozen=True, kw_only=True)
class Guest:
    """A model by the name that tables have for it, from where it came, with which weights."""

    name: str
    source: str
    """As it was asked for, such as ``my_model.py:make``."""
    weights_digest: str | None
    """SHA-256 of a module's weights and buffers, or else of its file; None where it has neither."""

    @staticmethod
    def of(model: Model, source: str, *, name: str | None = None) -> Guest:
        """Look at a model that was loaded; without a name, it is called by its source."""
        if isinstance(model, Oracle):
            raise ValueError(
                f"{source} is an oracle, which reads the attack's own pose and is no defence; "
                "`upright oracle` measures and records it as one"
            )
        digest = weights_digest(model, source)
        return Guest(name=name or source, source=source, weights_digest=digest)

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for all fields."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def told(self) -> dict[str, Any]:
        """Give the fields of a record that tell who was evaluated."""
        return {
            "method": self.name,
            "model": self.source,
            "seed": 0,
            "recipe": asdict(self),
            "recipe_hash": self.hash,
            "steps": None,
            "train_seconds": None,
        }


def weights_digest(model: Model, source: str) -> str | None:
    """Digest a module's weights and buffers; or else the file that it, or its code, came from."""
    known = Identity.of(model)
    if known.weights is not None or known.files is not None:
        return known.weights or known.files
    # As in my_model.py:make.
    files = [path for part in source.split(":") if (path := Path(part).expanduser()).is_file()]
    return file_digest(files[0]) if files else None
