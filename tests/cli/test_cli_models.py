"""``upright evaluate`` with models of others: their preprocessing, sizes and classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from torch import Tensor, nn

from other_libraries import need
from tiny_runs import Call
from upright.data import imagenet_classes
from upright.record_files import read

SIDE = 8
NOTE = "net.onnx is shown images in [0, 1]; if it was trained on others, give --mean and --std"
ASK = ("--attack", "grid-1x1x3", "--json", "out.json")
PICTURES = {"n01443537": (255, 0, 0), "n07753592": (0, 255, 0), "n02124075": (0, 0, 255)}
"""Goldfish, banana and Egyptian cat, each a colour."""


def write_onnx(
    outputs: int = 1000,
    *,
    offset: int = 0,
    channels_last: bool = False,
    softmax: bool = False,
    mean: float = 0.0,
    std: float = 1.0,
) -> None:
    """A network that knows the three classes by their colour, in images of (x - mean) / std.

    Where they are otherwise, a channel is never as bright as it expects, and it says another class.
    """
    places = [imagenet_classes().number(name) % (outputs - offset) + offset for name in PICTURES]
    weight, bias = np.zeros((3, outputs), np.float32), np.full(outputs, -0.1, np.float32)
    weight[range(3), places], bias[places] = -1, 0
    bright = np.full(3, (1 - mean) / std, np.float32)
    values = {"bright": bright, "weight": weight, "bias": bias}
    axes = [1, 2] if channels_last else [2, 3]
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["means"], axes=axes, keepdims=0),
        helper.make_node("Sub", ["means", "bright"], ["off"]),
        helper.make_node("Abs", ["off"], ["distance"]),
        helper.make_node("MatMul", ["distance", "weight"], ["known"]),
        helper.make_node("Add", ["known", "bias"], ["logits" if softmax else "y"]),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["y"], axis=1))
    shape = ["n", SIDE, SIDE, 3] if channels_last else ["n", 3, SIDE, SIDE]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, "net.onnx")


@pytest.fixture
def upright(upright: Call) -> Call:
    for name, colour in PICTURES.items():
        Path("photos", name).mkdir(parents=True)
        picture = np.broadcast_to(np.array(colour, np.uint8), (12, 16, 3))
        Image.fromarray(np.ascontiguousarray(picture)).save(Path("photos", name, "1.png"))
    return upright


def natural(upright: Call, *options: object, model: str = "net.onnx") -> float:
    code, _, err = upright("evaluate", model, "--data", "folder:photos", *ASK, *options)
    assert code == 0, err
    found: float = json.loads(Path("out.json").read_text())["natural_accuracy"]
    return found


def refused(upright: Call, *options: object, data: str = "folder:photos") -> str:
    code, _, err = upright("evaluate", "net.onnx", "--data", data, "--attack", "rnd", *options)
    assert (code, err.count("\n")) == (2, 1), err
    return err


class TestClasses:
    def test_some_of_imagenets_by_wordnet_id_or_name_at_the_size_of_the_file(
        self, upright: Call
    ) -> None:
        write_onnx()
        assert natural(upright) == 1
        options = json.loads(Path("out.json").read_text())["options"]
        assert (options["resize"], options["center_crop"]) == (SIDE, SIDE)
        for name, word in zip(PICTURES, ("goldfish", "banana", "Egyptian_cat"), strict=True):
            Path("photos", name).rename(Path("photos", word))
        assert natural(upright) == 1

    def test_empty_folders_of_classes_are_no_error(self, upright: Call) -> None:
        write_onnx()
        Path("photos", "n01440764").mkdir()
        Path("photos", "to be sorted").mkdir()
        assert natural(upright) == 1

    def test_folders_that_are_classes_by_their_order_alone_are_told(self, upright: Call) -> None:
        """As many as outputs, of which no names are known: what else could they be?"""
        write_onnx(3)
        ask = ("evaluate", "net.onnx", "--data", "folder:photos", *ASK)
        said = "by their order: 0 n01443537, 1 n02124075, 2 n07753592; --classes FILE names"
        code, _, err = upright(*ask)
        assert (code, err.count(said)) == (0, 1)
        Path("names.txt").write_text("\n".join(PICTURES))
        for number, name in enumerate(sorted(PICTURES)):
            Path("photos", name).rename(Path("photos", str(number)))
        code, _, err = upright(*ask)  # numbers are those of the outputs
        assert (code, "by their order" in err) == (0, False)
        for number, name in enumerate(sorted(PICTURES)):
            Path("photos", str(number)).rename(Path("photos", name))
        code, _, err = upright(*ask, "--classes", "names.txt")
        assert (code, "by their order" in err) == (0, False)

    def test_names_of_a_file(self, upright: Call) -> None:
        write_onnx(10)
        numbers = {imagenet_classes().number(name) % 10: name for name in PICTURES}
        names = [numbers.get(number, f"other {number}") for number in range(10)]
        Path("names.txt").write_text("\n".join(names))
        said = refused(upright)
        assert "3 classes (n01443537, n02124075, n07753592), but the model has 10 outputs" in said
        assert "--classes FILE" in said
        assert natural(upright, "--classes", "names.txt") == 1
        Path("names.json").write_text(json.dumps({"id2label": dict(enumerate(names))}))
        assert natural(upright, "--classes", "names.json") == 1

    @pytest.mark.usefixtures("mishaps")  # the network tiny is known
    def test_a_run_on_some_of_its_classes(self, upright: Call) -> None:
        shape = ("--resize", 8, "--center-crop", 8)
        train = ("std", "--model", "tiny", "--steps", 2, "--batch", 3, "--out", "run")
        Path("photos", "empty").mkdir()
        assert upright("train", *train, "--data", "folder:photos", *shape)[0] == 0
        first = natural(upright, "--details", model="run")
        whole = json.loads(Path("out.json").read_text())["details"]
        Path("photos").rename("all")
        some = [*PICTURES][1:]
        for name in some:
            Path("photos", name).mkdir(parents=True)
            Path("all", name, "1.png").rename(Path("photos", name, "1.png"))
        natural(upright, "--details", model="run")
        part = json.loads(Path("out.json").read_text())["details"]
        classes = sorted([*PICTURES, "empty"])
        assert whole["labels"] == [classes.index(name) for name in sorted(PICTURES)]
        places = [whole["labels"].index(label) for label in part["labels"]]
        assert part["labels"] == [classes.index(name) for name in sorted(some)]
        assert part["natural_correct"] == [whole["natural_correct"][place] for place in places]
        assert 0 <= first <= 1


class TestSizes:
    CONFIG = json.dumps({"mean": 0, "std": 1, "resize": 10, "center_crop": SIDE})

    @pytest.mark.parametrize(
        ("options", "resize", "crop"),
        [
            ([], 10, SIDE),
            (["--view", SIDE], 10, 10),
            (["--resize", 9, "--center-crop", SIDE], 9, SIDE),
            (["--resize", 9], 9, SIDE),
            (["--center-crop", SIDE], 10, SIDE),
            (["--resize", 9, "--view", SIDE], 9, 9),
        ],
    )
    def test_the_usual_size_unless_told(
        self, upright: Call, options: list[object], resize: int, crop: int
    ) -> None:
        write_onnx()
        assert natural(upright, "--preprocess", self.CONFIG, *options) == 1
        told = json.loads(Path("out.json").read_text())["options"]
        assert (told["resize"], told["center_crop"]) == (resize, crop)

    def test_data_of_one_size_keep_it(self, upright: Call) -> None:
        write_onnx()
        np.savez("data.npz", images=np.zeros((4, SIDE, SIDE, 3), np.uint8), labels=[0, 1, 2, 999])
        told = ("--attack", "rnd", "--preprocess", self.CONFIG)
        assert upright("evaluate", "net.onnx", "--data", "npz:data.npz", *told)[::2] == (0, "")


class TestPreprocessing:
    def test_an_onnx_file_without_is_told_in_a_line(self, upright: Call) -> None:
        write_onnx()
        ask = ("evaluate", "net.onnx", "--data", "folder:photos", *ASK)
        code, _, err = upright(*ask)
        assert (code, err.count("\n")) == (0, 1)
        assert err.startswith(f"upright: {NOTE}")
        for told in (("--mean=0", "--std=1"), ("--preprocess", '{"mean": 0, "std": 1}')):
            assert upright(*ask, *told)[2] == ""

    def test_mean_and_std(self, upright: Call) -> None:
        write_onnx(mean=0.5, std=0.25)
        assert natural(upright) < 1
        assert natural(upright, "--mean", "0.5,0.5,0.5", "--std", "0.25") == 1
        config = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "size": SIDE}
        Path("preprocessor_config.json").write_text(json.dumps(config))
        assert natural(upright, "--preprocess", "preprocessor_config.json") == 1
        timm = {"mean": [0.5] * 3, "std": [0.25] * 3, "input_size": [3, SIDE, SIDE], "crop_pct": 1}
        assert natural(upright, "--preprocess", json.dumps(timm)) == 1
        assert natural(upright, "--preprocess", json.dumps(timm), "--mean=0", "--std=1") < 1

    def test_numbers_may_be_fractions(self, upright: Call) -> None:
        write_onnx(mean=127 / 255, std=128 / 255)
        assert natural(upright, "--mean", "127/255", "--std", "128/255") == 1
        code, _, err = upright(
            "evaluate", "net.onnx", "--data", "folder:photos", *ASK, "--mean=127", "--std=128"
        )
        assert (code, err.count("\n")) == (0, 1)
        assert "warning: a mean of 127 is outside of images in [0, 1]" in err

    def test_one_number_of_a_configuration_may_be_told(self, upright: Call) -> None:
        write_onnx(mean=0.5, std=0.25)
        assert natural(upright, "--preprocess", "inception", "--std", "0.25") == 1

    def test_blue_first(self, upright: Call) -> None:
        write_onnx()
        assert natural(upright, "--channels", "bgr") == pytest.approx(1 / 3)  # green is the same

    def test_channels_last_are_seen(self, upright: Call) -> None:
        write_onnx(channels_last=True)
        assert natural(upright) == 1
        assert "8 x 8 x 3 (height x width x channels), but these are 6 x 6 x 3" in refused(
            upright, "--resize", 6, "--center-crop", 6
        )

    def test_channels_in_the_wrong_order_are_not_resized(self, upright: Call) -> None:
        write_onnx()
        assert "leave out --layout: it takes channels first" in refused(
            upright, "--layout", "channels-last"
        )
        write_onnx(channels_last=True)
        assert "8 x 8 x 3 (height x width x channels), but these are 3 x 8 x 8; give --layout" in (
            refused(upright, "--layout", "channels-first")
        )

    def test_help_offers_no_none(self, upright: Call) -> None:
        said = upright("evaluate", "--help")[1]
        assert "--layout {channels-first,channels-last}" in said
        assert "{None" not in said

    def test_a_background_class_and_a_softmax(self, upright: Call) -> None:
        """As MobileNet comes from TensorFlow: channels last, 1001 classes, probabilities."""
        write_onnx(1001, offset=1, channels_last=True, softmax=True)
        assert "if the first output is a background class, give --offset 1" in refused(upright)
        ask = ("evaluate", "net.onnx", "--data", "folder:photos", *ASK, "--mean=0", "--std=1")
        code, _, err = upright(*ask, "--offset", 1)
        assert (code, err.count("\n")) == (0, 1)
        assert "outputs look like probabilities; return logits" in err
        assert "--probabilities" in err
        assert upright(*ask, "--offset", 1, "--probabilities")[::2] == (0, "")
        assert natural(upright, "--offset", 1, "--probabilities") == 1

    def test_numbers_of_classes_and_1001_outputs_are_told(self, upright: Call) -> None:
        write_onnx(1001, offset=1)
        images = np.zeros((4, SIDE, SIDE, 3), np.uint8)
        np.savez("data.npz", images=images, labels=[0, 1, 2, 999])
        ask = ("evaluate", "net.onnx", "--data", "npz:data.npz", "--attack", "rnd", "--mean=0")
        _, _, err = upright(*ask, "--std=1")
        assert "warning: the model has 1001 outputs" in err
        assert "--offset 1" in err
        assert upright(*ask, "--std=1", "--offset=1")[2] == ""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--mean", "0.5"], "mean and std belong together"),
            (["--mean", "a", "--std", "1"], "--mean 'a' is not understood; write a number for"),
            (["--mean", "1/0", "--std", "1"], "--mean '1/0' is not understood"),
            (["--layout", "channel-last"], "'channel-last'; give channels-first or channels-last"),
            (["--channels", "rbg"], "channels is 'rbg'; give rgb or bgr"),
            (["--precision", "float16"], "computed as its file says, and not in float16"),
            (["--compile"], "is not compiled; leave out --compile, or give the network itself"),
            (["--mean", "0,0", "--std", "1,1"], "mean and std are of 2 channels"),
            (["--preprocess", "gone.json"], "gone.json: no such file"),
            (["--classes", "gone.txt"], "gone.txt: no names of classes can be read"),
            (["--probabilities"], "outputs are no probabilities"),
            (["--offset", "-1"], "offset is -1; give a whole number"),
            (["--offset", "1000"], "an offset of 1000 leaves none of the model's 1000 outputs"),
        ],
    )
    def test_mistakes_are_explained(self, upright: Call, options: list[str], message: str) -> None:
        write_onnx()
        assert message in refused(upright, *options)

    @pytest.mark.parametrize("around", ["", "tta-2:"])
    def test_what_was_trained_here_has_it_inside(
        self, upright: Call, small_run: Any, around: str
    ) -> None:
        told = ("--data", "glyphs", "--limit", 2, "--preprocess", "imagenet")
        code, _, err = upright("evaluate", f"{around}{small_run.path}", *told)
        assert code == 2
        assert "has its preprocessing inside; leave out" in err


class TestRecords:
    def record(self, upright: Call, *options: object, model: str = "net.onnx") -> Any:
        Path("r.jsonl").unlink(missing_ok=True)
        natural(upright, "--record", "r.jsonl", *options, model=model)
        (found,) = read("r.jsonl").records
        return found

    def test_another_preprocessing_is_another_model(self, upright: Call) -> None:
        write_onnx()
        plain, shifted = self.record(upright), self.record(upright, "--mean=0.5", "--std=0.5")
        assert set(plain.recipe) == {"name", "source", "weights_digest"}  # as records always were
        assert shifted.recipe["preprocess"] == {"mean": [0.5], "std": [0.5]}
        assert shifted.recipe["weights_digest"] == plain.recipe["weights_digest"]
        assert len({plain.recipe_hash, shifted.recipe_hash}) == 2
        assert plain.key != shifted.key
        assert self.record(upright, "--mean", "0.5", "--std", "0.50").key == shifted.key

    def test_files_with_channels_last_are_told_apart(self, upright: Call) -> None:
        write_onnx(channels_last=True)
        one = self.record(upright)
        write_onnx(channels_last=True, std=0.9)
        assert self.record(upright).recipe["weights_digest"] != one.recipe["weights_digest"]

    def test_a_state_is_not_continued_with_another(self, upright: Call) -> None:
        write_onnx()
        state = ("--state", "state", "--mean=0", "--std=1")
        assert natural(upright, *state) == natural(upright, *state) == 1
        said = refused(upright, "--state", "state", "--mean=0", "--std=1.0001")
        assert "belongs to another evaluation" in said

    def test_averaged_models_are_told_too(self, upright: Call) -> None:
        write_onnx(mean=0.5, std=0.25)
        record = self.record(upright, "--mean=0.5", "--std=0.25", model="tta-grid-1x1x1:net.onnx")
        assert record.measured["nat"] == 1
        assert record.recipe["preprocess"] == {"mean": [0.5], "std": [0.25]}


def test_a_model_of_hugging_face_in_its_folder(upright: Call) -> None:
    """With its own names, size and normalisation, and no option."""
    transformers = need("transformers")
    names = {0: "Egyptian cat", 1: "banana", 2: "goldfish", 3: "tench"}
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(
        **sizes, num_hidden_layers=1, image_size=SIDE, patch_size=4, id2label=names
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network: nn.Module = transformers.ViTForImageClassification(config).eval()
    network.save_pretrained("model")
    processor = {"image_processor_type": "ViTImageProcessor", "size": SIDE}
    normalised = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    Path("model/preprocessor_config.json").write_text(json.dumps(processor | normalised))
    for name, word in zip(PICTURES, ("goldfish", "banana", "egyptian-cat"), strict=True):
        Path("photos", name).rename(Path("photos", word))
    found = natural(upright, "--details", model="hf:model")
    told = json.loads(Path("out.json").read_text())

    colours = {0: (0, 0, 1), 1: (0, 1, 0), 2: (1, 0, 0)}
    images = torch.stack([torch.tensor(c).float().view(3, 1, 1) for c in colours.values()])
    with torch.no_grad():
        shown: Tensor = (images.expand(-1, -1, SIDE, SIDE) - 0.5) / 0.25
        seen = network(pixel_values=shown).logits.argmax(1)
    by_label = dict(zip(told["details"]["labels"], told["details"]["natural_correct"], strict=True))
    assert by_label == {label: int(seen[label]) == label for label in colours}
    assert found == sum(by_label.values()) / 3
    assert told["options"]["center_crop"] == SIDE


OWN = """
from torch import nn

def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 3))

def last():
    pool = nn.AdaptiveAvgPool2d((1, 3))
    return nn.Sequential(nn.Linear(3, 3), nn.Flatten(1, 2), pool, nn.Flatten())

class NoSingle(nn.Module):
    def forward(self, images):
        if len(images) == 1:
            raise ValueError("no single")

class Tired(nn.Module):
    asked = 0
    def forward(self, images):
        Tired.asked += 1
        return images.mean((2, 3)) if Tired.asked < 3 else {}["k"]

def quits():
    return lambda images: exit(3)
"""
OTHERS = (
    "bring them to its size by a function around it, those of a folder by --resize and --center-"
)


class TestErrorsOfOwnCode:
    def said(self, upright: Call, model: str, *options: object) -> str:
        Path("own.py").write_text(OWN)
        ask = ("--data", "folder:photos", "--attack", "wo-10", *options)
        code, out, err = upright("evaluate", f"own.py:{model}", *ask)
        *before, last = err.splitlines()
        assert (code, out, "error" in "".join(before)) == (2, "", False)
        return last.removeprefix("upright: error: ")

    @pytest.mark.parametrize(
        ("model", "raised"),
        [
            ("NoSingle", "ValueError: no single (line 14)"),
            ("quits", "SystemExit: 3 (line 23)"),
            ("flat", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x576 and 192x3)"),
        ],
    )
    def test_an_image_that_it_cannot_answer_about(
        self, upright: Call, model: str, raised: str
    ) -> None:
        said = self.said(upright, model)
        whose = f"own.py:{model} does not take images of 3 x 12 x 16"
        assert said.startswith(f"{whose}: asked about one, it raised {raised}; {OTHERS}")

    def test_a_later_error_is_told_with_its_line(self, upright: Call) -> None:
        assert self.said(upright, "Tired") == "own.py:Tired raised KeyError: 'k' (line 20)"

    def test_what_is_advised_helps(self, upright: Call) -> None:
        self.said(upright, "flat")
        assert natural(upright, "--resize", 8, "--center-crop", 8, model="own.py:flat") >= 0
        assert "give --layout channels-last" in self.said(upright, "last")
        layout = ("--layout", "channels-last")
        assert natural(upright, *layout, model="own.py:last") >= 0
        said = self.said(upright, "flat", *layout)
        assert "of 12 x 16 x 3" in said
        assert said.endswith("if it takes channels first, leave out --layout")
