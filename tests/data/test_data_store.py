"""The cache of data sets: written whole, mapped on reading, checked by digest."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tiny_sets import Tiny, tiny
from upright.data import facts, load_data
from upright.data.facts import Facts
from upright.data.known import CIFAR10, KNOWN, SVHN
from upright.data.raw import RawSplit
from upright.data.recognise import recognise
from upright.data.store import cache_folder, check, installed, is_installed, open_split, save


def splits(data: Tiny) -> dict[str, RawSplit]:
    return {
        split: RawSplit(
            np.ascontiguousarray(data.split(split)[0].transpose(0, 3, 1, 2)), data.split(split)[1]
        )
        for split in ("train", "test")
    }


def store(data: Tiny, root: Path, *, origin: str = "a test") -> None:
    recognised = {split: recognise(data.known, split, raw) for split, raw in splits(data).items()}
    save(data.known, splits(data), Facts(origin, recognised), root=root)


@pytest.fixture
def stored(tmp_path: Path) -> Tiny:
    data = tiny(SVHN)
    store(data, tmp_path)
    return data


def test_what_is_saved_is_mapped_back_bit_for_bit(stored: Tiny, tmp_path: Path) -> None:
    for split, expected in splits(stored).items():
        found = open_split(stored.known, split, root=tmp_path)
        assert isinstance(found.images, np.memmap)
        np.testing.assert_array_equal(found.images, expected.images)
        np.testing.assert_array_equal(found.labels, expected.labels)


def test_writing_to_the_arrays_never_reaches_the_files(stored: Tiny, tmp_path: Path) -> None:
    pixels = torch.from_numpy(open_split(stored.known, "test", root=tmp_path).images)
    pixels.zero_()
    assert check(stored.known, root=tmp_path).sound


def test_the_facts_lie_beside_the_arrays(stored: Tiny, tmp_path: Path) -> None:
    written = json.loads((tmp_path / "svhn" / "facts.json").read_text())
    assert written.pop("noted").keys() == {"train", "test"}
    (variant,) = stored.known.variants
    assert written == {
        "name": "svhn",
        "origin": "a test",
        "variant": {"train": "rebuilt", "test": "rebuilt"},
        "content": variant.content,
        "sha256": variant.digests,
    }
    assert {path.name for path in tmp_path.iterdir()} == {"svhn"}


@pytest.mark.parametrize("part", ["images", "labels"])
def test_check_finds_one_altered_bit(stored: Tiny, tmp_path: Path, part: str) -> None:
    path = tmp_path / "svhn" / f"test_{part}.npy"
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    found = check(stored.known, root=tmp_path)
    assert not found.sound
    assert found.faults == (f"test_{part} are not those of svhn",)


@pytest.mark.parametrize("keep", [0, 50, 5_000])
def test_a_truncated_array_is_named_with_the_command(
    stored: Tiny, tmp_path: Path, keep: int
) -> None:
    path = tmp_path / "svhn" / "train_images.npy"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"train_images\.npy is damaged .*upright data fetch svhn"):
        open_split(stored.known, "train", root=tmp_path)
    (fault,) = check(stored.known, root=tmp_path).faults
    assert str(path) in fault


def test_a_missing_array_is_named(stored: Tiny, tmp_path: Path) -> None:
    (tmp_path / "svhn" / "test_labels.npy").unlink()
    (fault,) = check(stored.known, root=tmp_path).faults
    assert "test_labels.npy" in fault


def test_a_set_that_is_not_there_names_the_command_in_one_line(tmp_path: Path) -> None:
    for ask in (
        lambda: open_split(CIFAR10, "test", root=tmp_path),
        lambda: check(CIFAR10, root=tmp_path),
    ):
        with pytest.raises(ValueError, match="run `upright data fetch cifar10`") as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_a_save_that_breaks_off_leaves_the_old_set_and_nothing_else(
    stored: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(facts, "write_whole", full)
    with pytest.raises(OSError, match="no space"):
        store(tiny(SVHN, seed=9), tmp_path, origin="again")
    assert [path.name for path in tmp_path.iterdir()] == ["svhn"]
    assert check(stored.known, root=tmp_path).sound


def test_a_save_takes_the_place_of_what_was_there(stored: Tiny, tmp_path: Path) -> None:
    (tmp_path / "svhn" / "test_images.npy").write_bytes(b"")
    store(stored, tmp_path, origin="again")
    assert check(stored.known, root=tmp_path).sound
    assert [path.name for path in tmp_path.iterdir()] == ["svhn"]


def test_the_list_has_every_known_set_and_says_which_are_there(
    stored: Tiny, tmp_path: Path
) -> None:
    found = {entry.name: entry for entry in installed(root=tmp_path)}
    assert found.keys() == KNOWN.keys()
    assert [name for name, entry in found.items() if entry.installed] == ["svhn"]
    on_disk = sum(path.stat().st_size for path in (tmp_path / "svhn").iterdir())
    assert (found["svhn"].origin, found["svhn"].size_bytes) == ("a test", on_disk)
    assert (found["cifar10"].origin, found["cifar10"].size_bytes) == (None, 0)
    assert is_installed(stored.known, root=tmp_path)


def test_a_damaged_facts_file_does_not_hide_the_others(stored: Tiny, tmp_path: Path) -> None:
    (tmp_path / stored.known.name / "facts.json").write_text("{")
    found = {entry.name: entry.origin for entry in installed(root=tmp_path)}
    assert found["svhn"] == "unknown"


@pytest.mark.parametrize("split", ["train", "test"])
def test_known_sets_load_by_name(
    stored: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    monkeypatch.setenv("UPRIGHT_DATA", str(tmp_path))
    monkeypatch.setitem(KNOWN, "svhn", stored.known)
    images, labels = stored.split(split)
    data = load_data("svhn", split=split, limit=3)
    assert data.classes == tuple("0123456789")
    assert torch.equal(data.images, torch.from_numpy(images[:3]).permute(0, 3, 1, 2))
    assert data.labels.tolist() == labels[:3].tolist()
    assert len(load_data("svhn", split=split)) == len(images)


def test_loading_by_name_says_the_command_where_the_set_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPRIGHT_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="run `upright data fetch cifar100`"):
        load_data("cifar100")


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "set/upright"),
        ("linux", None, "home/.cache/upright"),
        ("darwin", "XDG_CACHE_HOME", "home/Library/Caches/upright"),
        ("win32", "LOCALAPPDATA", "set/upright"),
        ("win32", None, "home/AppData/Local/upright"),
        ("linux", "UPRIGHT_DATA", "set"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(
    platform: str,
    variable: str | None,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("UPRIGHT_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "set"))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_folder() == tmp_path / expected
