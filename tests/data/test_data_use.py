"""Each use of a stored set is checked, cheaply where its files are as they were."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from test_data_store import store

from tiny_sets import Tiny, shuffled, tiny
from upright.data import load_data, recognise
from upright.data import store as cache
from upright.data.known import CIFAR10, KNOWN, SVHN
from upright.data.store import check, open_split


@pytest.fixture
def stored(tmp_path: Path) -> Tiny:
    data = tiny(CIFAR10)
    store(data, tmp_path)
    return data


@pytest.fixture
def whole_checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits whose whole content was digested."""
    seen: list[str] = []
    digests = recognise.split_digests

    def count(split, raw) -> dict[str, str]:
        seen.append(split)
        return digests(split, raw)

    monkeypatch.setattr(recognise, "split_digests", count)
    return seen


def rewrite(folder: Path, name: str, array: np.ndarray, *, unnoticed: bool = False) -> None:
    """Put another array into the place of one; ``unnoticed`` with the time of the old file."""
    path = folder / f"{name}.npy"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    np.save(path, array)
    if unnoticed:
        os.utime(path, ns=times)


def forget_notes(folder: Path) -> None:
    facts = json.loads((folder / "facts.json").read_text())
    del facts["noted"]
    (folder / "facts.json").write_text(json.dumps(facts))


def test_noise_is_not_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was found: a folder of the right name with 20 images and any facts."""
    monkeypatch.setenv("UPRIGHT_DATA", str(tmp_path))
    folder, rng = tmp_path / "cifar10", np.random.default_rng(0)
    folder.mkdir()
    (folder / "facts.json").write_text('{"origin": "x"}')
    for split in ("train", "test"):
        images = rng.integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)
        np.save(folder / f"{split}_images.npy", images)
        np.save(folder / f"{split}_labels.npy", rng.integers(0, 10, 20))
    with pytest.raises(ValueError, match=r"test has 20 images.*upright data fetch cifar10`$"):
        load_data("cifar10", limit=1)


def test_noise_of_the_right_count_is_not_cifar10_either(stored: Tiny, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    rewrite(tmp_path / "cifar10", "test_images", noise)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"damaged \(test_images are not those of cifar10"):
            open_split(stored.known, "test", root=tmp_path)
    forget_notes(tmp_path / "cifar10")
    with pytest.raises(ValueError, match="damaged"):
        open_split(stored.known, "test", root=tmp_path)
    open_split(stored.known, "train", root=tmp_path)


@pytest.mark.parametrize("name", ["test_images", "test_labels"])
def test_rows_of_the_sample_are_seen_though_size_and_time_are_the_same(
    stored: Tiny, name: str, tmp_path: Path
) -> None:
    array = np.load(tmp_path / "cifar10" / f"{name}.npy")
    array[0] = 9 - array[0] if array.ndim == 1 else ~array[0]
    rewrite(tmp_path / "cifar10", name, array, unnoticed=True)
    with pytest.raises(ValueError, match="damaged"):
        open_split(stored.known, "test", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("test_images", np.zeros((4, 3, 32, 32), np.float32)),
        ("test_images", np.zeros(4, np.uint8)),
        ("test_labels", np.zeros(4, np.float64)),
        ("test_labels", np.zeros((4, 2), np.int64)),
        ("test_labels", np.zeros((), np.int64)),
        ("test_labels", np.full(4, 10)),
    ],
)
def test_other_kinds_shapes_and_labels_are_named(
    stored: Tiny, name: str, array: np.ndarray, tmp_path: Path
) -> None:
    rewrite(tmp_path / "cifar10", name, array)
    with pytest.raises(ValueError, match=rf"damaged \({name} .*upright data fetch cifar10`$"):
        open_split(stored.known, "test", root=tmp_path)
    assert not check(stored.known, root=tmp_path).sound


def test_an_archive_in_the_place_of_an_array_is_named(stored: Tiny, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "cifar10" / "test_images.npy", "w") as file:
        file.writestr("x.npy", b"")
    with pytest.raises(ValueError, match=r"test_images\.npy is damaged"):
        open_split(stored.known, "test", root=tmp_path)
    assert not check(stored.known, root=tmp_path).sound


def test_what_is_as_it_was_noted_is_not_digested_whole(
    stored: Tiny, tmp_path: Path, whole_checks: list[str]
) -> None:
    for _ in range(2):
        open_split(stored.known, "test", root=tmp_path)
    assert whole_checks == []
    assert check(stored.known, root=tmp_path).sound
    assert whole_checks == ["train", "test"]


@pytest.mark.parametrize("base", [CIFAR10, SVHN])
def test_a_set_stored_by_an_earlier_version_is_digested_once(
    base, tmp_path: Path, whole_checks: list[str]
) -> None:
    data = shuffled(tiny(base))
    store(data, tmp_path)
    forget_notes(tmp_path / base.name)
    whole_checks.clear()
    before = cache.installed(root=tmp_path)
    for _ in range(3):
        open_split(data.known, "test", root=tmp_path)
    assert whole_checks == ["test"]
    after = cache.installed(root=tmp_path)
    assert [each.variant for each in after] == [each.variant for each in before]


def test_a_copy_is_digested_once(stored: Tiny, tmp_path: Path, whole_checks: list[str]) -> None:
    shutil.copytree(tmp_path / "cifar10", tmp_path / "copy" / "cifar10", copy_function=shutil.copy)
    for file in (tmp_path / "copy" / "cifar10").glob("*.npy"):
        os.utime(file, ns=(0, 0))
    for _ in range(2):
        open_split(stored.known, "test", root=tmp_path / "copy")
    assert whole_checks == ["test"]
    assert check(stored.known, root=tmp_path / "copy").sound
    open_split(stored.known, "train", root=tmp_path / "copy")
    assert whole_checks == ["test", "train", "test"]


def test_a_set_that_may_only_be_read_is_used_all_the_same(
    stored: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    forget_notes(tmp_path / "cifar10")
    monkeypatch.setattr(cache, "write_facts", refuse)
    assert len(open_split(stored.known, "test", root=tmp_path).labels) == 4


def test_damaged_notes_are_no_notes(stored: Tiny, tmp_path: Path, whole_checks: list[str]) -> None:
    path = tmp_path / "cifar10" / "facts.json"
    facts = json.loads(path.read_text())
    for damage in (3, [], {"test": 3}, {"test": {"files": []}}, {"test": {"files": {"a": [1]}}}):
        path.write_text(json.dumps(facts | {"noted": damage}))
        open_split(stored.known, "test", root=tmp_path)
    assert whole_checks == ["test"] * 5


def test_known_sets_are_looked_up_when_they_are_read(
    stored: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPRIGHT_DATA", str(tmp_path))
    monkeypatch.setitem(KNOWN, "cifar10", stored.known)
    assert len(load_data("cifar10", split="train")) == 10
