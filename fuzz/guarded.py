"""Readers of what digests guard: an altered file is refused, or says what the whole one said."""

from __future__ import annotations

import sys
import tarfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from guard import Target
from results import _brightness, _checkpoint_files, _images, _lay_out
from savedfiles import _files as _saved_files
from zoofiles import _example, _weights
from zoofiles import _lay_out as _lay_out_entry

from upright.data import store
from upright.data.fetch import fetch
from upright.data.known import CIFAR10
from upright.evaluation import evaluate
from upright.report.saved import read_saved
from upright.train import RunDirectory
from upright.zoo.card import write_card

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from tiny_sets import Tiny, tiny, write_pickles

__all__ = ["TARGETS", "AlteredError"]

Understood = object
"""What a reader made of a file, to be compared."""


class AlteredError(Exception):
    """A file was altered, and accepted as something else than it was."""


def _guarded(
    name: str, read: Callable[[bytes, Path], Understood], whole: Callable[[], bytes]
) -> Target:
    """A reader of a file as it was written; only the same answer as to that one is right."""

    @cache
    def expected() -> Understood:
        with TemporaryDirectory() as folder:
            return read(whole(), Path(folder))

    def compare(data: bytes, folder: Path) -> None:
        if read(data, folder) != expected():
            raise AlteredError("accepted as something else than it was")

    def seeds() -> list[bytes]:
        expected()  # before anything is guarded: it needs a folder of its own
        return [whole(), whole()[:-9], whole() + b"\0", b""]

    return Target(name, compare, seeds)


def _checkpoint(weights: bytes, about: bytes, folder: Path) -> Understood:
    _lay_out(folder, weights, about)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of checkpoints that are passed over
        found = RunDirectory.open(folder).load()
    if found is None:
        raise ValueError("there is no checkpoint")
    return found.step, {name: tensor.tolist() for name, tensor in found.tensors.items()}


def _kept_weights(data: bytes, folder: Path) -> Understood:
    return _checkpoint(data, _checkpoint_files()["00000003.json"], folder)


def _kept_digest(data: bytes, folder: Path) -> Understood:
    return _checkpoint(_checkpoint_files()["00000003.safetensors"], data, folder)


def _kept_state(data: bytes, folder: Path) -> Understood:
    (folder / "state").write_bytes(data)
    asked = evaluate(_brightness, _images(), attacks=["grid-3x1x1", "wo-2"], state=folder / "state")
    answers = {name: found.correct.tolist() for name, found in asked.attacks.items()}
    return asked.natural_correct.tolist(), answers


@cache
def _whole_state() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state"
        evaluate(_brightness, _images(), attacks=["grid-3x1x1", "wo-2"], state=file)
        return file.read_bytes()


def _kept_packed(data: bytes, folder: Path) -> Understood:
    model = _lay_out_entry(folder, write_card(_example()), data).load()
    with torch.no_grad():
        return model(_images()[0]).tolist()


def _kept_saved(data: bytes, folder: Path) -> Understood:
    """Answers of a model, beside the images that it was asked about."""
    (folder / "shown.safetensors").write_bytes(_saved_files()[0])
    (folder / "model.safetensors").write_bytes(data)
    (model,) = read_saved(folder).models
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(model).items()
    }


@cache
def _tiny() -> Tiny:
    return tiny(CIFAR10)


@cache
def _archive() -> bytes:
    with TemporaryDirectory() as name:
        batches = Path(name, "cifar-10-batches-py")
        batches.mkdir()
        write_pickles(_tiny(), batches)
        with tarfile.open(Path(name, "x.tar.gz"), "w:gz") as tar:
            tar.add(batches, arcname=batches.name)
        return Path(name, "x.tar.gz").read_bytes()


def _kept_archive(data: bytes, folder: Path) -> Understood:
    (folder / "cifar-10-python.tar.gz").write_bytes(data)
    fetch(_tiny().known, source=[folder / "cifar-10-python.tar.gz"], root=folder / "root")
    return _stored(folder / "root")


def _kept_set(data: bytes, folder: Path) -> Understood:
    """A set in the cache, of which one file was altered since it was fetched."""
    for name, content in _stored_files().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "cifar10" / "test_images.npy").write_bytes(data)
    checked = store.check(_tiny().known, root=folder)
    if not checked.sound:
        raise ValueError("damaged")
    return _stored(folder)


@cache
def _stored_files() -> dict[str, bytes]:
    with TemporaryDirectory() as name:
        (Path(name) / "x.tar.gz").write_bytes(_archive())
        root = Path(name) / "root"
        fetch(_tiny().known, source=[Path(name) / "x.tar.gz"], root=root)
        files = [file for file in root.rglob("*") if file.is_file()]
        return {str(file.relative_to(root)): file.read_bytes() for file in files}


def _stored(root: Path) -> Understood:
    found = [store.open_split(_tiny().known, split, root=root) for split in ("train", "test")]
    return [(each.images.tobytes(), each.labels.tolist()) for each in found]


TARGETS = (
    _guarded("kept-weights", _kept_weights, lambda: _checkpoint_files()["00000003.safetensors"]),
    _guarded("kept-digest", _kept_digest, lambda: _checkpoint_files()["00000003.json"]),
    _guarded("kept-state", _kept_state, _whole_state),
    _guarded("kept-saved", _kept_saved, lambda: _saved_files()[1]),
    _guarded("kept-packed", _kept_packed, _weights),
    _guarded("kept-archive", _kept_archive, _archive),
    _guarded("kept-set", _kept_set, lambda: _stored_files()["cifar10/test_images.npy"]),
)
