"""Readers of text that people type: the notation, names, options, arguments, the environment."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
from guard import Target

from upright import Preprocess, cli
from upright.attacks import parse_attack
from upright.cli import options as cli_options
from upright.data import LabelledImages, load_data, read_classes
from upright.models import build_network
from upright.objective import Objective, known_objective, name_penalty
from upright.objective.notation import REGULARIZERS
from upright.penalties import L2
from upright.sources import load_model

__all__ = ["TARGETS"]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _objective(data: bytes, _: Path) -> None:
    known = known_objective(_text(data))  # of a record, where a name that is none is no error
    objective = Objective.parse(_text(data))
    assert Objective.parse(str(objective)) == objective == known, "not what was written"


def _attack(data: bytes, _: Path) -> None:
    attack = parse_attack(_text(data))
    assert attack.passes_per_image >= 1


def _penalty(data: bytes, _: Path) -> None:
    with mock.patch.object(REGULARIZERS, "_entries", dict(REGULARIZERS._entries)):
        name_penalty(_text(data), L2(scale=3.0))
        assert Objective.parse(f"{_text(data)}(rob, rnd)").penalty == L2(scale=3.0)


def _network(data: bytes, _: Path) -> None:
    with torch.device("meta"):
        build_network(_text(data))


def _model(data: bytes, folder: Path) -> None:
    """Names that nobody's code answers to: what a user's own code does is the user's choice."""
    with contextlib.chdir(folder):
        load_model(f"no_such_package.{_text(data)}")


def _preprocess(data: bytes, folder: Path) -> None:
    with contextlib.chdir(folder):
        told = Preprocess.of(_text(data))
    assert Preprocess.of(told.told) == told, "not what was told"
    told.around(torch.nn.Flatten())


def _classes(data: bytes, folder: Path) -> None:
    (folder / "names").write_bytes(data)
    names = read_classes(folder / "names")
    assert len(names.shown) == len(names) >= 1
    names.unknown(LabelledImages(torch.zeros(1, 1, 1, 1).byte(), torch.zeros(1).long(), ("cat",)))


def _data(data: bytes, folder: Path) -> None:
    with contextlib.chdir(folder), mock.patch.dict(os.environ, UPRIGHT_DATA=str(folder)):
        load_data(_text(data), limit=2)


def _space(text: str) -> object:
    """A whole text, or the limit of the paper's shifts."""
    if text.startswith("="):
        return cli_options.parse_space(text[1:], None, None)
    return cli_options.parse_space(None, text, None)


def _folder(text: str) -> None:
    name = cli_options.folder_name(text, 1)
    assert Path(name).name == name, "no plain name"


def _options(data: bytes, folder: Path) -> None:
    kind, text = data[:1], _text(data[1:])
    readers: dict[bytes, Callable[[str], object]] = {
        b"d": cli_options.parse_device,
        b"s": cli_options.parse_seeds,
        b"f": _folder,
        b"w": lambda text: cli_options.writable(folder / text),
    }
    with contextlib.chdir(folder):  # where no file is that a space might name
        readers.get(kind, _space)(text)


def _environment(data: bytes, folder: Path) -> None:
    value = os.fsdecode(data.replace(b"\0", b""))
    told = {"UPRIGHT_DATA": value, "UPRIGHT_ZOO": value}
    with contextlib.chdir(folder), mock.patch.dict(os.environ, told):
        _run(["data", "list"])
        _run(["data", "check"])
        _run(["zoo", "list"])


def _arguments(data: bytes, folder: Path) -> None:
    """All of the command line but for the work itself, which may take as long as it is told to."""
    stub = mock.Mock(side_effect=ValueError("no work is done here"))
    names = ("cli.train.train_together", "measure.measured.load_pretrained", "cli.data.fetch_set")
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, UPRIGHT_DATA=str(folder)))
        for name in names:
            stack.enter_context(mock.patch(f"upright.{name}", stub))
        _run(_arguments_of(data))


def _arguments_of(data: bytes) -> list[str]:
    return os.fsdecode(data.replace(b"\0", b"")).split("\n")


def _run(arguments: list[str]) -> None:
    # As a terminal has them: what cannot be written is an error on one, and escaped on the other.
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding="utf-8")
    err = io.TextIOWrapper(written, encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
        out.flush()
        err.flush()
    assert code in (0, 1, 2), f"exit code {code}"
    said = written.getvalue()
    assert b"Traceback" not in said, said
    assert code == 0 or said, "an error without a message"


def _lines(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


_OBJECTIVES = (
    *("std", "std*", "KL(rob, Wo-10)", "KL-C(mix, S-PGD)", "L2(nat, rnd×4; λ=0.5)"),
    *("ALP(rob, s-pgd; steps=3, step=0.1/0.2/0.3, restarts=2)", "AT(rob, grid-3x3x7)"),
    *("KL(nat, wo-3; direction=transformed, search=penalty)", "L2(mix, rnd; scale=1e9999)"),
    *("AT(rob, Wo-99999999999999999999)", "AT(" * 50, "KL(rob, rnd; λ=nan)"),
)
_PATHS = ("~", "~nobody/x", "..", "a/b", "/", "//", "x" * 300, "\ud7ff", "a\nb", "$HOME", "con")

TARGETS = (
    Target("objective", _objective, _lines(*_OBJECTIVES)),
    Target(
        "attack",
        _attack,
        _lines("grid-775", "grid-7500", "grid-5x5x31", "wo-10", "rnd", "s-pgd", "spgd", "WO-3",
               "grid-0x1x1", "wo-0", "wo-" + "9" * 5000, "grid-99999999x99999999x99999999"),
    ),
    Target("penalty", _penalty, _lines("JS", "KL", "a-b", "x y", "", "(", "λ", "std")),
    Target(
        "network",
        _network,
        _lines("resnet32", "resnet14x0.5", "convnet", "convnet0.25", "resnet99999998", "resnet8x0",
               "convnet0", "convnet..", "convnet999999999", "resnet8x99999", "resnet" + "9" * 99),
    ),
    Target(
        "model",
        _model,
        _lines("x:make", "x.py:make", "m.onnx", "m.pt", "m.pt2", "timm:x", *_PATHS),
    ),
    Target(
        "preprocess",
        _preprocess,
        _lines('{"mean": [0.5], "std": 0.5, "offset": 1}',
               '{"layout": "channels-last", "channels": "bgr"}',
               '{"image_mean": [0.5], "image_std": [0.5], "size": {"shortest_edge": 224}}',
               '{"image_processor": {"do_normalize": false, "rescale_factor": 0}}',
               '{"mean": [0], "std": [1], "input_size": [3, 224, 224], "crop_pct": 0.9}',
               '{"pretrained_cfg": {"input_size": 3}}', "imagenet", "{}", "[", *_PATHS),
    ),
    Target(
        "classes",
        _classes,
        _lines("cat\ndog", "cat, Felis\n\ndog", '["cat", ["n01440764", "tench"]]',
               '{"0": "cat", "1": "dog"}', '{"id2label": {"0": "cat"}}', '{"x": 1}', "[[]]", "["),
    ),
    Target(
        "data",
        _data,
        _lines("glyphs", "cifar10", "svhn", "npz:x.npz", "folder:.", "npz:", "folder", *_PATHS),
    ),
    Target(
        "options",
        _options,
        _lines("dcpu", "dcuda:7", "dmeta", "d", "s0-4", "s0,2,3", "s0-99999999999", "s5-1", "s,",
               "fKL(rob, Wo-10)", "f/../..", "wa/b", "w" + "x" * 300, "p3", "p10%", "pnan",
               "p1e999", "p-1", "p=shift(3px) rotate(30)", "p=zoom(0.9..1.1) blur(2px)",
               "p=zoom(0)", "p=shift(1,2,3)", "p=rotat(30)", "p=" + "rotate " * 900,
               "p=x.py:wave(2)"),
    ),
    Target("environment", _environment, _lines(*_PATHS)),
    Target(
        "arguments",
        _arguments,
        _lines(
            "evaluate\nm.py:make\n--data\nglyphs\n--limit\n2",
            "evaluate\nx\n--data\nglyphs\n--attack\nwo-3\n--attack\ngrid-3x3x3\n--json\na.json",
            "train\nKL(rob, Wo-2)\n--data\nglyphs\n--out\nrun\n--seeds\n0-4\n--steps\n3",
            "train\nstd\n--data\nx\n--out\nr\n--max-translation\n10%\n--lambda\n2\n--no-flips",
            "data\nlist",
            "data\ncheck\ncifar10",
            "data\nfetch\nsvhn\n--from\nx.mat",
            "zoo\nlist",
            "zoo\nshow\n../x",
            "zoo\nadd\nrun\n--into\nx\n--limit\n2\n--attack\nwo-3",
            "--version",
            "--help",
            "evaluate\n--help",
        ),
    ),
)  # fmt: skip
