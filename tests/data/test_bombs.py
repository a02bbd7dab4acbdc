"""Small files that stand for gigabytes, or for programs: refused at once, in little memory."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import tarfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import EpsImagePlugin, Image

import upright
from upright.data import load_data
from upright.data.archive import unpack
from upright.data.folder import read_folder
from upright.data.formats import read_files
from upright.data.mat import read_mat
from upright.data.mosaics import read_strips
from upright.data.npz import read_npz

resource = pytest.importorskip("resource", reason="limits are those of POSIX")

MIB, GIB = 1 << 20, 1 << 30

linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read of Linux")


@contextmanager
def within(*, more_bytes: int, seconds: float) -> Iterator[None]:
    """Bound the memory that is taken beyond what is there, and the time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    begin = time.perf_counter()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert time.perf_counter() - begin < seconds


def npy_header(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def write_npz(path: Path, images: int, packing: int, *, claims: int | None = None) -> None:
    """Black images of 32 x 32 x 3, with labels; ``claims`` is how many there should be."""
    with zipfile.ZipFile(path, "w", packing) as file:
        with file.open("images.npy", "w") as stream:
            stream.write(npy_header((claims or images, 32, 32, 3)))
            for _ in range(images // 1000):
                stream.write(bytes(3_072_000))
        file.writestr("labels.npy", npy_header((claims or images,)) + bytes(claims or images))


@linux
@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize(
    ("packing", "images"), [(zipfile.ZIP_BZIP2, 8_000), (zipfile.ZIP_LZMA, 1_000)]
)
def test_an_npz_that_numpy_did_not_pack_is_refused(
    packing: int, images: int, limit: int | None, tmp_path: Path
) -> None:
    write_npz(tmp_path / "x.npz", images, packing)
    assert (tmp_path / "x.npz").stat().st_size < 20_000
    with (
        within(more_bytes=20 * MIB, seconds=2),
        pytest.raises(ValueError, match=r"x\.npz: images is compressed in a way that numpy does"),
    ):
        load_data(f"npz:{tmp_path / 'x.npz'}", limit=limit)


@linux
def test_an_npz_that_unpacks_to_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    """The size that the archive says is what would be unpacked at most, so that is what counts."""
    write_npz(tmp_path / "x.npz", 1_000, zipfile.ZIP_DEFLATED, claims=2_000_000)
    content = (tmp_path / "x.npz").read_bytes()
    said = (1_000 * 3072 + 128).to_bytes(4, "little")
    assert content.count(said) >= 1
    (tmp_path / "x.npz").write_bytes(content.replace(said, (3 * GIB).to_bytes(4, "little")))
    with (
        within(more_bytes=20 * MIB, seconds=2),
        pytest.raises(ValueError, match=r"x\.npz: images would unpack from .* to 3 GiB of memory"),
    ):
        read_npz(tmp_path / "x.npz")


@linux
def test_of_an_npz_only_the_images_that_are_wanted_are_unpacked(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", 30_000, zipfile.ZIP_DEFLATED)
    with within(more_bytes=40 * MIB, seconds=2):
        found = load_data(f"npz:{tmp_path / 'x.npz'}", limit=1)
    assert found.images.shape == (1, 3, 32, 32)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("limit", [1, 3, 9])
def test_the_first_images_are_those_of_all(limit: int, order, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 6, 3), dtype=np.uint8)
    labels = np.asarray([0, 1, 2, 1, 7])
    np.savez(tmp_path / "x.npz", images=np.asarray(images, order=order), labels=labels)
    found = read_npz(tmp_path / "x.npz", limit=limit)
    np.testing.assert_array_equal(found.images.numpy(), images[:limit].transpose(0, 3, 1, 2))
    assert found.labels.tolist() == labels[:limit].tolist()
    assert len(found.classes) == 8


@linux
def test_small_pictures_that_take_gigabytes_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    Image.new("RGB", (3000, 3000)).save(tmp_path / "class" / "0.webp", lossless=True, method=0)
    for number in range(1, 50):
        os.link(tmp_path / "class" / "0.webp", tmp_path / "class" / f"{number}.webp")
    with (
        within(more_bytes=21 * 3000**2, seconds=10),  # 1.3 GiB of the most pixels, as is stated
        pytest.raises(ValueError, match=r"50 images would unpack from .* GiB of memory.*--resize"),
    ):
        read_folder(tmp_path)
    assert read_folder(tmp_path, limit=1).images.shape == (1, 3, 3000, 3000)


def test_pictures_that_are_large_on_the_disk_may_be_large_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upright.data.unpacked_size._MOST_BYTES", 1)
    (tmp_path / "class").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "class" / "x.png")
    assert len(read_folder(tmp_path)) == 1


POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 32 32
%%EndComments
showpage
%%EOF
"""


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for Ghostscript is a shell script")
def test_postscript_by_another_name_is_refused_and_no_program_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, data, programs = tmp_path / "mark", tmp_path / "data", tmp_path / "bin"
    (data / "class").mkdir(parents=True)
    (data / "class" / "x.png").write_bytes(POSTSCRIPT)
    (data / "labels.json").write_text("[1]")
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\necho started >>'{mark}'\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # it is looked for once
    with pytest.raises(ValueError, match=r"x\.png: cannot be read as an image \(BMP,[^\n]*$"):
        read_folder(data)
    with pytest.raises(ValueError, match=r"x\.png is truncated or not the right picture[^\n]*$"):
        read_strips([data / "labels.json", data / "class" / "x.png"])
    assert not mark.exists()


def test_pictures_are_opened_in_one_place() -> None:
    package = Path(upright.__file__).parent
    found = {path.name for path in package.rglob("*.py") if "Image.open(" in path.read_text()}
    assert found == {"pictures.py"}


def tar_of(size: int, name: str = "other") -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf() + bytes(size + -size % 512) + bytes(1024)


@linux
@pytest.mark.parametrize("name", ["x.tar.gz", "x.tgz", "x.tar"])
def test_archives_are_packed_with_gzip_or_not_at_all(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(bz2.compress(tar_of(8 * MIB, "data_batch_1"), 9))
    (tmp_path / "inside").mkdir()
    with (
        within(more_bytes=20 * MIB, seconds=2),
        pytest.raises(ValueError, match=r"is truncated or not a tar archive"),
    ):
        unpack(tmp_path / name, tmp_path / "inside", wanted={"data_batch_1"})
    assert not list((tmp_path / "inside").iterdir())


@linux
def test_an_archive_without_end_is_refused_also_for_what_is_not_wanted(tmp_path: Path) -> None:
    info = tarfile.TarInfo("other")
    info.size = GIB  # which is what one file may have, but its header comes before it
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(info.tobuf()))
    with (
        within(more_bytes=20 * MIB, seconds=2),
        pytest.raises(ValueError, match=r"x\.tar\.gz is refused: it unpacks to more than any"),
    ):
        unpack(tmp_path / "x.tar.gz", tmp_path, wanted={"data_batch_1"})


def test_headers_of_an_archive_that_never_end_are_named(tmp_path: Path) -> None:
    body = b"12 path=abc\n"
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    chain = (info.tobuf(tarfile.USTAR_FORMAT) + body.ljust(512, b"\0")) * 5_000
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(chain + tar_of(0)))
    with pytest.raises(ValueError, match=r"x\.tar\.gz is truncated or not a tar archive"):
        unpack(tmp_path / "x.tar.gz", tmp_path, wanted={"x"})


def with_size(size: int) -> bytes:
    info = tarfile.TarInfo("other")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def with_length(length: int) -> bytes:
    body = b"%d path=abc\n" % length
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    return info.tobuf(tarfile.USTAR_FORMAT) + body.ljust(512, b"\0")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (with_size(2**70), "is larger than any file of a data set"),
        (with_size(-(2**70)), r"x\.tar is truncated or not a tar archive: a header of -\d+ bytes"),
        (with_length(10**30), r"x\.tar is truncated or not a tar archive"),
    ],
    ids=["size", "negative size", "length"],
)
def test_a_number_in_a_header_that_cannot_be_is_named(
    header: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "x.tar").write_bytes(header + bytes(1024))
    with pytest.raises(ValueError, match=message):
        unpack(tmp_path / "x.tar", tmp_path, wanted={"data_batch_1"})


@linux
@pytest.mark.parametrize(("characters", "count"), [(60_000, 1_000), (0, 100_000)])
def test_headers_are_bounded_together(characters: int, count: int, tmp_path: Path) -> None:
    """Many that are long, of characters that take four bytes each in memory; or simply many."""
    body = f"{characters + 20} path=".encode() + b"a" * characters + "\N{TULIP}\n".encode()
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    long = info.tobuf(tarfile.USTAR_FORMAT) + body.ljust(-(-len(body) // 512) * 512, b"\0")
    folder = tarfile.TarInfo("folder")
    folder.type = tarfile.DIRTYPE
    one = (long if characters else b"") + folder.tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(one * count, compresslevel=1))
    with (
        within(more_bytes=200 * MIB, seconds=10),
        pytest.raises(ValueError, match=r"x\.tar\.gz is "),
    ):
        unpack(tmp_path / "x.tar.gz", tmp_path, wanted={"data_batch_1"})


def test_a_file_of_an_archive_with_holes_is_refused(tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("data_batch_1").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[483:495] = b"%011o\0" % (900 * MIB)  # its size with the holes
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "x.tar").write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(ValueError, match=r"x\.tar is refused: .* is no plain file"):
        unpack(tmp_path / "x.tar", tmp_path, wanted={"data_batch_1"})
    assert [file.name for file in tmp_path.iterdir()] == ["x.tar"]


def mat_of(path: Path, names: str, count: int) -> None:
    """Zeros that lie in a byte each and are to be floats of eight."""
    content = {name: np.zeros(count, np.uint8) for name in names}
    scipy.io.savemat(path, content, do_compression=False)
    plain = path.read_bytes()
    flags = (9).to_bytes(4, "little") + (0).to_bytes(4, "little")  # of an array of uint8
    assert plain.count(flags) == len(names)
    path.write_bytes(plain.replace(flags, (6).to_bytes(4, "little") + (0).to_bytes(4, "little")))


@pytest.mark.parametrize("names", ["X", "Xy"])
def test_numbers_of_one_byte_do_not_become_gigabytes(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mat_of(tmp_path / "x.mat", names, 10_000)
    assert read_mat(tmp_path / "x.mat")["X"].nbytes == 80_000
    monkeypatch.setattr("upright.data.mat._MOST_BYTES", 80_000 * len(names) - 1)
    with pytest.raises(ValueError, match="more than"):
        read_mat(tmp_path / "x.mat")


def test_elements_that_unpack_share_one_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upright.data.mat._MOST_BYTES", 15_000)
    for names, fits in (("X", True), ("Xy", False)):
        content = {name: np.zeros(10_000, np.uint8) for name in names}
        scipy.io.savemat(tmp_path / "x.mat", content, do_compression=True)
        if fits:
            assert read_mat(tmp_path / "x.mat").keys() == set(names)
        else:
            with pytest.raises(ValueError, match="all have more than 15000 bytes"):
                read_mat(tmp_path / "x.mat")


def test_labels_that_are_an_archive_are_refused(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", 1_000, zipfile.ZIP_STORED)
    (tmp_path / "x.npz").rename(tmp_path / "labels.npy")
    with pytest.raises(ValueError, match=r"labels\.npy is truncated or not a numpy file"):
        read_files("mosaics", [tmp_path / "labels.npy"])
