"""Readers of the zoo: a card, and packed weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from guard import Target
from results import example_record
from safetensors.torch import load, save

from upright.models import build_network
from upright.objective import parse_objective
from upright.terminal import printable
from upright.train import Recipe
from upright.zoo import Card, Entry, pack, to_markdown
from upright.zoo.card import write_card

__all__ = ["TARGETS"]

_NETWORK = "convnet0.25"


def _card(data: bytes, folder: Path) -> None:
    entry = _lay_out(folder, data, _weights())
    printable(to_markdown(entry.card())).encode()
    entry.load()


def _packed(data: bytes, folder: Path) -> None:
    """Weights whose digest was made to fit."""
    digest = hashlib.sha256(data).hexdigest()
    _lay_out(folder, write_card(replace(_example(), weights_digest=digest)), data).load()


def _lay_out(folder: Path, card: bytes, weights: bytes) -> Entry:
    entry = Entry(folder, "a/b")
    entry.card_file.parent.mkdir()
    entry.card_file.write_bytes(card)
    entry.weights_file.write_bytes(weights)
    return entry


@cache
def _weights() -> bytes:
    return pack(build_network(_NETWORK, classes=2, channels=3))


def _example() -> Card:
    recipe = Recipe(
        objective=parse_objective("KL(rob, Wo-2)"), data="glyphs", model=_NETWORK, steps=3, batch=4
    )
    evaluation = {
        "space": "shift(3px) rotate(30)",
        **{"split": "test", "limit": 2, "fill": "black", "interpolation": "bilinear"},
        **{"precision": "float32", "weights": "bfloat16"},
    }
    return Card(
        name="a/b",
        classes=("0", "1"),
        image_shape=(3, 8, 8),
        train_digest="00",
        weights_digest=hashlib.sha256(_weights()).hexdigest(),
        records=(replace(example_record(), recipe=recipe.as_json(), evaluation=evaluation),),
        note="made up",
    )


def _changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(write_card(_example())) | changes).encode()


def _card_seeds() -> list[bytes]:
    whole = write_card(_example())
    odd: tuple[dict[str, Any], ...] = (
        *({"classes": ["x"] * 10**6}, {"classes": 5}, {"classes": [1, 2]}, {"note": None}),
        *({"image_shape": [10**9, 8, 8]}, {"image_shape": [3]}, {"image_shape": [3, -1, 1e999]}),
        *({"records": []}, {"records": [{}]}, {"version": 2}, {"weights_digest": "00"}),
        *({"classes": ["\ud800", "\x1b[2J"]}, {"classes": "ab"}),
    )
    return [
        *(whole, whole[:-9], b"", b"[]", b"{}", b"[" * 10**5, b"\xff"),
        *(whole.replace(b"convnet0.25", name) for name in (b"resnet99999998", b"x\\ny", b"stn10")),
        *(whole.replace(b"KL(rob, Wo-2)", b"KL(rob"), whole.replace(b"shift(", b"(")),
        *(whole.replace(b"0.5", b"NaN"), whole.replace(b'"shift(3px) rotate(30)"', b"7")),
        *(_changed(**each) for each in odd),
    ]


def _packed_seeds() -> list[bytes]:
    whole = _weights()
    tensors = load(whole)
    cut = {name: tensor[:1] if tensor.ndim else tensor for name, tensor in tensors.items()}
    doubled = {name: tensor.double() for name, tensor in tensors.items()}
    return [whole, whole[:-9], b"", save(cut), save(doubled), save({}), b"\xff" * 16]


TARGETS = (
    Target("card", _card, _card_seeds),
    Target("packed", _packed, _packed_seeds),
)
