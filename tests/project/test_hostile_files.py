"""Pickles and archives that try to do more than hold data are refused before they do it."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path

import pytest

from upright.data.archive import unpack
from upright.data.unpickle import read_pickle


class Evil:
    """Makes an ordinary unpickler create a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.target}",)


def test_a_pickle_that_calls_the_system_is_refused_before_it_does(tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": Evil(mark)}, protocol=2))
    with pytest.raises(ValueError, match=r"data_batch_1 cannot .* asks for \w+\.system"):
        read_pickle(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        b"cnumpy\nload\n.",
        b"c__builtin__\ngetattr\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        b"c_codecs\nencode\n(Vabc\nVzip\ntR.",
    ],
)
def test_any_other_name_in_a_pickle_is_refused(program: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(program)
    with pytest.raises(ValueError, match="it asks for"):
        read_pickle(tmp_path / "x")


def add(tar: tarfile.TarFile, name: str, *, kind: bytes = tarfile.REGTYPE, to: str = "") -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    content = b"content" if kind == tarfile.REGTYPE else b""
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("name", "kind", "to", "complaint"),
    [
        ("../data_batch_1", tarfile.REGTYPE, "", "lies outside its folder"),
        ("a/../../data_batch_1", tarfile.REGTYPE, "", "lies outside its folder"),
        ("/tmp/data_batch_1", tarfile.REGTYPE, "", "lies outside its folder"),
        ("C:\\data_batch_1", tarfile.REGTYPE, "", "lies outside its folder"),
        ("data_batch_1", tarfile.SYMTYPE, "/etc/passwd", "is a link"),
        ("data_batch_1", tarfile.LNKTYPE, "../secret", "is a link"),
        ("data_batch_1", tarfile.FIFOTYPE, "", "is no plain file"),
    ],
)
def test_an_archive_that_leaves_its_folder_is_refused(
    name: str, kind: bytes, to: str, complaint: str, tmp_path: Path
) -> None:
    archive, folder = tmp_path / "x.tar.gz", tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        add(tar, name, kind=kind, to=to)
    with pytest.raises(ValueError, match=rf"^x\.tar\.gz is refused: .*{complaint}"):
        unpack(archive, folder, wanted={"data_batch_1"})
    assert sorted(tmp_path.rglob("*")) == [folder.parent, folder, archive]


def test_only_wanted_files_are_unpacked_each_under_its_bare_name(tmp_path: Path) -> None:
    archive, folder = tmp_path / "x.tar", tmp_path / "folder"
    folder.mkdir()
    with tarfile.open(archive, "w") as tar:
        for name in ("a/b/wanted", "a/other", "unasked"):
            add(tar, name)
    unpack(archive, folder, wanted={"wanted"})
    assert [path.name for path in folder.iterdir()] == ["wanted"]
    assert (folder / "wanted").read_bytes() == b"content"
