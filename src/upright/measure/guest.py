"""What is known of a model that was not trained here: anybody's network, file or function.

A record of such a guest has this in place of a recipe. So nothing that looks for runs can take it
for one: it fills no cell of the paper, and stands beside none of its numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from upright.checks import Model
from upright.evaluation.oracle import oracle_in
from upright.identity import FromFile, Identity, file_digest
from upright.later import later_defaults, without_defaults
from upright.sources.preprocess import AS_IT_IS, Preprocess

__all__ = ["Guest", "guest_digest"]


@dataclass(frozen=True, kw_only=True)
class Guest:
    """A model by the name that tables have for it, from where it came, with which weights."""

    name: str
    source: str
    """As it was asked for, such as ``my_model.py:make``."""
    weights_digest: str | None
    """SHA-256 of a module's weights and buffers, or else of its file; None where it has neither."""
    preprocess: dict[str, Any] | None = None
    """What was told of how it takes images and answers, see ``Preprocess``; None for what its
    source says."""

    @staticmethod
    def of(
        model: Model, source: str, *, name: str | None = None, told: Preprocess = AS_IT_IS
    ) -> Guest:
        """Look at a model that was loaded; without a name, it is called by its source.

        The model is as its source gives it; ``told`` is what else is done around it.
        """
        if oracle_in(model) is not None:
            raise ValueError(
                f"{source} is an oracle, which reads the attack's own pose and is no defence; "
                "`upright oracle` measures and records it as one"
            )
        digest = guest_digest(model, source)
        return Guest(
            name=name or source,
            source=source,
            weights_digest=digest,
            preprocess=told.as_json() or None,
        )

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for all fields."""
        text = json.dumps(self._fields, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def _fields(self) -> dict[str, Any]:
        return without_defaults(asdict(self), _LATER)

    @property
    def is_oracle(self) -> bool:
        """Whether it reads the attack's own pose: one that does is no guest."""
        return False

    @property
    def packed(self) -> bool:
        """Whether its weights were rounded after training, as far as anybody knows."""
        return False

    def told(self) -> dict[str, Any]:
        """Give the fields of a record that tell who was evaluated."""
        return {
            "method": self.name,
            "model": self.source,
            "seed": 0,
            "recipe": self._fields,
            "recipe_hash": self.hash,
            "steps": None,
            "train_seconds": None,
        }


_LATER = later_defaults(Guest, "preprocess")


def guest_digest(model: Model, source: str) -> str | None:
    """Digest a module's weights and buffers; or else the file that it, or its code, came from."""
    known = Identity.of(model)
    if known.weights is not None and known.files is not None and _hides_weights(model):
        # What stands around a file has a state of its own, which is not all.
        return hashlib.sha256(f"{known.weights} {known.files}".encode()).hexdigest()
    if known.weights is not None or known.files is not None:
        return known.weights or known.files
    # As in my_model.py:make, or in mean:my_model.py:make,other.py:make.
    parts = re.split(r"[:,]", source)
    files = [path for part in parts if (path := Path(part).expanduser()).is_file()]
    return file_digest(*files) if files else None


def _hides_weights(model: Model) -> bool:
    """Whether a file in it has weights that are not among those of the module."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    return any(isinstance(part, FromFile) and not part.state_dict() for part in parts)
