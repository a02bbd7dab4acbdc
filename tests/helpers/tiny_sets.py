"""Small sets in the official formats, written from the descriptions of these formats alone."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.io
from PIL import Image

from upright.data.gather import Gathered, read_known
from upright.data.known import KnownSet, Variant
from upright.data.raw import RawSplit
from upright.data.registry import Split

Writer = Callable[["Tiny", Path], None]
COUNTS = {"train": 10, "test": 4}


@dataclass(frozen=True, eq=False)
class Tiny:
    """A known set of few images; `arrays` are N x 32 x 32 x 3 images and labels, as in an .npz."""

    known: KnownSet
    arrays: dict[str, np.ndarray]

    def split(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self.arrays[f"{name}_images"], self.arrays[f"{name}_labels"]


def tiny(base: KnownSet, *, seed: int = 0) -> Tiny:
    rng = np.random.default_rng(seed)
    arrays = {}
    for split, count in COUNTS.items():
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        arrays[f"{split}_labels"] = rng.integers(0, len(base.classes), count)
        arrays[f"{split}_labels"][:2] = 0, len(base.classes) - 1
    variant = variant_of(base.variants[0].name, arrays)
    return Tiny(replace(base, counts=COUNTS, variants=(variant,), md5s={}), arrays)


def variant_of(name: Literal["official", "rebuilt"], arrays: dict[str, np.ndarray]) -> Variant:
    """The facts of N x 32 x 32 x 3 images and labels that are to be known."""
    content = {split: content_of(arrays, split) for split in COUNTS}
    digests = {
        name: hashlib.sha256(array.astype(np.uint8).tobytes()).hexdigest()
        for name, array in arrays.items()
    }
    return Variant(name, content, digests)


def content_of(arrays: dict[str, np.ndarray], split: str) -> str:
    """SHA-256 of the sorted SHA-256 sums of each image's bytes and label, one after another."""
    pairs = zip(arrays[f"{split}_images"], arrays[f"{split}_labels"], strict=True)
    sums = [hashlib.sha256(image.tobytes() + bytes([int(label)])) for image, label in pairs]
    return hashlib.sha256(b"".join(sorted(each.digest() for each in sums))).hexdigest()


def shuffled(data: Tiny, *, seed: int = 1) -> Tiny:
    """The same images and labels in another order; what is known of the set stays."""
    rng, arrays = np.random.default_rng(seed), {}
    for split, count in COUNTS.items():
        order = rng.permutation(count)
        assert (order != np.arange(count)).any()
        images, labels = data.split(split)
        arrays |= {f"{split}_images": images[order], f"{split}_labels": labels[order]}
    return replace(data, arrays=arrays)


def gather(data: Tiny, *paths: Path, scratch: Path | None = None) -> Gathered:
    return read_known(data.known, paths, scratch=scratch or Path("unused"))


def read(data: Tiny, *paths: Path, scratch: Path | None = None) -> Mapping[Split, RawSplit]:
    return gather(data, *paths, scratch=scratch).splits


def planes(images: np.ndarray) -> np.ndarray:
    """N x 3072: all red, then all green, then all blue values of each image."""
    return np.stack([np.concatenate([image[..., c].ravel() for c in range(3)]) for image in images])


def cifar10_batches(data: Tiny) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    images, labels = data.split("train")
    for k in range(5):
        yield f"data_batch_{k + 1}", images[2 * k : 2 * k + 2], labels[2 * k : 2 * k + 2]
    yield ("test_batch", *data.split("test"))


def cifar100_batches(data: Tiny) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for split in ("train", "test"):
        yield (split, *data.split(split))


def write_pickles(data: Tiny, folder: Path) -> None:
    for name, images, labels in cifar10_batches(data):
        batch = {b"data": planes(images), b"labels": [int(label) for label in labels]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def write_python2_pickles(data: Tiny, folder: Path) -> None:
    for name, images, labels in cifar10_batches(data):
        (folder / name).write_bytes(python2_pickle(planes(images), "labels", labels))


def write_fine_pickles(data: Tiny, folder: Path) -> None:
    for name, images, labels in cifar100_batches(data):
        (folder / name).write_bytes(python2_pickle(planes(images), "fine_labels", labels))


def python2_pickle(data: np.ndarray, key: str, labels: np.ndarray) -> bytes:
    """{"data": data, key: labels} as Python 2 and numpy 1 pickle it: byte strings, old names."""
    rows, columns = data.shape
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + b"(K\x01"
        + b"J" + struct.pack("<i", rows) + b"J" + struct.pack("<i", columns) + b"\x86"
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T" + struct.pack("<i", data.size) + data.tobytes() + b"tb"
    )  # fmt: skip
    numbers = b"](" + b"".join(b"K" + bytes([int(label)]) for label in labels) + b"e"
    name = b"U" + bytes([len(key)]) + key.encode()
    return b"\x80\x02}(U\x04data" + array + name + numbers + b"u."


def write_binary(data: Tiny, folder: Path) -> None:
    for name, images, labels in cifar10_batches(data):
        rows = zip(labels, planes(images), strict=True)
        content = b"".join(bytes([int(label)]) + row.tobytes() for label, row in rows)
        (folder / f"{name}.bin").write_bytes(content)


def write_coarse_fine_binary(data: Tiny, folder: Path) -> None:
    for name, images, labels in cifar100_batches(data):
        rows = zip(labels, planes(images), strict=True)
        content = b"".join(bytes([19, int(label)]) + row.tobytes() for label, row in rows)
        (folder / f"{name}.bin").write_bytes(content)


def write_mat(data: Tiny, folder: Path) -> None:
    for split in ("train", "test"):
        images, labels = data.split(split)
        digits = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        content = {"X": np.moveaxis(images, 0, 3), "y": digits}
        scipy.io.savemat(folder / f"{split}_32x32.mat", content, do_compression=True)


def write_strips(data: Tiny, folder: Path) -> None:
    for name, images, _ in cifar10_batches(data):
        strip = np.concatenate([image.reshape(1, 1024, 3) for image in images])
        Image.fromarray(strip).save(folder / f"{name}.png")
    for split in ("train", "test"):
        labels = [int(label) for label in data.split(split)[1]]
        (folder / f"{split}_lables.json").write_text(json.dumps(labels))


def write_mosaics(data: Tiny, folder: Path) -> None:
    for split in ("train", "test"):
        images, labels = data.split(split)
        save_mosaic(folder / f"{split}-0.webp", images)
        np.save(folder / f"{split}-labels.npy", labels.astype(np.uint8))


def save_mosaic(path: Path, images: np.ndarray) -> None:
    rows = -(-len(images) // 100)
    picture = np.zeros((32 * rows, 3200, 3), np.uint8)
    for n, image in enumerate(images):
        top, left = 32 * (n // 100), 32 * (n % 100)
        picture[top : top + 32, left : left + 32] = image
    Image.fromarray(picture).save(path, lossless=True, quality=0, method=0)
