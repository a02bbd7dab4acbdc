"""Models by name: each kind loads what it says, and each mistake is explained in one line."""

from __future__ import annotations

import random
import re
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from torch import Tensor, nn

from upright import evaluate
from upright.checks import SuspiciousInput
from upright.sources import load_model, load_pretrained, model_names, model_source
from upright.sources.registry import SOURCES
from upright.sources.sized import Sized

CPU = torch.device("cpu")
WEIGHTS = np.random.default_rng(0).normal(size=(3 * 4 * 5, 3)).astype(np.float32)
LAYER_SHAPE = (3, 4, 5)


@pytest.fixture(autouse=True)
def _own_path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def pictures(count: int) -> Tensor:
    return torch.rand(count, *LAYER_SHAPE, generator=torch.Generator().manual_seed(count))


def by_hand(images: Tensor) -> np.ndarray:
    return images.numpy().reshape(len(images), -1) @ WEIGHTS


def linear() -> nn.Module:
    layer = nn.Linear(len(WEIGHTS), 3, bias=False)
    layer.weight.data = torch.from_numpy(WEIGHTS.T.copy())
    return nn.Sequential(nn.Flatten(), layer).eval()


def write(folder: Path, text: str, name: str = "model.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def write_onnx(
    folder: Path,
    *,
    batch: int | str = "batch",
    image: tuple[int | str, ...] = LAYER_SHAPE,
    element: int = TensorProto.FLOAT,
    extra_input: bool = False,
    labels: bool = False,
) -> str:
    nodes = [
        helper.make_node("Cast", ["x"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["real"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", element, [batch, *image])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])]
    if extra_input:
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1]))
    if labels:
        nodes.append(helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0))
        outputs = [helper.make_tensor_value_info("label", TensorProto.INT64, [batch])]
    weights = helper.make_tensor("w", TensorProto.FLOAT, WEIGHTS.shape, WEIGHTS.ravel())
    graph = helper.make_graph(nodes, "linear", inputs, outputs, [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    return str(folder / "model.onnx")


def write_pt2(folder: Path, model: nn.Module, *inputs: Tensor, batch: object = None) -> str:
    shapes = tuple({0: batch} if batch else None for _ in inputs)
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    torch.export.save(program, folder / "model.pt2")
    return str(folder / "model.pt2")


class TestPythonCode:
    def test_a_module_comes_in_evaluation_mode_and_on_the_device(self, tmp_path):
        file = write(tmp_path, "from torch import nn\ndef make():\n    return nn.Dropout()\n")
        model = load_model(f"{file}:make", device="meta")
        assert isinstance(model, nn.Dropout)
        assert not model.training

        file = write(tmp_path, "from torch import nn\nnet = nn.Linear(2, 3)\n")
        model = load_model(f"{file}:net", device="meta")
        assert isinstance(model, nn.Linear)
        assert model.weight.device.type == "meta"

    def test_a_factory_may_be_a_class_or_give_a_plain_function(self, tmp_path):
        file = write(
            tmp_path,
            "from torch import nn\n"
            "class Net(nn.Module):\n"
            "    def forward(self, x): return 2 * x\n"
            "def make(scale=3): return lambda x: scale * x\n",
        )
        assert load_model(f"{file}:Net")(torch.ones(1)) == 2
        assert load_model(f"{file}:make")(torch.ones(1)) == 3

    def test_a_file_imports_what_lies_beside_it_even_when_called(self, tmp_path):
        write(tmp_path, "SCALE = 5\n", "beside_for_test.py")
        file = write(
            tmp_path,
            "def make():\n"
            "    def model(x):\n"
            "        from beside_for_test import SCALE\n"
            "        return SCALE * x\n"
            "    return model\n",
        )
        assert load_model(f"{file}:make")(torch.ones(1)) == 5

    def test_a_file_does_not_replace_the_module_of_its_name(self, tmp_path):
        file = write(
            tmp_path,
            "from __future__ import annotations\n"
            "from dataclasses import dataclass\n"
            "@dataclass\n"  # looks its module up by name
            "class Model:\n"
            "    scale: int = 7\n"
            "    def __call__(self, x): return self.scale * x\n",
            "random.py",
        )
        assert load_model(f"{file}:Model")(torch.ones(1)) == 7
        assert sys.modules["random"] is random

    def test_a_module_is_found_in_the_current_folder(self, tmp_path, monkeypatch):
        (tmp_path / "package_for_test").mkdir()
        write(tmp_path / "package_for_test", "def make(): return lambda x: 11 * x\n", "nets.py")
        monkeypatch.chdir(tmp_path)
        assert load_model("package_for_test.nets:make")(torch.ones(1)) == 11

    @pytest.mark.parametrize(
        ("text", "factory", "message"),
        [
            ("def make(): pass\n_x = 1\n", ":mak", "no 'mak'; choose from FILE:make$"),
            ("from torch import nn\nnet = nn.ReLU()\n", "", "needs a factory; choose .* FILE:net$"),
            ("from os import getcwd\n", ":make", "no 'make'; .* it has none$"),
            ("def make(depth, *, width): pass\n", ":make", r"arguments \(depth, width\), but"),
            ("def make(): return 3\n", ":make", "gives a int, which is no model"),
            ("make = 'x'\n", ":make", "gives a str, which is no model"),
            (
                "def make():\n  raise KeyError('k')\n",
                ":make",
                r":make raised KeyError: 'k' \(line 2",
            ),
            ("import sys\nsys.exit(3)\n", ":make", r"raised SystemExit: 3 \(line 2\)$"),
            ("import not_there_at_all\n", ":make", r"No module named 'not_there_at_all' \(line 1"),
            ("def make(:\n", ":make", r"raised SyntaxError: .*line 1\)$"),
        ],
    )
    def test_mistakes_in_a_file(self, tmp_path, text, factory, message):
        file = write(tmp_path, text)
        with pytest.raises(ValueError, match=message.replace("FILE", re.escape(file))) as caught:
            load_model(file + factory)
        assert "\n" not in str(caught.value)

    def test_a_missing_file_and_a_missing_module(self, tmp_path, monkeypatch):
        with pytest.raises(ValueError, match=r"gone\.py: no such file"):
            load_model("gone.py:make")
        with pytest.raises(ValueError, match="no module is called 'nowhere_to_be_found'"):
            load_model("nowhere_to_be_found.nets:make")
        write(tmp_path, "import torch.nowhere\n", "imports_badly.py")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match=r"raised ModuleNotFoundError: .*'torch\.nowhere'"):
            load_model("imports_badly:make")


class TestNames:
    def test_a_wrong_name_lists_the_right_forms(self):
        with pytest.raises(ValueError, match="no model is called 'resnet'") as caught:
            load_model("resnet")
        assert all(form in str(caught.value) for form in model_names())
        assert set(model_names()) >= {"FILE.onnx", "FILE.pt2", "FILE.py:FACTORY", "timm:NAME"}

    def test_a_misspelt_kind_is_no_missing_module(self):
        with pytest.raises(ValueError, match=r"called 'tim', and no other kind .* timm:NAME, tor"):
            load_model("tim:resnet18")

    @pytest.mark.parametrize("suffix", ["pt", "pth", "ckpt", "safetensors"])
    def test_weights_alone_are_no_model(self, tmp_path, suffix):
        save = save_file if suffix == "safetensors" else torch.save
        save(linear().state_dict(), tmp_path / f"net.{suffix}")
        with pytest.raises(ValueError, match="holds weights, which need a network"):
            load_model(str(tmp_path / f"net.{suffix}"))

    @pytest.mark.parametrize("suffix", ["bin", "ckpt", "pt", "pth", "safetensors", "ts"])
    @pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x80\x02]q\x00."])
    def test_what_can_be_read_by_nobody_is_not_said_to_hold_weights(
        self, tmp_path, suffix, content
    ):
        path = tmp_path / f"net.{suffix}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot be read as weights: \w{2}.*:FUNCTION"):
            load_model(str(path))

    def test_a_whole_module_is_not_said_to_be_weights_and_its_code_is_not_run(self, tmp_path):
        torch.save(linear(), tmp_path / "whole.pt")
        with pytest.raises(ValueError, match=r"it holds a torch\.nn\..* code would have to"):
            load_model(str(tmp_path / "whole.pt"))

    @pytest.mark.parametrize("suffix", ["bin", "pt", "safetensors", "ts"])
    def test_a_missing_file_of_weights_is_no_such_file(self, suffix):
        with pytest.raises(ValueError, match=rf"gone\.{suffix}: no such file"):
            load_model(f"gone.{suffix}")

    def test_a_missing_folder_is_told(self):
        with pytest.raises(ValueError, match="no such folder, and no model is called 'runs/gone'"):
            load_model("runs/gone")

    def test_a_new_kind_is_one_function_and_goes_before_modules(self, monkeypatch):
        monkeypatch.setattr(SOURCES, "_entries", dict(SOURCES._entries))

        @model_source("attic:NAME", "attic:(.+)")
        def load(name: str, *, device: torch.device):
            return lambda images: (name, device, images)

        assert load_model("attic:small")(1) == ("small", CPU, 1)
        assert "attic:NAME" in model_names()


class TestOnnx:
    @pytest.mark.parametrize("batch", ["batch", 4])
    @pytest.mark.parametrize("count", [1, 4, 6])
    def test_any_number_of_images_whatever_batch_was_exported(self, tmp_path, batch, count):
        model = load_model(write_onnx(tmp_path, batch=batch))
        images = pictures(count)
        np.testing.assert_allclose(model(images).numpy(), by_hand(images), rtol=1e-5, atol=1e-5)

    def test_s_pgd_says_that_it_needs_gradients_and_random_search_needs_none(self, tmp_path):
        model, images = load_model(write_onnx(tmp_path)), pictures(5)
        data = images, torch.from_numpy(by_hand(images).argmax(1))
        assert evaluate(model, data, attacks=["wo-2"]).natural_accuracy == 1
        with pytest.raises(ValueError, match="needs the gradient of the model"):
            evaluate(model, data, attacks=["s-pgd"])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"extra_input": True}, r"2 inputs \(x, mask\); export"),
            ({"labels": True}, r"output of .* is tensor\(int64\)"),
            ({"element": TensorProto.FLOAT16}, r"input of .* is tensor\(float16\)"),
        ],
    )
    def test_other_signatures_are_explained(self, tmp_path, options, message):
        with pytest.raises(ValueError, match=message):
            load_model(write_onnx(tmp_path, **options))

    def test_images_of_another_size_are_explained(self, tmp_path):
        model = load_model(write_onnx(tmp_path))
        with pytest.raises(ValueError, match=r"images of 3 x 4 x 5 .* but these are 3 x 5 x 5"):
            model(torch.zeros(1, 3, 5, 5))

    @pytest.mark.parametrize(
        ("shape", "last"),
        [
            ((8, 6, 3), True),
            ((8, 8, 1), True),
            (("h", "w", 3), True),
            ((3, 8, 6), False),
            ((3, 8, 3), False),
            ((3, "h", "w"), False),
            (("c", "h", "w"), False),
        ],
    )
    def test_channels_last_are_seen_by_the_shape(self, tmp_path, shape, last):
        node = helper.make_node("Flatten", ["x"], ["y"])
        ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])]
        ends.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
        graph = helper.make_graph([node], "flat", ends[:1], ends[1:])
        opset = [helper.make_opsetid("", 17)]
        onnx.save(
            helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "model.onnx"
        )
        found = load_pretrained(str(tmp_path / "model.onnx"))
        assert found.preprocess.layout == ("channels-last" if last else None)
        assert found.preprocess.center_crop == (8 if shape[:2] == (8, 8) else None)
        *height, channels = shape if last else (*shape[1:], shape[0])
        sizes = [7 if isinstance(size, str) else size for size in (channels, *height)]
        images = torch.rand(2, *sizes)
        expected = np.moveaxis(images.numpy(), 1, 3) if last else images.numpy()
        assert np.array_equal(found.model()(images).numpy(), expected.reshape(2, -1))

    def test_other_channels_are_not_resized(self, tmp_path):
        model = load_model(write_onnx(tmp_path))
        with pytest.raises(
            ValueError, match=r"these are 1 x 4 x 5; the number of channels differs"
        ):
            model(torch.zeros(1, 1, 4, 5))

    def test_what_the_runtime_refuses_is_told_once_with_the_layout(self, tmp_path, capfd):
        saved = write_onnx(tmp_path, image=("c", "h", "w"))
        with pytest.raises(ValueError, match=r"not take images of 3 x 5 x 5: .*--resize") as caught:
            load_model(saved)(torch.zeros(1, 3, 5, 5))
        assert str(caught.value).endswith("if it takes channels last, give --layout channels-last")
        with pytest.raises(
            ValueError, match=r"of 5 x 5 x 3: .* channels first, leave out --layout"
        ):
            load_model(saved, preprocess={"layout": "channels-last"})(torch.zeros(1, 3, 5, 5))
        assert capfd.readouterr().err == ""

    def test_damaged_and_missing_files(self, tmp_path):
        (tmp_path / "bad.onnx").write_bytes(b"no graph")
        with pytest.raises(ValueError, match=r"bad\.onnx cannot be read as an ONNX model"):
            load_model(str(tmp_path / "bad.onnx"))
        with pytest.raises(ValueError, match=r"gone\.onnx: no such file"):
            load_model("gone.onnx")

    def test_without_onnxruntime_it_names_the_extra(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(ValueError, match=r"needs onnxruntime, .* the extra 'onnx'"):
            load_model(write_onnx(tmp_path))


class TestExported:
    def test_one_that_takes_bytes_is_refused(self, tmp_path):
        class Bytes(nn.Module):
            def forward(self, images):
                return images.float().mean((2, 3))

        images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
        file = write_pt2(tmp_path, Bytes().eval(), images)
        with pytest.raises(ValueError, match=r"takes images in torch.uint8, .* converts them"):
            load_model(file)

    @pytest.mark.parametrize(
        "batch", [torch.export.Dim("batch"), torch.export.Dim("batch", max=4), None]
    )
    def test_any_number_of_images_whatever_batch_was_exported(self, tmp_path, batch):
        model = load_model(write_pt2(tmp_path, linear(), pictures(4), batch=batch))
        for count in (1, 4, 6):
            images = pictures(count)
            with torch.no_grad():
                logits = model(images).numpy()
            np.testing.assert_allclose(logits, by_hand(images), rtol=1e-5, atol=1e-5)

    def test_s_pgd_has_its_gradients_and_no_warning_of_training_mode(self, tmp_path):
        model = load_model(write_pt2(tmp_path, linear(), pictures(4)))
        data = pictures(6), torch.zeros(6, dtype=torch.long)
        here, there = (evaluate(each, data, attacks=["s-pgd"]) for each in (linear(), model))
        expected, found = here.attacks["s-pgd"].worst_pose, there.attacks["s-pgd"].worst_pose
        torch.testing.assert_close(found.values, expected.values)

    @pytest.mark.parametrize("layer", [nn.BatchNorm2d(3), nn.Dropout(0.5)])
    def test_training_mode_is_told(self, tmp_path, layer):
        network = nn.Sequential(layer, linear())
        with pytest.warns(SuspiciousInput, match=r"model\.pt2 was exported in training mode"):
            load_model(write_pt2(tmp_path, network.train(), pictures(4)))
        load_model(write_pt2(tmp_path, network.eval(), pictures(4)))  # without a warning

    def test_half_precision_takes_float_images(self, tmp_path):
        model = load_model(write_pt2(tmp_path, linear().bfloat16(), pictures(4).bfloat16()))
        assert model(pictures(4)).dtype == torch.bfloat16

    def test_other_signatures_and_sizes_are_explained(self, tmp_path):
        class Two(nn.Module):
            def forward(self, first, second):
                return first + second

        class Named(nn.Module):
            def forward(self, images):
                return {"features": images.flatten(1)}

        images = pictures(2)
        with pytest.raises(ValueError, match=r"takes 2 inputs \(first, second\); export"):
            load_model(write_pt2(tmp_path, Two(), images, images))
        model = load_model(write_pt2(tmp_path, Named(), images))
        with pytest.raises(ValueError, match=r"logits .*, but returned a dict with features"):
            model(images)
        with pytest.raises(ValueError, match=r"images of 3 x 4 x 5 .* but these are 1 x 4 x 5"):
            model(torch.zeros(2, 1, 4, 5))

    def test_damaged_files_are_explained_once(self, tmp_path, capfd, caplog):
        (tmp_path / "bad.pt2").write_bytes(b"no archive")
        with pytest.raises(ValueError, match=r"bad\.pt2 cannot be read as a program of torch"):
            load_model(str(tmp_path / "bad.pt2"))
        assert capfd.readouterr().err == ""
        assert caplog.records == []


def write_torchscript(folder: Path, model: nn.Module, how: str, name: str = "model.pt") -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = torch.jit.trace(model, pictures(2)) if how == "trace" else torch.jit.script(model)
        torch.jit.save(torch.jit.freeze(made) if how == "freeze" else made, folder / name)
    return str(folder / name)


class Picky(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        if images.shape[2] != 7:
            raise ValueError("no such images")
        return images.flatten(1)


class TestTorchScript:
    @pytest.mark.parametrize("how", ["script", "trace", "freeze"])
    def test_it_gives_what_was_saved_for_any_number_of_images(self, tmp_path, how):
        model = load_model(write_torchscript(tmp_path, linear(), how))
        for count in (1, 6):
            with torch.no_grad():
                logits = model(pictures(count)).numpy()
            np.testing.assert_allclose(logits, by_hand(pictures(count)), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("ending", ["pt", "pth", "ts", "torchscript"])
    def test_it_is_known_by_its_content_whatever_its_ending(self, tmp_path, ending):
        saved = write_torchscript(tmp_path, linear(), "script", f"model.{ending}")
        assert load_model(saved)(pictures(2)).shape == (2, 3)

    def test_it_can_be_attacked_and_is_not_in_training_mode(self, tmp_path):
        network = nn.Sequential(nn.Dropout(0.9), linear()).train()
        model = load_model(write_torchscript(tmp_path, network, "script"))
        data = pictures(6), torch.zeros(6, dtype=torch.long)
        here, there = (evaluate(each, data, attacks=["s-pgd"]) for each in (linear(), model))
        expected, found = here.attacks["s-pgd"].worst_pose, there.attacks["s-pgd"].worst_pose
        torch.testing.assert_close(found.values, expected.values)

    @pytest.mark.parametrize("how", ["script", "trace", "freeze"])
    def test_images_that_it_does_not_take_are_explained_in_a_line(self, tmp_path, how):
        model = load_model(write_torchscript(tmp_path, linear(), how))
        with pytest.raises(
            RuntimeError,
            match=r"^the model does not take images of 3 x 5 x 5: mat1 and mat2 shapes [^\n;]*; "
            r"bring .* --resize and --center-crop, or, .* --layout channels-last$",
        ):
            model(torch.zeros(1, 3, 5, 5))

    def test_what_its_code_raises_is_told_without_the_traceback(self, tmp_path):
        model = load_model(write_torchscript(tmp_path, Picky(), "script"))
        with pytest.raises(RuntimeError, match=r"images of 3 x 4 x 5: no such images; bring"):
            model(pictures(2))

    def test_half_precision_is_asked_in_its_own(self, tmp_path):
        model = load_model(write_torchscript(tmp_path, linear().bfloat16(), "script"))
        data = pictures(2), torch.zeros(2, dtype=torch.long)
        assert evaluate(model, data, attacks=["rnd"]).attacks["rnd"].accuracy >= 0

    def test_a_missing_or_damaged_file_is_explained_in_a_line(self, tmp_path):
        with pytest.raises(ValueError, match=r"none\.pt: no such file; give the path"):
            load_model(str(tmp_path / "none.pt"))
        with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
            archive.writestr("bad/constants.pkl", b"no pickle")
            archive.writestr("bad/code/model.py", b"no code")
        with pytest.raises(
            ValueError, match=r"bad\.pt cannot be read as a model of torch\.jit"
        ) as e:
            load_model(str(tmp_path / "bad.pt"))
        assert "\n" not in str(e.value)


def test_sized_fills_up_to_the_least_batch_and_splits_at_the_most():
    sizes = []

    def model(images: Tensor) -> Tensor:
        sizes.append(len(images))
        return images.flatten(1)

    images = torch.rand(7, 1, 2, 2)
    answer = Sized(model, 2, 3, (None, 2, 2))(images)
    assert sizes == [3, 3, 2]
    assert torch.equal(answer, images.flatten(1))
