"""Readers of data from outside: arrays, pickles, archives, pictures, the cache."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from guard import Target
from PIL import Image

from upright.data import store
from upright.data.archive import unpack
from upright.data.folder import read_folder
from upright.data.formats import read_files
from upright.data.known import CIFAR10, FileKind
from upright.data.npz import read_npz
from upright.data.raw import RawSplit
from upright.data.recognise import recognise

__all__ = ["TARGETS"]

_FEW = replace(CIFAR10, counts={"train": 2, "test": 2})
_PICTURES = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")


def _npz(data: bytes, folder: Path) -> None:
    (folder / "x.npz").write_bytes(data)
    assert len(read_npz(folder / "x.npz")) > 0


def _npz_array(data: bytes, folder: Path) -> None:
    """One array of an .npz, since a fuzzer does not guess the sums around it."""
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("images.npy", data)
        file.writestr("labels.npy", _npy(np.arange(2)))
    read_npz(folder / "x.npz")


def _official(kind: FileKind) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        (folder / "file").write_bytes(data)
        _compare(read_files(kind, [folder / "file"]))

    return read


def _compare(raw: RawSplit) -> None:
    """Whatever could be read is compared with what is known, and is something else."""
    with suppress(ValueError):
        recognise(_FEW, "test", raw, vouched=lambda _: True)


def _mosaic(data: bytes, folder: Path) -> None:
    np.save(folder / "labels.npy", np.arange(2))
    (folder / "x.webp").write_bytes(data)
    read_files("mosaics", [folder / "labels.npy", folder / "x.webp"])


def _strip(data: bytes, folder: Path) -> None:
    (folder / "labels.json").write_text("[1, 2]")
    (folder / "x.png").write_bytes(data)
    _compare(read_files("strips", [folder / "labels.json", folder / "x.png"]))


def _labels(data: bytes, folder: Path) -> None:
    Image.new("RGB", (1024, 2)).save(folder / "x.png")
    (folder / "labels").write_bytes(data)
    for kind in ("strips", "mosaics"):
        try:
            read_files(kind, [folder / "labels", folder / "x.png"])
        except ValueError as error:
            last = error
    raise last


def _archive(data: bytes, folder: Path) -> None:
    inside = folder / "inside"
    inside.mkdir()
    (folder / "x.tar.gz").write_bytes(data)
    try:
        unpack(folder / "x.tar.gz", inside, wanted={"data_batch_1", "test_batch"})
    finally:
        names = {file.name for file in inside.rglob("*")}
        assert names <= {"data_batch_1", "test_batch"}, names
        assert {file.name for file in folder.iterdir()} == {"inside", "x.tar.gz"}


def _folder(data: bytes, folder: Path) -> None:
    """The first byte says what the file is called."""
    (folder / "class").mkdir()
    suffix = (*_PICTURES, "txt")[data[0] % 8 if data else 0].lower()
    (folder / "class" / f"x.{suffix}").write_bytes(data[1:])
    images = read_folder(folder, resize=16, center_crop=16).images
    assert images.shape[1:] == (3, 16, 16)


def _cache(data: bytes, folder: Path) -> None:
    kept = folder / _FEW.name
    kept.mkdir()
    for split in ("train", "test"):
        np.save(kept / f"{split}_labels.npy", np.arange(2))
        (kept / f"{split}_images.npy").write_bytes(data)
    (kept / "facts.json").write_bytes(data)
    assert len(store.installed(root=folder)) == 3
    assert not store.check(_FEW, root=folder).sound
    with suppress(ValueError):
        store.open_split(_FEW, "test", root=folder)
        raise AssertionError("accepted")


def _facts() -> list[bytes]:
    sums = ", ".join(f'"{name}": "00"' for name in CIFAR10.variants[0].digests)
    named = b'{"origin": "x", "sha256": {%s}, "variant": ' % sums.encode()
    return [
        *(b'{"origin": "x"}', b"[" * 10**5, b'{"origin": 1, "sha256": []}', named + b"3}"),
        named + b'{"train": "by MD5", "test": 3}, "content": {"train": [], "test": "00"}}',
        b'{"origin": "x", "noted": {"train": {"files": {"a": [1]}}, "test": {"files": 3}}}',
    ]


def _npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def _lying_npy(shape: str, kind: str = "'|u1'") -> bytes:
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 64


def _npy_seeds() -> list[bytes]:
    whole = _npy(np.zeros((2, 8, 8, 3), np.uint8))
    return [
        *(whole, whole[:-9], b"", _npy(np.array([os.system, 1], dtype=object)), _npy(np.zeros(3))),
        *(_lying_npy("(10**9, 99, 99, 3)"), _lying_npy("(99999999999, 99, 99, 3)")),
        *(_lying_npy("(2, 8, 8, -3)"), _lying_npy("(2, 4, 4, 3)", "[('a', '|O')]")),
        *(_lying_npy("(" * 200), _lying_npy("(2, 4, 4, 3)", "'|S999999999'")),
        _lying_npy("(4294967296, 4294967296, 4294967296, 3)"),
    ]


def _npz_seeds() -> list[bytes]:
    stream = io.BytesIO()
    np.savez(stream, images=np.zeros((2, 8, 8, 3), np.uint8), labels=np.arange(2))
    packed = io.BytesIO()
    np.savez_compressed(packed, images=np.zeros((2, 8, 8, 3), np.uint8), labels=np.arange(2))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w", zipfile.ZIP_BZIP2) as file:
        for name in ("images", "labels"):
            file.writestr(f"{name}.npy", _npy(np.zeros((2, 8, 8, 3), np.uint8)))
    doubled = io.BytesIO()
    with zipfile.ZipFile(doubled, "w") as file:
        file.writestr("../images.npy", _npy(np.zeros(2)))
    whole = stream.getvalue()
    return [whole, packed.getvalue(), doubled.getvalue(), other.getvalue(), whole[:-30]]


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def _pickle_seeds() -> list[bytes]:
    batch = {"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2]}
    nested = b"(" + b"q\x00h\x00\x86" * 60  # a tuple that holds itself 2**60 times over
    return [
        *(pickle.dumps(batch, protocol=number) for number in (0, 2, 4)),
        pickle.dumps({b"data": _Evil()}, protocol=2),
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of billions of entries
        b"\x80\x02})" + nested[1:] + b"K\x01s.",  # as a key, to be hashed
        b"\x80\x02})" + b"\x85" * 300_000 + b"K\x01s.",  # the same, deep
        b"\x80\x02\x8a\x04\xff\xff\xff\x7f.",
        b"\x80\x02cnumpy\ndtype\nX\x04\x00\x00\x00S2G1\x85R.",
    ]


def _mat(content: dict[str, object], *, packed: bool = False) -> bytes:
    from scipy.io import savemat

    with TemporaryDirectory() as folder:
        savemat(f"{folder}/x.mat", content, do_compression=packed)
        return Path(folder, "x.mat").read_bytes()


def _mat_seeds() -> list[bytes]:
    svhn = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1), np.uint8)}
    plain, packed = _mat({**svhn}), _mat({**svhn}, packed=True)
    other = _mat({"X": {"a": [1]}, "y": "text"})
    newer = b"MATLAB 7.3 MAT-file" + b" " * 109 + b"\x00\x02IM"
    return [plain, packed, plain[:-20], packed[:-20], other, newer]


def _tar(name: str, *, kind: bytes = tarfile.REGTYPE, to: str = "", content: bytes = b"x") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, to
        info.size = len(content) if kind == tarfile.REGTYPE else 0
        tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _archive_seeds() -> list[bytes]:
    whole = _tar("a/data_batch_1")
    plain = gzip.decompress(whole)
    long = _tar("n" * 300 + "/data_batch_1")
    huge = tarfile.TarInfo("data_batch_1")
    huge.type, huge.size = tarfile.XHDTYPE, 1 << 40
    return [
        *(whole, plain, whole[:-9], _tar("../data_batch_1"), _tar("/tmp/data_batch_1"), long),
        *(_tar("data_batch_1", kind=tarfile.SYMTYPE, to="/etc/passwd"), b"", gzip.compress(b"x")),
        *(huge.tobuf(tarfile.GNU_FORMAT) + bytes(2048), plain.replace(b"ustar", b"USTAR")),
        *(bz2.compress(plain), lzma.compress(plain), _chained_headers()),
    ]


def _chained_headers() -> bytes:
    """An archive of which each header belongs to the next one."""
    info, body = tarfile.TarInfo("x"), b"12 path=abc\n"
    info.type, info.size = tarfile.XHDTYPE, len(body)
    return (info.tobuf(tarfile.USTAR_FORMAT) + body.ljust(512, b"\0")) * 2_000


def _picture(form: str, mode: str = "RGB", side: int = 20) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (side, side)).save(stream, form)
    return stream.getvalue()


def _picture_seeds() -> list[bytes]:
    seeds = [bytes([k]) + _picture(form) for k, form in enumerate(_PICTURES)]
    modes = ("1", "L", "LA", "P", "RGBA", "I;16")
    seeds += [b"\0" + _picture("PNG", mode) for mode in modes]
    seeds += [bytes([4]) + _picture("TIFF", mode) for mode in ("CMYK", "F", "LAB", "YCbCr")]
    bomb = _png_of(60_000, 60_000)
    long = b"\0" + _picture("PNG").replace((20).to_bytes(4, "big"), (40_000).to_bytes(4, "big"), 1)
    seeds += [b"\0" + bomb, long, b"\1" + _picture("PNG"), b"\0" + _picture("PNG")[:-30]]
    return [*seeds, b"\0" + _picture("EPS")]


def _png_of(width: int, height: int) -> bytes:
    """The beginning of a picture that says it is so large."""
    whole = bytearray(_picture("PNG"))
    whole[16:20], whole[20:24] = width.to_bytes(4, "big"), height.to_bytes(4, "big")
    whole[29:33] = zlib.crc32(bytes(whole[12:29])).to_bytes(4, "big")
    return bytes(whole)


def _strip_seeds() -> list[bytes]:
    stream = io.BytesIO()
    Image.new("RGB", (1024, 2)).save(stream, "PNG")
    lying = stream.getvalue().replace(b"\0\0\0\x12IDAT", b"\xfd\0\0\x12IDAT")
    return [
        stream.getvalue(),
        lying,
        _png_of(1024, 2),
        _png_of(1024, 2**31 - 1),
        _png_of(1024, 80_000),
    ]


def _mosaic_seeds() -> list[bytes]:
    stream = io.BytesIO()
    Image.new("RGB", (3200, 32)).save(stream, "WEBP", lossless=True)
    return [stream.getvalue(), stream.getvalue()[:-9], _picture("WEBP"), _png_of(3200, 32)]


TARGETS = (
    Target("npz", _npz, _npz_seeds),
    Target("npz-array", _npz_array, _npy_seeds),
    Target("pickle", _official("pickle"), _pickle_seeds),
    Target("binary", _official("binary"), lambda: [bytes(3073 * 2), bytes(3073), b"", bytes(9)]),
    Target("mat", _official("mat"), _mat_seeds),
    Target("mosaic", _mosaic, _mosaic_seeds),
    Target("strip", _strip, _strip_seeds),
    Target("labels", _labels, lambda: [*_npy_seeds(), b"[1, 2]", b"[" * 10**5, b"[1e999, 2]"]),
    Target("archive", _archive, _archive_seeds),
    Target("folder", _folder, _picture_seeds),
    Target("cache", _cache, lambda: [*_npy_seeds(), *_facts()]),
)
