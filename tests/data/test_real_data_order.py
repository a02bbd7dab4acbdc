"""A known set is known by its content, whatever the order; official files also by MD5 sums."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiny_sets import (
    Tiny,
    Writer,
    content_of,
    gather,
    shuffled,
    tiny,
    write_binary,
    write_coarse_fine_binary,
    write_fine_pickles,
    write_mat,
    write_mosaics,
    write_pickles,
)
from upright.data import store
from upright.data.download import md5_of
from upright.data.fetch import fetch
from upright.data.known import CIFAR10, CIFAR100, SVHN, KnownSet
from upright.data.raw import RawSplit, content_digest, split_digests
from upright.data.recognise import BY_MD5, in_words
from upright.data.store import check, installed, open_split, recognise_any

OFFICIAL = [
    pytest.param(CIFAR10, write_pickles, id="cifar10-pickles"),
    pytest.param(CIFAR10, write_binary, id="cifar10-binary"),
    pytest.param(CIFAR100, write_fine_pickles, id="cifar100-pickles"),
    pytest.param(CIFAR100, write_coarse_fine_binary, id="cifar100-binary"),
    pytest.param(SVHN, write_mat, id="svhn-mat"),
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def raw_split(data: Tiny, split: str) -> RawSplit:
    images, labels = data.split(split)
    return RawSplit(np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels)


def other_pixels(data: Tiny) -> Tiny:
    """Images that differ in one bit, of a set whose facts stay."""
    arrays = {name: array.copy() for name, array in data.arrays.items()}
    for split in ("train", "test"):
        arrays[f"{split}_images"][1, 5, 7, 2] ^= 1
    return replace(data, arrays=arrays)


def with_sums(data: Tiny, folder: Path) -> Tiny:
    """The set with these files' MD5 sums among its facts."""
    sums = {path.name: md5_of(path) for path in folder.iterdir()}
    return replace(data, known=replace(data.known, md5s=sums))


def assert_holds(data: Tiny, root: Path) -> None:
    """The arrays in the order and with the pixels of the files."""
    for split in ("train", "test"):
        found = open_split(data.known, split, root=root)
        np.testing.assert_array_equal(found.images, raw_split(data, split).images)
        np.testing.assert_array_equal(found.labels, data.split(split)[1])


def test_the_content_is_that_of_all_pairs_in_any_order_and_of_no_others() -> None:
    data = tiny(SVHN)
    content = content_digest(raw_split(data, "train"))
    assert content == content_of(data.arrays, "train")
    for seed in range(5):
        assert content_digest(raw_split(shuffled(data, seed=seed), "train")) == content
    assert content_digest(raw_split(other_pixels(data), "train")) != content
    swapped = data.split("train")[1].copy()
    swapped[:2] = swapped[1::-1]  # the same images and the same labels, but other pairs
    other = replace(data, arrays={**data.arrays, "train_labels": swapped})
    assert content_digest(raw_split(other, "train")) != content


@pytest.mark.parametrize(("base", "write"), OFFICIAL)
def test_official_formats_in_another_order_are_accepted_in_that_order(
    base: KnownSet, write: Writer, files: Path, root: Path
) -> None:
    data = shuffled(tiny(base))
    write(data, files)
    done = fetch(data.known, source=[files], root=root)
    (variant,) = data.known.variants
    assert in_words(done.recognised) == f"{variant.name}, in another order"
    for split, found in done.recognised.items():
        assert found.content == variant.content[split]
        assert found.digests == split_digests(split, raw_split(data, split))
        assert found.usual == {name: variant.digests[name] for name in found.digests}
    assert_holds(data, root)
    again = check(data.known, root=root)
    assert (again.sound, again.recognised) == (True, done.recognised)


def test_one_npz_in_another_order_is_accepted(tmp_path: Path) -> None:
    data = shuffled(tiny(CIFAR100))
    np.savez(tmp_path / "any.npz", **data.arrays)
    found = gather(data, tmp_path / "any.npz")
    assert in_words(found.recognised) == "rebuilt, in another order"


@pytest.mark.parametrize("part", ["images", "labels"])
def test_one_altered_value_is_refused_in_another_order_too(part: str, files: Path) -> None:
    data = shuffled(tiny(CIFAR100))
    data.arrays[f"test_{part}"].flat[3] ^= 1
    write_fine_pickles(data, files)
    complaint = (
        r"test_images and test_labels are not those of cifar100 in any order .*wrong: test\)"
    )
    with pytest.raises(ValueError, match=complaint):
        gather(data, files)


@pytest.mark.parametrize(
    ("base", "write"),
    [(CIFAR100, write_fine_pickles), (SVHN, write_mat)],
    ids=["cifar100", "svhn"],
)
def test_files_with_the_published_sums_are_accepted_with_their_own_pixels_and_order(
    base: KnownSet, write: Writer, files: Path, root: Path
) -> None:
    data = other_pixels(shuffled(tiny(base)))
    write(data, files)
    with pytest.raises(ValueError, match="in any order"):
        fetch(data.known, source=[files], root=root)
    data = with_sums(data, files)
    done = fetch(data.known, source=[files], root=root)
    assert in_words(done.recognised) == "by MD5, in the order of its files"
    assert_holds(data, root)
    facts = json.loads((root / base.name / "facts.json").read_text())
    assert facts["variant"] == {"train": BY_MD5, "test": BY_MD5}
    assert facts["content"] == {split: content_of(data.arrays, split) for split in facts["content"]}
    assert fetch(data.known, source=[files], root=root).already


def test_each_split_is_told_on_its_own(files: Path) -> None:
    rebuilt = tiny(SVHN)
    write_mat(rebuilt, files)
    test_file = (files / "test_32x32.mat").read_bytes()
    write_mat(other_pixels(rebuilt), files)
    known = with_sums(rebuilt, files)
    (files / "test_32x32.mat").write_bytes(test_file)
    found = gather(known, files)
    assert in_words(found.recognised) == "train by MD5, in the order of its files; test rebuilt"


@pytest.mark.parametrize("name", ["cifar-100-binary.tar.gz", "renamed.tgz"])
def test_an_archive_with_the_published_sum_vouches_for_its_files(
    name: str, files: Path, tmp_path: Path
) -> None:
    data = other_pixels(tiny(CIFAR100))
    write_coarse_fine_binary(data, files)
    archive, scratch = tmp_path / name, tmp_path / "scratch"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(files, arcname="cifar-100-binary")
    scratch.mkdir()
    sums = {"cifar-100-binary.tar.gz": md5_of(archive)}
    data = replace(data, known=replace(data.known, md5s=sums))
    found = gather(data, archive, scratch=scratch)
    assert {found.variant for found in found.recognised.values()} == {BY_MD5}
    with pytest.raises(ValueError, match="images are not those of cifar100"):
        gather(data, files)


def test_sums_vouch_for_nothing_where_the_official_content_is_known(files: Path) -> None:
    data = other_pixels(tiny(CIFAR10))
    write_pickles(data, files)
    with pytest.raises(ValueError, match="train_images are not those of cifar10"):
        gather(with_sums(data, files), files)


@pytest.mark.parametrize("part", ["images", "labels"])
def test_check_finds_one_altered_bit_of_what_was_accepted_by_its_sums(
    part: str, files: Path, root: Path
) -> None:
    data = other_pixels(tiny(SVHN))
    write_mat(data, files)
    data = with_sums(data, files)
    fetch(data.known, source=[files], root=root)
    path = root / "svhn" / f"test_{part}.npy"
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    (fault,) = check(data.known, root=root).faults
    assert "not those of svhn" in fault
    assert not fetch(data.known, source=[files], root=root).already
    assert check(data.known, root=root).sound


def test_facts_of_earlier_versions_still_read(files: Path, root: Path) -> None:
    data = tiny(SVHN)
    write_mosaics(data, files)
    fetch(data.known, source=[files], root=root)
    (variant,) = data.known.variants
    old = {"name": "svhn", "origin": "files on disk", "sha256": dict(variant.digests)}
    (root / "svhn" / "facts.json").write_text(json.dumps(old))
    assert in_words(check(data.known, root=root).recognised) == "rebuilt"
    assert fetch(data.known, root=root).already


def test_the_list_says_which_variant_is_there(
    files: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = shuffled(tiny(SVHN))
    monkeypatch.setattr(store, "KNOWN", {"svhn": data.known, "cifar10": tiny(CIFAR10).known})
    write_mat(data, files)
    fetch(data.known, source=[files], root=root)
    variants = {entry.name: entry.variant for entry in installed(root=root)}
    assert variants == {"svhn": "rebuilt, in another order", "cifar10": ""}


def test_a_whole_split_is_identified_wherever_it_was_read_from(
    files: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = other_pixels(tiny(SVHN))
    write_mat(data, files)
    data = with_sums(data, files)
    monkeypatch.setattr(store, "KNOWN", {"cifar10": tiny(CIFAR10).known, "svhn": data.known})
    split = raw_split(data, "test")
    assert recognise_any("test", split, root=root) is None
    fetch(data.known, source=[files], root=root)
    found = recognise_any("test", split, root=root)
    assert found is not None
    assert (found.name, found.variant) == ("svhn", BY_MD5)
    few = RawSplit(split.images[:3], split.labels[:3])
    assert recognise_any("test", few, root=root) is None
    other = recognise_any("test", raw_split(shuffled(tiny(CIFAR10)), "test"), root=root)
    assert other is not None
    assert str(other) == "official, in another order"
