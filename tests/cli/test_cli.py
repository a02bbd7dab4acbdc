"""The command line, end to end: tables, JSON, one-line errors and exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from PIL import Image
from torch import Tensor

import upright
from rigid_spaces import rigid
from upright import GridSearch, RandomSearch, evaluate
from upright.cli import main
from upright.data import load_data
from upright.sources import load_model

SIZE, CLASSES = 8, 3

MODELS = """
import torch
from torch import nn

def make():
    layer = nn.Linear(3 * 8 * 8, 3)
    generator = torch.Generator().manual_seed(1)
    layer.weight.data = torch.randn(3, 192, generator=generator) / 4
    layer.bias.data.zero_()
    return nn.Sequential(nn.Flatten(), layer)

def probabilities():
    return nn.Sequential(make(), nn.Softmax(1))

def stopped():
    def model(images):
        raise KeyboardInterrupt
    return model

def stopped_later():
    inner, asked = make(), []
    def model(images):
        if len(asked) == 4:
            raise KeyboardInterrupt
        asked.append(images)
        return inner(images)
    return model

def broken():
    raise OSError("no weights\\nanywhere")

def grey():
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten())

def hungry():
    def model(images):
        raise MemoryError
    return model

def picky():
    def model(images):
        assert images.shape[-1] == 224, "224 pixels wanted"
    return model

def fickle():
    net = make()
    def model(images):  # says another class where no pixel is black: it is wrong there, mostly
        whole = (images.amax(1) > 0).flatten(1).all(1)
        return torch.where(whole[:, None], net(images).roll(1, 1), net(images))
    return model
"""


@dataclass(frozen=True)
class Scene:
    """A folder with models and data, and ``upright`` called there."""

    folder: Path
    capture: pytest.CaptureFixture[str]
    images: Tensor
    labels: Tensor

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = self.capture.readouterr()
        return code, captured.out, captured.err

    def evaluate(self, *options: object, model: str = "models.py:make") -> tuple[int, str, str]:
        return self("evaluate", model, "--data", "npz:data.npz", *options)

    def result(self, *options: object, model: str = "models.py:make") -> dict:
        code, _, err = self.evaluate(*options, "--json", "result.json", model=model)
        assert (code, err) == (0, "")
        return json.loads((self.folder / "result.json").read_text())


@pytest.fixture
def scene(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "models.py").write_text(MODELS)
    images = np.random.default_rng(0).integers(0, 256, (20, SIZE, SIZE, 3), dtype=np.uint8)
    channels_first = torch.from_numpy(images).permute(0, 3, 1, 2)
    # Labels are what the model says, but for five: its natural accuracy is 0.75.
    with torch.no_grad():
        labels = load_model("models.py:make")(channels_first / 255).argmax(1)
    labels[:5] = (labels[:5] + 1) % CLASSES
    np.savez(tmp_path / "data.npz", test_images=images, test_labels=labels.numpy())
    return Scene(tmp_path, capsys, channels_first, labels)


def untimed(summary: dict) -> dict:
    """A summary without its times, which differ from run to run."""
    attacks = {
        name: {key: value for key, value in figures.items() if key != "seconds"}
        for name, figures in summary["attacks"].items()
    }
    return {**summary, "attacks": attacks, "seconds": None}


class TestEvaluate:
    def test_a_dash_is_standard_output_and_the_table_goes_elsewhere(self, scene):
        code, out, err = scene.evaluate("--attack", "wo-2", "--json", "-", "--details")
        assert code == 0
        result = json.loads(out)
        assert result["natural_accuracy"] == 0.75
        assert len(result["details"]["labels"]) == 20
        assert "75.00" in err
        assert not (scene.folder / "-").exists()

    def test_what_a_model_prints_is_no_part_of_the_json(self, scene):
        talking = MODELS + "print('loaded')\n"
        Path("talking.py").write_text(talking)
        code, out, err = scene.evaluate("--attack", "rnd", "--json", "-", model="talking.py:make")
        assert code == 0
        assert json.loads(out)["attacks"].keys() == {"rnd"}
        assert err.startswith("loaded\n")

    @pytest.mark.parametrize("option", ["--record", "--state"])
    def test_only_json_may_go_to_standard_output(self, scene, option):
        code, out, err = scene.evaluate("--attack", "wo-2", option, "-")
        assert (code, out) == (2, "")
        assert "- is standard output, which is for --json alone" in err
        assert err.count("\n") == 1
        assert not (scene.folder / "-").exists()

    def test_json_has_what_evaluate_gives_and_what_it_was_asked(self, scene):
        result = scene.result(
            "--attack",
            "wo-3",
            "--attack",
            "grid-3x3x5",
            "--max-translation",
            2,
            "--max-rotation",
            20,
        )
        direct = evaluate(
            load_model("models.py:make"),
            (scene.images, scene.labels),
            attacks=[RandomSearch(3), GridSearch((3, 3, 5))],
            space=rigid(2, 20),
            only_accuracy=True,
        ).summary()
        assert untimed(result).items() >= untimed(direct).items()
        assert list(result["attacks"]) == ["wo-3", "grid-3x3x5"]
        assert result["natural_accuracy"] == 0.75
        assert result["attacks"]["grid-3x3x5"]["accuracy"] < 0.75
        assert (result["model"], result["data"]) == ("models.py:make", "npz:data.npz")
        assert result["space"] == "shift(2px) rotate(20)"
        assert result["options"]["attack"] == ["wo-3", "grid-3x3x5"]
        assert result["versions"]["upright"] == upright.__version__
        assert result["versions"]["torch"] == torch.__version__
        assert "details" not in result

    def test_the_attack_is_grid_775_unless_told(self, scene):
        assert list(scene.result()["attacks"]) == ["grid-775"]

    def test_the_table_has_a_line_for_each_attack_and_goes_to_stdout_alone(self, scene):
        code, out, err = scene.evaluate("--attack", "rnd", "--attack", "s-pgd", "--limit", 16)
        lines = {line.split()[1]: line for line in out.splitlines() if line.startswith("│")}
        assert (code, err) == (0, "")
        assert "models.py:make on npz:data.npz: 16 images" in out
        assert "shift by at most 3 px, rotate by at most 30 degrees" in out
        # 11 of 16 right; Wilson's interval by hand: (0.6875 + z²/32 ± z sqrt(...)) / (1 + z²/16).
        assert "68.75 │ 44.40 to 85.84 │             16" in lines["natural"]
        assert "96" in lines["s-pgd"].split()  # 5 steps and the last score, for 16 images
        assert list(lines) == ["natural", "rnd", "s-pgd"]

    def test_a_narrow_terminal_breaks_no_title_and_cuts_no_figure(self, scene, monkeypatch):
        data = scene.folder / ("long-" * 30) / "data.npz"
        data.parent.mkdir()
        (scene.folder / "data.npz").rename(data)
        monkeypatch.setenv("COLUMNS", "20")
        _, out, _ = scene("evaluate", "models.py:make", "--data", f"npz:{data}", "--attack", "rnd")
        title, *rest = out.splitlines()
        assert title == f"models.py:make on npz:{data}: 20 images"
        (natural,) = (line for line in rest if line.startswith("│ natural"))
        assert natural.split("│")[2].strip() == "75.00"
        assert "…" not in out

    def test_details_give_the_worst_pose_of_each_image(self, scene):
        options = ("--attack", "grid-3x3x5", "--max-translation", 2)
        result = scene.result(*options, "--details")
        direct = evaluate(
            load_model("models.py:make"),
            (scene.images, scene.labels),
            attacks=["grid-3x3x5"],
            space=rigid(2, 30),
        ).attacks["grid-3x3x5"]
        details = result["details"]["attacks"]["grid-3x3x5"]
        assert details["worst_pose"] == {
            "dx": direct.worst_pose.dx.tolist(),
            "dy": direct.worst_pose.dy.tolist(),
            "angle": direct.worst_pose.angle.tolist(),
        }
        assert details["grid"] == direct.fooled.poses.values.tolist()
        assert details["correct"] == [count == 0 for count in details["fooling_pose_count"]]
        assert result["details"]["labels"] == scene.labels.tolist()
        quick = scene.result(*options)["attacks"]["grid-3x3x5"]
        full = result["attacks"]["grid-3x3x5"]
        assert quick["accuracy"] == full["accuracy"]
        assert quick["forward_passes"] < full["forward_passes"] == 20 * 45

    def test_details_of_a_grid_have_what_follows_from_its_answers(self, scene):
        options = ("--attack", "grid-3x3x5", "--attack", "wo-2", "--max-translation", 1)
        code, out, _ = scene.evaluate(*options, "--details", "--json", "result.json")
        details = json.loads((scene.folder / "result.json").read_text())["details"]["attacks"]
        evaluation = evaluate(
            load_model("models.py:make"),
            (scene.images, scene.labels),
            attacks=["grid-3x3x5"],
            space=rigid(1, 30),
        )
        fooled, found = evaluation.attacks["grid-3x3x5"].fooled, details["grid-3x3x5"]
        fooling = fooled.unpack()
        for image, size in enumerate(found["smallest_size"]):
            pose = [found["smallest_pose"][name][image] for name in ("dx", "dy", "angle")]
            assert (size is None) == (pose == [None] * 3) == found["correct"][image]
            if size is not None:
                assert pose in fooled.poses.values[fooling[image]].tolist()
                assert size == max(abs(pose[0]), abs(pose[1]), abs(pose[2]) / 30)
        assert found["accuracy_by_size"] == {
            "size": [0, 0.5, 1],
            "accuracy": [0.75, fooled.by_size(0.5), float((~fooling.any(1)).double().mean())],
        }
        for name in ("worst_of", "worst_of_replaced"):
            assert found[name] == getattr(fooled, name).accuracy.tolist()
            assert found[name][0] == pytest.approx(float((~fooling).double().mean()))
        assert found["consistency"] == fooled.consistency
        assert "smallest_pose" not in details["wo-2"]
        assert code == 0
        (line,) = (each for each in out.splitlines() if each.count("│") == 7 and "grid" in each)
        shares = (fooled.worst_of(1), fooled.worst_of(10), fooled.by_size(0.5), fooled.consistency)
        figures = [cell.strip() for cell in line.split("│")[2:6]]
        assert figures == [f"{100 * share:.2f}" for share in shares]

    def test_a_relative_translation_is_a_part_of_the_image(self, scene):
        options = ("--attack", "grid-5x5x1", "--details", "--max-rotation", 0)
        relative = scene.result(*options, "--max-translation", "25%")
        assert relative["space"] == "shift(25%) rotate(0)"
        pixels = scene.result(*options, "--max-translation", SIZE // 4)
        assert relative["details"] == pixels["details"]

    def test_warp_options_reach_the_attack(self, scene):
        options = ("--attack", "grid-3x3x3", "--details")
        found = [
            scene.result(*options, *more)["details"]["attacks"]["grid-3x3x3"]["worst_loss"]
            for more in (
                [],
                ["--fill", "border"],
                ["--fill", "#7f7f7f"],
                ["--interpolation", "nearest"],
            )
        ]
        assert all(found[0] != other for other in found[1:])
        assert found[1] != found[2]

    def test_a_colour_is_not_what_the_explorer_can_show(self, scene):
        code, _, err = scene.evaluate("--fill", "#7f7f7f", "--save", "shown")
        assert code == 2
        assert "leave out --fill and --interpolation, or --save" in err

    def test_json_has_the_accuracies_of_each_class(self, scene):
        result = scene.result("--attack", "grid-3x3x5")
        for each in result["per_class"]:
            its = scene.labels == each["label"]
            alone = evaluate(
                load_model("models.py:make"),
                (scene.images[its], scene.labels[its]),
                attacks=["grid-3x3x5"],
            )
            assert each["class"] == str(each["label"])
            assert each["images"] == len(alone)
            assert each["natural_accuracy"] == alone.natural_accuracy
            assert each["attacks"] == {"grid-3x3x5": alone.attacks["grid-3x3x5"].accuracy}
        assert sum(each["images"] for each in result["per_class"]) == 20

    def test_details_have_the_class_at_the_worst_pose_and_a_table_of_classes(self, scene):
        options = ("--attack", "wo-2", "--json", "result.json")
        _, out, _ = scene.evaluate(*options)
        assert "taken for" not in out
        code, out, _ = scene.evaluate(*options, "--details")
        details = json.loads((scene.folder / "result.json").read_text())["details"]
        found = details["attacks"]["wo-2"]
        right = zip(found["worst_class"], details["labels"], strict=True)
        assert found["correct"] == [seen == label for seen, label in right]
        assert code == 0
        assert "taken for" in out
        assert "each class" in out

    def test_top_and_identity_reach_the_evaluation(self, scene):
        options = {"attacks": ["wo-2"], "only_accuracy": True}
        model, data = load_model("models.py:make"), (scene.images, scene.labels)
        for more, asked in (
            (("--top", 2), {"top": 2}),
            (("--include-identity",), {"include_identity": True}),
        ):
            direct = evaluate(model, data, **options, **asked).summary()
            result = scene.result("--attack", "wo-2", *more)
            assert untimed(result).items() >= untimed(direct).items()
        _, out, _ = scene.evaluate("--attack", "wo-2", "--top", 2)
        assert "top-2 accuracy %" in out

    def test_a_worst_case_above_natural_accuracy_is_explained(self, scene):
        _, out, _ = scene.evaluate("--attack", "rnd", model="models.py:fickle")
        said = " ".join(out.split())
        assert "rnd is above natural accuracy: it does not try images as they are, unless" in said
        _, out, _ = scene.evaluate(
            "--attack", "rnd", "--include-identity", model="models.py:fickle"
        )
        assert "above natural" not in out

    def test_details_without_a_file_for_them_are_refused(self, scene):
        code, _, err = scene.evaluate("--details")
        assert code == 2
        assert "add --json FILE" in err

    def test_a_seed_sets_the_draws(self, scene):
        options = ("--attack", "rnd", "--details", "--seed")
        first, again, other = (scene.result(*options, seed)["details"] for seed in (1, 1, 2))
        assert first == again
        assert first != other

    def test_a_state_file_keeps_what_is_done(self, scene):
        first = scene.result("--attack", "wo-2", "--state", "state.safetensors")
        again = scene.result("--attack", "wo-2", "--state", "state.safetensors")
        assert again["seconds"] == first["seconds"]  # nothing was measured again
        code, _, err = scene.evaluate("--attack", "wo-3", "--state", "state.safetensors")
        assert code == 2
        assert "belongs to another evaluation" in err

    def test_an_onnx_file(self, scene):
        nodes = [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w"], ["y"]),
        ]
        weight = load_model("models.py:make")[1].weight.detach().T
        graph = helper.make_graph(
            nodes,
            "linear",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", CLASSES])],
            [helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.flatten().tolist())],
        )
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "net.onnx")
        options = ("--attack", "grid-3x3x5", "--mean", "0", "--std", "1")
        onnx_result = scene.result(*options, model="net.onnx")
        assert (
            onnx_result["attacks"]["grid-3x3x5"]["accuracy"]
            == (scene.result(*options)["attacks"]["grid-3x3x5"]["accuracy"])
        )
        code, _, err = scene.evaluate(*options[2:], "--attack", "s-pgd", model="net.onnx")
        assert code == 2
        assert err.startswith("upright: error: s-pgd needs the gradient of the model")

    def test_a_pt2_file(self, scene):
        example = torch.zeros(2, 3, SIZE, SIZE)
        shapes = ({0: torch.export.Dim("batch")},)
        program = torch.export.export(
            load_model("models.py:make"), (example,), dynamic_shapes=shapes
        )
        torch.export.save(program, "net.pt2")
        options = ("--attack", "s-pgd", "--attack", "wo-2", "--details", "--mean=0", "--std=1")
        exported, direct = scene.result(*options, model="net.pt2"), scene.result(*options)
        for name in ("s-pgd", "wo-2"):
            found, expected = (each["details"]["attacks"][name] for each in (exported, direct))
            for column, values in expected["worst_pose"].items():
                assert found["worst_pose"][column] == pytest.approx(values)
            assert found["worst_loss"] == pytest.approx(expected["worst_loss"], rel=1e-4)

    def test_glyphs_need_no_file(self, scene):
        (scene.folder / "corner.py").write_text(
            "def make(): return lambda images: images.flatten(1)[:, :10]\n"
        )
        glyphs = load_data("glyphs", limit=30)
        right = glyphs.images.flatten(1)[:, :10].argmax(1) == glyphs.labels
        options = ("--limit", 30, "--attack", "rnd", "--json", "result.json")
        code, _, err = scene("evaluate", "corner.py:make", "--data", "glyphs", *options)
        result = json.loads((scene.folder / "result.json").read_text())
        assert (code, err) == (0, "")
        assert result["natural_accuracy"] == pytest.approx(right.double().mean().item())

    def test_pictures_of_a_folder_are_resized_and_cropped(self, scene):
        for label, colour in enumerate(("red", "lime", "blue")):
            folder = scene.folder / "pictures" / f"{label}-{colour}"
            folder.mkdir(parents=True)
            Image.new("RGB", (30 + label, 20), colour).save(folder / "one.png")
        (scene.folder / "sums.py").write_text(
            "def make(): return lambda images: images.reshape(-1, 3, 8 * 8).sum(2)\n"
        )
        options = ("--resize", 10, "--center-crop", SIZE, "--attack", "rnd", "--json", "out.json")
        code, _, err = scene("evaluate", "sums.py:make", "--data", "folder:pictures", *options)
        assert (code, err.count("\n")) == (0, 1)
        assert "by their order: 0 0-red, 1 1-lime, 2 2-blue; --classes FILE" in err
        assert json.loads((scene.folder / "out.json").read_text())["natural_accuracy"] == 1


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "model", "message"),
        [
            ([], "models.py:nothing", "models.py has no 'nothing'; choose from models.py:make,"),
            (
                [],
                "resnet",
                "there is no such folder, and no model is called 'resnet'; there are FILE",
            ),
            ([], "gone.onnx", "gone.onnx: no such file;"),
            ([], "models.py:broken", "models.py:broken raised OSError: no weights anywhere"),
            ([], "timm:resnet18", "timm:resnet18 needs timm"),
            ([], "models.py:hungry", "the model does not fit into memory with a single image"),
            (
                [],
                "models.py:picky",
                "models.py:picky does not take images of 3 x 8 x 8: asked about one, it raised "
                "AssertionError: 224 pixels wanted (line ",
            ),
            (
                [],
                "models.py:grey",
                "the model takes images of 1 channel, but these have 3; wrap",
            ),
            (["--attack", "grid-1000"], None, "a grid over shift(3px) rotate(30) needs a count"),
            (
                ["--attack", "gird-775"],
                None,
                "no attack is called 'gird-775' (nearest: grid-775)",
            ),
            (["--attack", "grid-0x1x1"], None, "a grid needs counts of at least 1"),
            (["--limit", "-3"], None, "limit must be at least 1, but is -3"),
            (["--limit", "0"], None, "limit must be at least 1, but is 0"),
            (["--batch-size", "-4"], None, "batch_size must be at least 1"),
            (["--max-translation", "-1"], None, "a translation of '-1' is not understood"),
            (["--max-translation", "-1%"], None, "a translation of '-1%' is not understood"),
            (["--max-translation", "wide"], None, "a translation of 'wide' is not understood"),
            (["--max-rotation", "-1"], None, "a rotation of -1.0 is not understood; give degrees"),
            (["--max-rotation", "nan"], None, "a rotation of nan is not understood; give degrees"),
            (["--device", "abacus"], None, "device 'abacus' cannot be used here"),
            (["--resize", "9"], None, "npz:FILE has images of one size"),
            (["--json", "."], None, ". is a folder; give the name of a file"),
            (["--json", "models.py/x"], None, "models.py/x cannot be written"),
            (["--state", "models.py"], None, "models.py is not the state of an evaluation"),
        ],
    )
    def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(
        self, scene, monkeypatch, options, model, message
    ):
        monkeypatch.setitem(sys.modules, "timm", None)
        code, out, err = scene.evaluate(*options, model=model or "models.py:make")
        assert err.startswith(f"upright: error: {message}")
        assert err.count("\n") == 1
        assert (code, out) == (2, "")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ("mnist1d", "no data set is called 'mnist1d'; there are"),
            ("npz:gone.npz", "gone.npz: no such file"),
            ("folder:gone", "gone: no such folder"),
            ("npz", "'npz' is not how this data set is written: write npz:FILE"),
        ],
    )
    def test_mistakes_in_the_name_of_the_data(self, scene, data, message):
        code, out, err = scene("evaluate", "models.py:make", "--data", data)
        assert err.startswith(f"upright: error: {message}")
        assert err.count("\n") == 1
        assert (code, out) == (2, "")

    @pytest.mark.parametrize(
        "arguments",
        [
            ["evaluate"],
            ["evalute"],
            ["evaluate", "models.py:make"],
            ["evaluate", "models.py:make", "--data", "glyphs", "--fill", "white"],
            ["evaluate", "models.py:make", "--data", "glyphs", "--limit", "many"],
            ["evaluate", "models.py:make", "--data", "glyphs", "--wrong"],
            ["data"],
            ["data", "fetch", "imagenet"],
        ],
    )
    def test_arguments_that_do_not_parse_exit_with_2_and_say_so_on_stderr(self, scene, arguments):
        code, out, err = scene(*arguments)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
        assert err

    def test_a_failed_evaluation_leaves_the_old_json_file(self, scene):
        (scene.folder / "result.json").write_text("old")
        code, _, _ = scene.evaluate("--json", "result.json", model="models.py:hungry")
        assert code == 2
        assert (scene.folder / "result.json").read_text() == "old"

    def test_an_interrupt_is_one_line_and_exit_code_130(self, scene):
        code, out, err = scene.evaluate(model="models.py:stopped")
        assert (code, out, err) == (130, "", "upright: interrupted\n")

    def test_an_interrupt_says_how_to_go_on_where_a_state_is_kept(self, scene):
        code, _, err = scene.evaluate("--state", "my.state", model="models.py:stopped_later")
        goes_on = "upright: interrupted; the same command goes on from my.state\n"
        assert (code, err) == (130, goes_on)

    def test_suspicious_input_is_one_line_on_stderr_each_time(self, scene):
        for _ in range(2):
            code, out, err = scene.evaluate("--attack", "rnd", model="models.py:probabilities")
            assert code == 0
            assert "natural" in out
            assert err.startswith("upright: warning: the model's outputs look like probabilities;")
            assert err.count("\n") == 1


class TestProgram:
    def test_version(self, scene):
        assert scene("--version") == (0, f"upright {upright.__version__}\n", "")

    @pytest.mark.parametrize("arguments", [[], ["--help"]])
    def test_help_lists_the_commands(self, scene, arguments):
        code, out, err = scene(*arguments)
        assert (code, err) == (0, "")
        assert "evaluate" in out
        assert "data" in out

    def test_help_of_evaluate_names_units(self, scene):
        code, out, _ = scene("evaluate", "--help")
        assert code == 0
        for text in ("MODEL", "--max-rotation DEGREES", "in pixels", "--json FILE", "--limit N"):
            assert text in out

    def test_commands_of_the_data_sets_are_there(self, scene, monkeypatch):
        cache = scene.folder / ("cache-" * 30)
        monkeypatch.setenv("UPRIGHT_DATA", str(cache))
        monkeypatch.setenv("COLUMNS", "20")
        code, out, _ = scene("data", "list")
        assert code == 0
        assert out.splitlines()[0] == str(cache)
        assert "cifar10" in out

    def test_as_a_program_the_bar_goes_to_a_terminal_on_stderr(self, scene):
        terminal, side = pty.openpty()
        command = [sys.executable, "-m", "upright", "evaluate", "models.py:make"]
        options = ["--data", "npz:data.npz", "--attack", "wo-2", "--json", "result.json"]
        done = subprocess.run(
            command + options, stdout=subprocess.PIPE, stderr=side, check=False, timeout=60
        )
        os.close(side)
        shown = os.read(terminal, 65536).decode()
        os.close(terminal)
        assert done.returncode == 0
        assert "evaluating" in shown
        assert "evaluating" not in done.stdout.decode()
        assert "wo-2" in done.stdout.decode()
        assert json.loads((scene.folder / "result.json").read_text())["natural_accuracy"] == 0.75
