"""Readers of what runs and evaluations leave: recipes, checkpoints, states, records, logs."""

from __future__ import annotations

import hashlib
import json
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from guard import Target
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from upright import record_files, records
from upright.evaluation import evaluate, state
from upright.models import build_network
from upright.objective import parse_objective
from upright.train import Recipe, RunDirectory, load_network
from upright.train import log as train_log
from upright.train.checkpoint import Checkpoint
from upright.train.network import model_tensors

__all__ = ["TARGETS", "example_record"]

_NETWORK = "convnet0.25"


def _recipe(data: bytes, _: Path) -> None:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return  # for the one who reads the file, as in the target "run"
    if not isinstance(values, dict):
        return  # likewise
    recipe = Recipe.from_json(values)
    assert Recipe.from_json(recipe.as_json()) == recipe, "not what was written"
    assert len(recipe.hash) == 12
    assert recipe.learning_rate_at(recipe.steps // 2) >= 0


def _run(data: bytes, folder: Path) -> None:
    (folder / "run.json").write_bytes(data)
    for name, content in _checkpoint_files().items():
        (folder / "checkpoints").mkdir(exist_ok=True)
        (folder / "checkpoints" / name).write_bytes(content)
    _load(folder)


def _weights(data: bytes, folder: Path) -> None:
    """A checkpoint whose digest was made to fit."""
    digest = hashlib.sha256(data + b"3 0.0").hexdigest()
    about = json.dumps({"step": 3, "seconds": 0.0, "sha256": digest})
    _lay_out(folder, data, about.encode())
    _load(folder)


def _digest(data: bytes, folder: Path) -> None:
    _lay_out(folder, _checkpoint_files()["00000003.safetensors"], data)
    _load(folder)


def _lay_out(folder: Path, weights: bytes, about: bytes) -> None:
    (folder / "checkpoints").mkdir()
    (folder / "run.json").write_bytes(_run_json())
    (folder / "checkpoints" / "00000003.safetensors").write_bytes(weights)
    (folder / "checkpoints" / "00000003.json").write_bytes(about)


def _load(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of checkpoints that are passed over
        load_network(folder)(torch.zeros(1, 3, 8, 8))


def _state(data: bytes, folder: Path) -> None:
    """A state as it is, and with a digest that was made to fit."""
    file = folder / "state"
    file.write_bytes(data)
    try:
        _continue(file)
    except ValueError:
        parts = _forged(data)
        if parts is None:
            raise
        file.write_bytes(parts)
        _continue(file)


def _forged(data: bytes) -> bytes | None:
    try:
        arrays = load(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    except (SafetensorError, ValueError, RecursionError, KeyError, TypeError):
        return None
    metadata.pop("sha256", None)
    return save(arrays, metadata | {"sha256": state._digest(metadata, arrays)})


def _continue(file: Path) -> None:
    evaluate(_brightness, _images(), attacks=["grid-3x1x1", "wo-2"], state=file)


def _records(data: bytes, folder: Path) -> None:
    (folder / "file").write_bytes(data)
    found = record_files.read(folder / "file")
    for record in found.records:
        assert record.key.seed == record.seed
    lines = data.removesuffix(b"\n").count(b"\n") + 1 if data not in (b"", b"\n") else 0
    assert len(found.records) + len(found.damaged) in (lines, max(lines, 1))


def _log(data: bytes, folder: Path) -> None:
    (folder / "log.jsonl").write_bytes(data)
    train_log._drop_lines_after(folder / "log.jsonl", 5)
    for line in (folder / "log.jsonl").read_bytes().splitlines():
        assert json.loads(line)["step"] <= 5


def _brightness(images: Tensor) -> Tensor:
    return torch.stack([9 * images.mean((1, 2, 3)), 4 - images.mean((1, 2, 3))], 1)


@cache
def _images() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(4, 3, 8, 8, generator=generator), torch.tensor([0, 1, 0, 1])


@cache
def _checkpoint_files() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        recipe = Recipe(
            objective=parse_objective("std"), data="glyphs", model=_NETWORK, steps=3, batch=4
        )
        run = RunDirectory.create(
            Path(folder), recipe, classes=("0", "1"), channels=3, resume=False, data_digest="00"
        )
        model = build_network(_NETWORK, classes=2, channels=3)
        run.save(Checkpoint(3, {k: v.detach() for k, v in model_tensors(model).items()}))
        return {file.name: file.read_bytes() for file in Path(folder, "checkpoints").iterdir()}


def _run_json(**changes: Any) -> bytes:
    recipe = Recipe(
        objective=parse_objective("std"), data="glyphs", model=_NETWORK, steps=3, batch=4
    ).as_json()
    recipe |= {key: value for key, value in changes.items() if key in recipe}
    content = {"recipe": recipe, "classes": ["0", "1"], "channels": 3, "data_digest": "00"}
    content |= {key: value for key, value in changes.items() if key in content}
    return json.dumps(content).encode()


_ODD_RUNS: tuple[dict[str, Any], ...] = (
    *({"model": "resnet99999998"}, {"model": "convnet99999"}, {"channels": 10**9}),
    *({"classes": "x" * 10**6}, {"classes": 5}, {"channels": -1}, {"channels": 1e999}),
    *({"drops": [1e-320] * 400}, {"steps": 10**400}, {"space": {"max_dx": 10**400}}),
)
_FIRST_SPACE = {"max_dx": 0.1, "max_dy": 0.1, "max_angle": 30, "unit": "image"}
_ODD_RECIPES: tuple[dict[str, Any], ...] = (
    *({"space": _FIRST_SPACE}, {"drops": []}, {"seed": -1}, {"max_shift": 2}),
    *({"objective": "KL(rob, Wo-10; λ=3)"}, {"learning_rate": 10**400}, {"batch": True}),
    *({"space": {"max_dx": "3"}}, {"space": [1]}, {"drops": [1e-320] * 400}, {"steps": 10**400}),
    *({"space": "zoom(0.9..1.1) blur(2px)"}, {"space": "zoom(0)"}, {"space": "x.py:wave(2)"}),
    *({"space": "wave(2px)"}, {"space": "shift(1e400px)"}, {"view": 24}, {"view": -1}),
)


def _run_seeds() -> list[bytes]:
    return [_run_json(), b"[" * 10**5, b"[]", b"{}", *(_run_json(**odd) for odd in _ODD_RUNS)]


def _recipe_seeds() -> list[bytes]:
    runs = (_run_json(), *(_run_json(**odd) for odd in _ODD_RECIPES))
    return [json.dumps(json.loads(run)["recipe"]).encode() for run in runs]


def _state_seeds() -> list[bytes]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state"
        _continue(file)
        whole = file.read_bytes()
        arrays = load(whole)
        size = int.from_bytes(whole[:8], "little")
        metadata = json.loads(whole[8 : 8 + size])["__metadata__"]
    fewer = {name: array for name, array in arrays.items() if name != "labels"}
    shorter = {name: array[:1] for name, array in arrays.items()}
    other = {name: array.float() for name, array in arrays.items()}
    changed = [{**metadata, name: text} for name in ("totals", "done", "checksum", "question")
               for text in ("{}", "[]", "-1", "9" * 5000, "1" * 20)]  # fmt: skip
    return [
        *(whole, whole[:-9], b"", save(fewer, metadata), save(shorter, metadata)),
        *(save(other, metadata), *(save(arrays, each) for each in changed)),
    ]


def _weights_seeds() -> list[bytes]:
    whole = _checkpoint_files()["00000003.safetensors"]
    tensors = load(whole)
    halved = {name: tensor.half() for name, tensor in tensors.items()}
    cut = {name: tensor[:1] if tensor.ndim else tensor for name, tensor in tensors.items()}
    return [whole, whole[:-9], b"", save(halved), save(cut), save({}), b"\xff" * 16]


def example_record() -> records.Record:
    """A record of nothing."""
    return records.Record(
        dataset="glyphs", method="std", model="convnet", seed=1, recipe={"a": [1]}, recipe_hash="x",
        evaluation={"limit": None}, measured={"nat": 0.5}, images=2,
        reported={"nat": records.Reported(mean=0.5, stderr=None, table="t")}, steps=3,
        train_seconds=1.0, evaluate_seconds=1.0, forward_passes=4, data_digest={"a": "b"},
        commit=None, versions={"a": "1"}, hardware="cpu", finished="2020-01-01T00:00:00+00:00",
        beside=2, trained_by=(records.Origin(commit=None, versions={"a": "1"}, hardware="cpu"),),
    )  # fmt: skip


def _record_seeds() -> list[bytes]:
    with TemporaryDirectory() as folder:
        record_files.append(Path(folder, "file"), example_record())
        line = Path(folder, "file").read_bytes()
    long = line.replace(b'"seed": 1', b'"seed": ' + b"9" * 5000)
    return [
        *(line, line * 2 + line[:30], line.replace(b"0.5", b"NaN"), line.replace(b"1.0", b"1e999")),
        *(line.replace(b"2020-01", b"2020-1"), long),
        *(b"[" * 10**5, line.replace(b'{"a": [1]}', b'{"a":' * 900 + b"1" + b"}" * 900), b"\xff\n"),
    ]


TARGETS = (
    Target("recipe", _recipe, _recipe_seeds),
    Target("run", _run, _run_seeds),
    Target("weights", _weights, _weights_seeds),
    Target("digest", _digest, lambda: [_checkpoint_files()["00000003.json"], b"{}", b"[" * 10**5]),
    Target("state", _state, _state_seeds),
    Target("records", _records, _record_seeds),
    Target("log", _log, lambda: [b'{"step": 2}\n{"step": 8}\n{"st', b'{"step": 1e999}\n', b"\xff"]),
)
