"""Small input that once took all memory, all time or the whole process, or ended in a traceback.

Each was found by the targets of the folder ``fuzz``.
"""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import tokenize
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from safetensors.torch import load, save

from tiny_runs import colours, save_as_npz
from upright import evaluate
from upright.cli import main
from upright.cli.options import parse_seeds
from upright.data.archive import unpack
from upright.data.folder import read_folder
from upright.data.mosaics import read_mosaics, read_strips
from upright.data.npz import read_npz
from upright.data.unpickle import read_pickle
from upright.evaluation.state import _digest
from upright.models import build_network
from upright.train import Recipe, RunDirectory, load_network

PICKLES = {
    "a memo of billions of entries": b"\x80\x02}r\xff\xff\xff\x7f.",
    "a key that takes 2**60 steps to hash": b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"K\x01s.",
    "a key that overflows the stack": b"\x80\x02})" + b"\x85" * 300_000 + b"K\x01s.",
    "a copy of a tuple": b"\x80\x02})" + b"2\x86" * 60 + b"K\x01s.",
    "a set": b"\x80\x04\x8f.",
    "a dtype with fields": b"cnumpy\ndtype\n(S'i4,i4'\nI0\nI1\ntR.",
    "an array of objects": b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
}


@pytest.mark.parametrize("program", PICKLES.values(), ids=PICKLES)
def test_a_pickle_that_is_a_bomb_is_refused_unrun(program: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(program)
    with pytest.raises(ValueError, match="x cannot be read as a pickle of arrays: it"):
        read_pickle(tmp_path / "x")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["u1", ">i4", "<f8", "?"])
def test_arrays_come_out_of_a_pickle_as_they_went_in(kind: str, order, tmp_path: Path) -> None:
    array = np.asarray(np.arange(6).reshape(2, 3), dtype=kind, order=order)
    for protocol in range(6):
        (tmp_path / "x").write_bytes(
            pickle.dumps({"a": array}, protocol=protocol, fix_imports=True)
        )
        if protocol == 5:  # whose arrays come as buffers, in which no data set was published
            with pytest.raises(ValueError, match="it asks for numpy"):
                read_pickle(tmp_path / "x")
            continue
        found = read_pickle(tmp_path / "x")["a"]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_a_header_of_an_archive_that_is_itself_huge_is_refused(tmp_path: Path) -> None:
    huge = tarfile.TarInfo("data_batch_1")
    huge.type, huge.size = tarfile.XHDTYPE, 1 << 40
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("first"))
        tar.fileobj.write(huge.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(ValueError, match=r"x\.tar is truncated or not a tar archive"):
        unpack(tmp_path / "x.tar", tmp_path, wanted={"data_batch_1"})


def test_a_file_of_an_archive_that_is_too_large_for_its_data_set_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upright.data.archive._MOST_BYTES", 100)
    info = tarfile.TarInfo("data_batch_1")
    info.size = 101
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        tar.addfile(info, io.BytesIO(bytes(101)))
    with pytest.raises(ValueError, match="larger than any file of a data set: 101"):
        unpack(tmp_path / "x.tar.gz", tmp_path, wanted={"data_batch_1"})
    assert [file.name for file in tmp_path.iterdir()] == ["x.tar.gz"]


def test_what_is_no_archive_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"^x\.tar\.gz is truncated[^\n]*$"):
        unpack(tmp_path / "x.tar.gz", tmp_path, wanted=set())


def lying_array(shape: str) -> bytes:
    """An array that says it has this shape, and has 64 bytes."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


@pytest.mark.parametrize(
    ("shape", "cause"),
    [("(99999999999, 99, 99, 3)", ValueError), ("(" * 200, tokenize.TokenError)],
)
def test_an_array_that_lies_about_its_shape_is_named(
    shape: str, cause: type[Exception], tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("images.npy", lying_array(shape))
        file.writestr("labels.npy", lying_array("(64,)"))
    with pytest.raises(ValueError, match=r"x\.npz: images is not an array") as caught:
        read_npz(tmp_path / "x.npz")
    assert isinstance(caught.value.__cause__, cause)
    (tmp_path / "labels.npy").write_bytes(lying_array(shape))
    with pytest.raises(ValueError, match=r"labels\.npy is truncated or not a numpy file"):
        read_mosaics([tmp_path / "labels.npy"])


def test_an_npz_with_a_name_that_is_no_text_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("é.npy", b"")
    content = (tmp_path / "x.npz").read_bytes().replace("é".encode(), b"\xfb\xfb")
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.npz: damaged"):
        read_npz(tmp_path / "x.npz")


def test_names_from_a_file_cannot_steer_the_terminal(tmp_path: Path, capsys) -> None:
    with zipfile.ZipFile(tmp_path / "x\x1b[2J.npz", "w") as file:
        file.writestr("\n\x1b[2J.npy", b"")
    assert main(["train", "std", "--data", f"npz:{tmp_path}/x\x1b[2J.npz", "--out", "x"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.rstrip("\n").isprintable()


def test_labels_that_nest_without_end_are_named(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"labels\.json is truncated or not a JSON list"):
        read_strips([tmp_path / "labels.json"])


def test_a_picture_with_a_piece_of_4_gigabytes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise MemoryError

    (tmp_path / "class").mkdir()
    Image.new("RGB", (1024, 2)).save(tmp_path / "class" / "x.png")
    (tmp_path / "labels.json").write_text("[1, 2]")
    monkeypatch.setattr(ImageFile.ImageFile, "load", no_room)
    with pytest.raises(ValueError, match=r"x\.png is truncated or not the right picture"):
        read_strips([tmp_path / "labels.json", tmp_path / "class" / "x.png"])
    with pytest.raises(ValueError, match=r"x\.png: cannot be read as an image"):
        read_folder(tmp_path)


def test_a_picture_of_more_pixels_than_memory_should_hold_is_named(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    Image.new("1", (8193, 8193)).save(tmp_path / "class" / "x.png")
    with pytest.raises(ValueError, match=r"x\.png: 8193 x 8193 px; shrink it first"):
        read_folder(tmp_path, resize=32)


@pytest.mark.parametrize(
    "name",
    ["resnet99999998", "resnet8x99999", "resnet8x0", "convnet99999", "convnet0", "convnet.."],
)
def test_networks_without_measure_are_refused_at_once(name: str) -> None:
    with pytest.raises(ValueError, match=r"a resnet|a convnet"):
        build_network(name)


@pytest.mark.parametrize("text", ["0-99999999999", "0-10000", "5-1" + 36 * "3"])
def test_seeds_without_end_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 10000"):
        parse_seeds(text)


@pytest.mark.parametrize(
    "values",
    [
        {"steps": 10**400},
        {"learning_rate": 10**400},
        {"drops": [1e-320] * 400},
        {"space": {"max_dx": 10**400, "max_dy": 3, "max_angle": 30, "unit": "px"}},
        {"space": "shift(1e400px) rotate(30)"},
        {"space": f"rotate({10**400})"},
    ],
)
def test_numbers_that_no_float_can_hold_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=r"finite|at most 100 fractions|a space is a text|no limit of"
    ):
        Recipe.from_json(values)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_as_npz(colours(), tmp_path / "colours.npz")
    data, out = f"npz:{tmp_path / 'colours.npz'}", tmp_path / "run"
    command = ["train", "std", "--data", data, "--model", "convnet0.25", "--out", str(out)]
    assert main([*command, "--steps", "2", "--batch", "4", "--device", "cpu"]) == 0
    return out


@pytest.mark.parametrize(
    "changes",
    [{"channels": 10**9}, {"channels": 1e999}, {"classes": "x" * 10**6}, {"classes": 5}],
)
def test_a_run_that_asks_for_a_huge_network_is_refused(
    run: Path, changes: dict[str, object]
) -> None:
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(content | changes))
    with pytest.raises(ValueError, match=r"run\.json is damaged|no weights are for its"):
        load_network(run)


def test_a_run_with_another_objective_is_told_in_one_line(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    content["recipe"]["objective"] = "s4d"
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"run\.json is damaged \(cannot read .*'s4d'[^\n]*$"):
        load_network(run)


def test_a_run_or_a_digest_that_nests_without_end_is_named(run: Path) -> None:
    (newest,) = (run / "checkpoints").glob("*.json")
    newest.write_text("[" * 100_000)
    with pytest.warns(UserWarning, match="is damaged"), pytest.raises(ValueError, match="is whole"):
        RunDirectory.open(run).load()
    (run / "run.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        RunDirectory.open(run)


def brightness(images: torch.Tensor) -> torch.Tensor:
    return torch.stack([9 * images.mean((1, 2, 3)), 4 - images.mean((1, 2, 3))], 1)


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("images/labels", None),
        ("images/labels", lambda array: array[:1]),
        ("images/natural_fooled", lambda array: array.float()),
        ("first_logits", lambda array: array.bool()),
        ("first_logits", lambda array: array[0, 0]),
    ],
)
def test_a_state_with_a_forged_digest_is_still_refused(array: str, change, tmp_path: Path) -> None:
    data = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    file = tmp_path / "state"
    evaluate(brightness, data, attacks=["wo-2"], state=file)
    content = file.read_bytes()
    arrays, header = load(content), content[8 : 8 + int.from_bytes(content[:8], "little")]
    metadata = json.loads(header)["__metadata__"]
    del metadata["sha256"]
    old = arrays.pop(array)
    if change is not None:
        arrays[array] = change(old).contiguous()
    file.write_bytes(save(arrays, metadata | {"sha256": _digest(metadata, arrays)}))
    with pytest.raises(ValueError, match="remove it"):
        evaluate(brightness, data, attacks=["wo-2"], state=file)
