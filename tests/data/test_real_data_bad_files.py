"""Truncated, altered and wrong files of the known sets are refused, and named."""

from __future__ import annotations

import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from tiny_sets import (
    Writer,
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
from upright.data import recognise
from upright.data.download import md5_of
from upright.data.formats import read_files
from upright.data.known import CIFAR10, CIFAR100, SVHN, KnownSet


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_by_one(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def scribble(path: Path) -> None:
    path.write_bytes(b"<html>Moved</html>" * 20)


@pytest.mark.parametrize("spoil", [cut, empty, scribble])
@pytest.mark.parametrize(
    ("base", "write", "victim"),
    [
        pytest.param(CIFAR10, write_pickles, "data_batch_3", id="cifar10-pickle"),
        pytest.param(CIFAR10, write_python2_pickles, "test_batch", id="cifar10-pickle-of-python-2"),
        pytest.param(CIFAR10, write_binary, "data_batch_5.bin", id="cifar10-binary"),
        pytest.param(CIFAR10, write_strips, "data_batch_2.png", id="cifar10-npm-picture"),
        pytest.param(CIFAR10, write_strips, "test_lables.json", id="cifar10-npm-labels"),
        pytest.param(CIFAR100, write_fine_pickles, "train", id="cifar100-pickle"),
        pytest.param(CIFAR100, write_coarse_fine_binary, "test.bin", id="cifar100-binary"),
        pytest.param(SVHN, write_mat, "train_32x32.mat", id="svhn-mat"),
        pytest.param(SVHN, write_mosaics, "test-0.webp", id="svhn-mosaic"),
        pytest.param(SVHN, write_mosaics, "train-labels.npy", id="svhn-mosaic-labels"),
    ],
)
def test_a_truncated_or_foreign_file_is_named_with_what_to_do(
    base: KnownSet, write: Writer, victim: str, spoil: Writer, tmp_path: Path
) -> None:
    data = tiny(base)
    write(data, tmp_path)
    spoil(tmp_path / victim)
    with pytest.raises(ValueError, match="upright data fetch") as caught:
        read(data, tmp_path)
    assert victim in str(caught.value)
    assert base.page in str(caught.value)


@pytest.mark.parametrize("spoil", [cut, cut_by_one, empty, scribble])
def test_a_damaged_npz_is_named(spoil: Writer, tmp_path: Path) -> None:
    data, path = tiny(CIFAR10), tmp_path / "some.npz"
    np.savez_compressed(path, **data.arrays)
    spoil(path)
    with pytest.raises(ValueError, match=r"some\.npz.*upright data fetch cifar10"):
        read(data, path)


def test_an_altered_file_is_told_from_the_others_by_its_published_sum(tmp_path: Path) -> None:
    data = tiny(CIFAR10)
    write_pickles(data, tmp_path)
    sums = {path.name: md5_of(path) for path in tmp_path.iterdir()}
    victim = tmp_path / "data_batch_4"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    data = replace(data, known=replace(data.known, md5s=sums))
    with pytest.raises(ValueError, match=r"train_images are not .*wrong: data_batch_4\)"):
        read(data, tmp_path)


@pytest.mark.parametrize("part", ["images", "labels"])
def test_one_altered_value_is_found_whatever_the_format(part: str, tmp_path: Path) -> None:
    data = tiny(SVHN)
    data.arrays[f"test_{part}"].flat[3] ^= 1
    write_mosaics(data, tmp_path)
    with pytest.raises(ValueError, match=f"test_{part} are not those of svhn.*test-0.webp"):
        read(data, tmp_path)


def test_the_files_of_another_known_set_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits, objects = tiny(SVHN, seed=1), tiny(CIFAR10, seed=2)
    monkeypatch.setattr(recognise, "KNOWN", {"svhn": digits.known, "cifar10": objects.known})
    write_mosaics(digits, tmp_path)
    with pytest.raises(ValueError, match="not those of cifar10 but of svhn"):
        read(objects, tmp_path)


def test_too_few_images_are_counted(tmp_path: Path) -> None:
    data = tiny(CIFAR10)
    write_binary(data, tmp_path)
    whole = (tmp_path / "test_batch.bin").read_bytes()
    (tmp_path / "test_batch.bin").write_bytes(whole[: 3 * 3073])
    with pytest.raises(ValueError, match="test has 3 images, cifar10 has 4"):
        read(data, tmp_path)


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    data = tiny(CIFAR10)
    data.arrays["train_labels"][4] = 10
    write_binary(data, tmp_path)
    with pytest.raises(ValueError, match="train_labels run from 0 to 10"):
        read(data, tmp_path)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    data = tiny(CIFAR10)
    data.arrays["train_images"] = data.arrays["train_images"][:, 4:28, 4:28]
    np.savez(tmp_path / "small.npz", **data.arrays)
    with pytest.raises(ValueError, match="train_images are 3 x 24 x 24 uint8"):
        read(data, tmp_path / "small.npz")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    data = tiny(CIFAR10)
    with pytest.raises(ValueError, match=r"none of its files is there .*cifar-10-batches-py"):
        read(data, tmp_path)
    with pytest.raises(ValueError, match="nowhere does not exist"):
        read(data, tmp_path / "nowhere")
    write_pickles(data, tmp_path)
    (tmp_path / "data_batch_2").unlink()
    with pytest.raises(ValueError, match="-batches-py is incomplete, without data_batch_2;"):
        read(data, tmp_path)
    with pytest.raises(ValueError, match=r"give that file alone"):
        read(data, tmp_path / "a.npz", tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([1, 2], "holds no dictionary"),
        ({"data": [1]}, "no `data` of uint8"),
        ({"data": np.zeros((2, 3072))}, "no `data` of uint8"),
        ({"data": np.zeros((2, 3071), np.uint8)}, "no `data` of uint8"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "no list of labels"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1, "a"]}, "no list of labels"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "2 images, but 1 labels"),
    ],
)
def test_a_pickle_of_something_else_is_refused(
    content: object, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match=f"^x .*{complaint}"):
        read_files("pickle", [tmp_path / "x"])


@pytest.mark.parametrize(
    "content",
    [
        {"x": np.zeros(3)},
        {"X": np.zeros((32, 32, 3, 2), np.uint8)},
        {"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))},
        {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))},
    ],
)
def test_a_mat_of_something_else_is_refused(content: dict[str, object], tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", content)
    with pytest.raises(ValueError, match=r"^x\.mat (is not SVHN|has 2 images, but 3 labels)"):
        read_files("mat", [tmp_path / "x.mat"])


def test_a_picture_of_another_size_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("RGB", (1024, 4)).save(tmp_path / "train-0.webp", lossless=True)
    np.save(tmp_path / "train-labels.npy", np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match=r"train-0\.webp .*1024 x 4 px, not 3200 x 32"):
        read_files("mosaics", [tmp_path / "train-labels.npy", tmp_path / "train-0.webp"])


@pytest.mark.parametrize("labels", [np.zeros((4, 1), np.uint8), np.zeros(4), np.zeros(10_001, int)])
def test_labels_that_do_not_fit_the_mosaics_are_refused(labels: np.ndarray, tmp_path: Path) -> None:
    save_mosaic(tmp_path / "train-0.webp", np.zeros((4, 32, 32, 3), np.uint8))
    np.save(tmp_path / "train-labels.npy", labels)
    with pytest.raises(ValueError, match=r"^train-labels\.npy"):
        read_files("mosaics", [tmp_path / "train-labels.npy", tmp_path / "train-0.webp"])


@pytest.mark.parametrize("spoil", [cut, scribble, empty])
@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_a_truncated_archive_is_named(suffix: str, spoil: Writer, tmp_path: Path) -> None:
    data, source = tiny(CIFAR100), tmp_path / "source"
    source.mkdir()
    write_fine_pickles(data, source)
    archive = tmp_path / f"x.{suffix}"
    with tarfile.open(archive, "w:gz" if suffix == "tar.gz" else "w") as tar:
        tar.add(source, arcname="cifar-100-python")
    spoil(archive)
    with pytest.raises(ValueError, match=rf"x\.{suffix} is truncated or not a tar archive"):
        read(data, archive, scratch=tmp_path)
