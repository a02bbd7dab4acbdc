"""CIFAR-10, CIFAR-100 and SVHN are read from every format that their files come in."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from tiny_sets import (
    Tiny,
    Writer,
    python2_pickle,
    read,
    save_mosaic,
    tiny,
    write_binary,
    write_coarse_fine_binary,
    write_fine_pickles,
    write_mat,
    write_mosaics,
    write_pickles,
    write_python2_pickles,
    write_strips,
)
from upright.data.formats import read_files
from upright.data.known import CIFAR10, CIFAR100, KNOWN, SVHN, KnownSet, known_set
from upright.data.raw import RawSplit
from upright.data.registry import Split

FORMATS = [
    pytest.param(CIFAR10, write_pickles, id="cifar10-pickles"),
    pytest.param(CIFAR10, write_python2_pickles, id="cifar10-pickles-of-python-2"),
    pytest.param(CIFAR10, write_binary, id="cifar10-binary"),
    pytest.param(CIFAR10, write_strips, id="cifar10-npm"),
    pytest.param(CIFAR10, write_mosaics, id="cifar10-mosaics"),
    pytest.param(CIFAR100, write_fine_pickles, id="cifar100-pickles"),
    pytest.param(CIFAR100, write_coarse_fine_binary, id="cifar100-binary"),
    pytest.param(CIFAR100, write_mosaics, id="cifar100-mosaics"),
    pytest.param(SVHN, write_mat, id="svhn-mat"),
    pytest.param(SVHN, write_mosaics, id="svhn-mosaics"),
]


def assert_same(found: Mapping[Split, RawSplit], data: Tiny) -> None:
    assert found.keys() == {"train", "test"}
    for split, got in found.items():
        images, labels = data.split(split)
        assert got.images.dtype == np.uint8
        assert got.labels.dtype == np.int64
        assert got.images.flags.c_contiguous
        np.testing.assert_array_equal(got.images, images.transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(got.labels, labels)


@pytest.mark.parametrize(("base", "write"), FORMATS)
def test_every_format_gives_back_what_was_written(
    base: KnownSet, write: Writer, tmp_path: Path
) -> None:
    data = tiny(base)
    write(data, tmp_path)
    assert_same(read(data, tmp_path), data)


@pytest.mark.parametrize("base", KNOWN.values(), ids=KNOWN)
def test_one_npz_gives_back_what_was_written(base: KnownSet, tmp_path: Path) -> None:
    data = tiny(base)
    np.savez(tmp_path / "any.npz", **data.arrays)
    assert_same(read(data, tmp_path / "any.npz"), data)


def test_files_are_found_one_folder_below_and_in_several_folders(tmp_path: Path) -> None:
    data = tiny(SVHN)
    below = tmp_path / "given" / "below"
    below.mkdir(parents=True)
    write_mosaics(data, below)
    assert_same(read(data, tmp_path / "given"), data)
    (tmp_path / "other").mkdir()
    (below / "test-0.webp").rename(tmp_path / "other" / "test-0.webp")
    assert_same(read(data, below, tmp_path / "other"), data)


@pytest.mark.parametrize(("base", "write"), FORMATS)
def test_an_archive_reads_as_its_folder(base: KnownSet, write: Writer, tmp_path: Path) -> None:
    data = tiny(base)
    source, scratch = tmp_path / "source", tmp_path / "scratch"
    source.mkdir()
    scratch.mkdir()
    write(data, source)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(source, arcname="some-folder")
    assert_same(read(data, tmp_path / "a.tar.gz", scratch=scratch), data)


def test_cifar_bytes_are_planes_of_rows_red_first(tmp_path: Path) -> None:
    record = np.zeros(3072, np.uint8)
    record[1024 + 32 * 5 + 7] = 200
    (tmp_path / "x.bin").write_bytes(b"\x03" + record.tobytes())
    (tmp_path / "x").write_bytes(python2_pickle(record[None], "labels", np.array([3])))
    for kind, name in (("binary", "x.bin"), ("pickle", "x")):
        split = read_files(kind, [tmp_path / name])
        assert np.argwhere(split.images).tolist() == [[0, 1, 5, 7]]
        assert split.labels.tolist() == [3]


def test_svhn_label_10_is_the_digit_0_and_x_is_row_column_channel(tmp_path: Path) -> None:
    images = np.zeros((32, 32, 3, 2), np.uint8)
    images[5, 7, 2, 1] = 200
    scipy.io.savemat(tmp_path / "x.mat", {"X": images, "y": np.array([[9], [10]], np.uint8)})
    split = read_files("mat", [tmp_path / "x.mat"])
    assert np.argwhere(split.images).tolist() == [[1, 2, 5, 7]]
    assert split.labels.tolist() == [9, 0]


def test_mosaics_go_on_in_the_next_file_after_10000_images(tmp_path: Path) -> None:
    labels = np.arange(10_103) % 10
    images = np.zeros((10_103, 32, 32, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(10_103) % 251
    save_mosaic(tmp_path / "train-0.webp", images[:10_000])
    save_mosaic(tmp_path / "train-1.webp", images[10_000:])
    np.save(tmp_path / "train-labels.npy", labels.astype(np.uint8))
    names = ("train-labels.npy", "train-0.webp", "train-1.webp")
    split = read_files("mosaics", [tmp_path / name for name in names])
    np.testing.assert_array_equal(split.images, images.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(split.labels, labels)


def test_the_published_facts_are_complete() -> None:
    assert [len(known.classes) for known in (CIFAR10, CIFAR100, SVHN)] == [10, 100, 10]
    assert list(CIFAR100.classes) == sorted(set(CIFAR100.classes))
    assert sum(SVHN.counts.values()) == 99_289
    names = {f"{split}_{part}" for split in ("train", "test") for part in ("images", "labels")}
    for known in KNOWN.values():
        for variant in known.variants:
            assert variant.digests.keys() == names
            assert variant.content.keys() == {"train", "test"}
            sums = [*variant.digests.values(), *variant.content.values()]
            assert {len(bytes.fromhex(digest)) for digest in sums} == {32}
        assert {len(bytes.fromhex(md5)) for md5 in known.md5s.values()} == {16}
        assert {len(bytes.fromhex(archive.md5)) for archive in known.archives} == {16}


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'mnist': choose one of cifar10, cifar100, svhn"):
        known_set("mnist")
