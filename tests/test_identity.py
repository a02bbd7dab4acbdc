"""A state answers for one model alone, whether that is a module, a file or a function."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from upright import (
    PAPER,
    Evaluation,
    Normalised,
    Preprocess,
    RandomSearch,
    ensemble,
    evaluate,
    tta,
)
from upright.evaluation import Oracle
from upright.identity import NOBODY, FromFile, Identity
from upright.measure.guest import guest_digest
from upright.models import in_half_precision
from upright.sources import load_model
from upright.train.two_stage import RunLocator, StnPlus

IMAGES = torch.arange(20 * 3 * 8 * 8).reshape(20, 3, 8, 8).remainder(97) / 97
LABELS = torch.arange(20) % 3
STATES = Path(__file__).parent / "states"


def measure(model: Any, state: Path) -> Evaluation:
    return evaluate(model, (IMAGES, LABELS), attacks=[RandomSearch(2)], state=state)


class Weighted(nn.Module):
    """The mean of each channel, times a weight."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(factor * torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3)) * self.weight


def write_onnx(folder: Path, factor: float, *, beside: bool = False) -> str:
    weight = numpy_helper.from_array(factor * np.array([[1, 2, 3]], np.float32), "weight")
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node("Mul", ["means", "weight"], ["logits"]),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(nodes, "weighted", [images], [logits], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "net.onnx"
    onnx.save(model, path, save_as_external_data=beside, location="net.data", size_threshold=0)
    return str(path)


def write_onnx_with_weights_beside(folder: Path, factor: float) -> str:
    (folder / "net.data").unlink(missing_ok=True)  # onnx would add to it
    return write_onnx(folder, factor, beside=True)


def write_exported(folder: Path, factor: float) -> str:
    program = torch.export.export(Weighted(factor).eval(), (IMAGES,))
    torch.export.save(program, folder / "net.pt2")
    return str(folder / "net.pt2")


def write_scripted(folder: Path, factor: float, *, freeze: bool = False) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.trace(Weighted(factor).eval(), (IMAGES,))
        module = torch.jit.freeze(module) if freeze else module
        torch.jit.save(module, folder / "net.pt")
    return str(folder / "net.pt")


def write_frozen(folder: Path, factor: float) -> str:
    return write_scripted(folder, factor, freeze=True)


WRITERS = [
    write_onnx,
    write_onnx_with_weights_beside,
    write_exported,
    write_scripted,
    write_frozen,
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_with_other_weights_is_another_model(
    tmp_path: Path, write: Callable[[Path, float], str]
) -> None:
    """By a millionth: no answer tells."""
    name, state = write(tmp_path, 1.0), tmp_path / "state"
    expected = measure(load_model(name), state)
    assert torch.equal(measure(load_model(name), state).natural_loss, expected.natural_loss)
    write(tmp_path, 1.000001)
    for other in (load_model(name), load_model(f"tta-2:{name}")):
        with pytest.raises(ValueError, match=r"another evaluation \(other model\); remove it"):
            measure(other, state)


def test_what_stands_around_a_file_has_its_digest(tmp_path: Path) -> None:
    model = load_model(write_onnx(tmp_path, 1.0))
    assert isinstance(model, FromFile)
    known = Identity.of(model)
    assert known.files == model.digest
    assert Identity.of(nn.Sequential(model)) == known
    averaged, otherwise = (Identity.of(tta(model, poses)) for poses in (2, 3))
    assert averaged.files == otherwise.files == known.files
    assert averaged != otherwise
    half = Identity.of(in_half_precision(model, "bfloat16"))
    assert half.files == known.files
    assert half.weights not in (None, Identity.of(in_half_precision(model, "float16")).weights)


def test_a_file_that_names_others_everywhere_is_read_as_one(tmp_path: Path) -> None:
    """What lies outside the folder of an ONNX file is not looked at, whatever that says."""
    from upright.sources.onnx_file import _weights_beside

    (tmp_path / "in" / "sub").mkdir(parents=True)
    for name in ("out", "in/data", "in/sub/data", "in/" + 200 * "x"):
        (tmp_path / name).write_bytes(b"weights")
    named = [b"../out", str(tmp_path / "out").encode(), b"data", b"sub/data", 200 * b"x", b"\0"]
    lengths = [bytes([len(n)]) if len(n) < 128 else bytes([len(n) % 128 + 128, 1]) for n in named]
    pairs = zip(lengths, named, strict=True)
    content = b"".join(b"\n\x08location\x12" + length + name for length, name in pairs)
    (tmp_path / "in" / "net.onnx").write_bytes(content)
    found = {path.name for path in _weights_beside(tmp_path / "in" / "net.onnx")}
    assert found == {"data", 200 * "x"}


def test_a_script_is_called_as_it_was_before_it_knew_its_file(tmp_path: Path) -> None:
    loaded = load_model(write_scripted(tmp_path, 1.0))
    assert guest_digest(loaded, "net.pt") == guest_digest(Weighted(), "net.pt")


@pytest.mark.parametrize("factor", [1.001, 0.999])
def test_a_function_whose_answers_differ_by_a_thousandth_is_another(
    tmp_path: Path, factor: float
) -> None:
    one, other, state = Weighted(), Weighted(factor), tmp_path / "state"
    measure(lambda images: one(images), state)
    with pytest.raises(ValueError, match="belongs to another model or other data; remove it"):
        measure(lambda images: other(images), state)


def test_a_function_whose_late_answers_differ_is_another(tmp_path: Path) -> None:
    """The seventeenth image counts, too."""
    model, state = Weighted(), tmp_path / "state"
    measure(lambda images: model(images), state)
    special = IMAGES[16].flatten()

    def other(images: Tensor) -> Tensor:
        same = (images.flatten(1) == special).all(1)
        return torch.where(same[:, None], 0.0, model(images))

    with pytest.raises(ValueError, match="belongs to another model or other data; remove it"):
        measure(other, state)


def test_a_function_that_rounds_otherwise_is_the_same(tmp_path: Path) -> None:
    model, state = Weighted(), tmp_path / "state"
    measure(lambda images: model(images), state)
    measure(lambda images: model(images) * (1 + 1e-5), state)


def test_an_older_state_of_a_file_knows_it_by_its_answers(tmp_path: Path) -> None:
    state = tmp_path / "state"
    shutil.copy(STATES / "function.safetensors", state)
    measure(load_model(write_onnx(tmp_path, 1.0)), state)
    with pytest.raises(ValueError, match="belongs to another model or other data; remove it"):
        measure(load_model(write_onnx(tmp_path, 1.001)), state)


@pytest.mark.parametrize("name", ["module", "function"])
def test_a_state_of_an_older_version_continues(tmp_path: Path, name: str) -> None:
    """Written by the version before files were digested, with the answers to 16 images."""
    model, state = Weighted().eval(), tmp_path / "state"
    shutil.copy(STATES / f"{name}.safetensors", state)
    asked = []

    def same(images: Tensor) -> Tensor:
        asked.append(len(images))
        return model(images)

    expected = measure(model, tmp_path / "new")
    found = measure(model if name == "module" else same, state)
    assert sum(asked) <= 20 + 16
    torch.testing.assert_close(found.natural_loss, expected.natural_loss)
    other = Weighted(1.001).eval()
    with pytest.raises(ValueError, match=r"belongs to another (evaluation|model)"):
        measure(other if name == "module" else lambda images: other(images), state)


class Packed(nn.Module):
    """Keeps weights in one of the ways that are not a plain tensor."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def get_extra_state(self) -> object:
        return self.value

    def set_extra_state(self, state: object) -> None:
        self.value = state


def quantised(values: Tensor) -> Tensor:
    return torch.quantize_per_tensor(values, 0.01, 0, torch.qint8)


@pytest.mark.parametrize(
    "pack",
    [
        lambda values: (values, None),
        lambda values: {"weights": values},
        quantised,
        lambda values: (quantised(values), values[0]),
        lambda values: values.to_sparse(),
        lambda values: values.to_sparse_csr(),
    ],
    ids=["tuple", "dict", "quantised", "packed", "sparse", "compressed rows"],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_weights_of_any_kind_are_known_by_every_number(pack: Callable[[Tensor], object]) -> None:
    """One number deep inside, which the text of so large a tensor does not show."""
    values = torch.linspace(-1, 1, 40_000).reshape(200, 200)
    other = values.clone()
    other[100, 100] += 0.5
    known = [Identity.of(Packed(pack(each))) for each in (values, values.clone(), other)]
    assert known[0] == known[1]
    assert known[0].weights != known[2].weights


def test_a_module_with_a_sparse_buffer_is_continued(tmp_path: Path) -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weights", torch.eye(12, 3).to_sparse())

        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1) @ self.get_buffer("weights").to_dense()

    images, labels = torch.rand(6, 3, 2, 2), torch.zeros(6, dtype=torch.long)
    asked = {"attacks": ["wo-2"], "state": tmp_path / "state"}
    found = [evaluate(Sparse().eval(), (images, labels), **asked) for _ in range(2)]
    assert torch.equal(found[0].natural_loss, found[1].natural_loss)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "normalised": lambda model: Normalised(model, [0.5], [0.5]),
    "asked otherwise": lambda model: Preprocess(layout="channels-last").around(model),
    "averaged": lambda model: tta(model, "mirror"),
    "together": lambda model: ensemble(model, model),
    "straightened": lambda model: StnPlus(RunLocator(still, PAPER, "black"), model),
    "shown the pose": lambda model: Oracle(RunLocator(still, PAPER, "black"), model),
}


def still(images: Tensor) -> Tensor:
    return torch.zeros(len(images), 3)


def one(images: Tensor) -> Tensor:
    return images.flatten(1)[:, :3]


def other(images: Tensor) -> Tensor:
    return 2 * images.flatten(1)[:, :3]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_function_inside_of_another_model_leaves_its_identity_open(wrapper: str) -> None:
    """Nothing tells two functions apart: neither may be taken for the other by its wrapper."""
    assert [Identity.of(WRAPPERS[wrapper](function)) for function in (one, other)] == 2 * [NOBODY]
