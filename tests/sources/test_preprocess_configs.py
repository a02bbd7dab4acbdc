"""What others write down of preprocessing: read to the same numbers that they would compute."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from upright import Preprocess

PIXELS = torch.arange(0, 256, 15, dtype=torch.float32).view(1, 1, 1, -1).expand(1, 3, 1, -1)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
VIT = {
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": MEAN,
    "image_processor_type": "ViTImageProcessor",
    "image_std": STD,
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 224, "width": 224},
}


def hugging_face(config: dict[str, Any]) -> torch.Tensor:
    """Bytes to what a processor gives, step by step."""
    numbers = (config[f"image_{name}"] for name in ("mean", "std"))
    mean, std = (torch.tensor(each).view(1, -1, 1, 1) for each in numbers)
    images = PIXELS
    if config.get("do_rescale", True):
        images = images * config.get("rescale_factor", 1 / 255)
        images = images - 1 if config.get("rescale_offset") else images
    if config.get("do_normalize", True):
        images = (images - mean) / std
        images = images / std if config.get("include_top") else images
    return images


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rescale_factor": 1 / 127.5},
        {"rescale_factor": 1 / 127.5, "rescale_offset": True},
        {"include_top": True},
        {"rescale_factor": 1 / 127.5, "rescale_offset": True, "include_top": True},
        {"do_rescale": False},
        {"do_normalize": False},
    ],
)
def test_a_processor_of_hugging_face(changes: dict[str, Any]) -> None:
    config = VIT | changes
    found = Preprocess.of(config).around(nn.Identity())(PIXELS / 255)
    torch.testing.assert_close(found, hugging_face(config).expand_as(found), atol=1e-4, rtol=1e-5)


def test_usual_numbers_stay_what_they_are() -> None:
    found = Preprocess.of(VIT)
    assert (found.mean, found.std) == (tuple(MEAN), tuple(STD))


@pytest.mark.parametrize(
    ("changes", "resize", "crop"),
    [
        ({}, 224, 224),
        ({"size": 192}, 192, 192),
        ({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224}, 256, 224),
        (
            {
                "size": {"shortest_edge": 256},
                "do_center_crop": True,
                "crop_size": {"height": 224, "width": 224},
            },
            256,
            224,
        ),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, 256, 224),
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, 384, 384),
        ({"size": {"height": 200, "width": 300}}, None, None),
        ({"do_resize": False}, None, None),
    ],
)
def test_sizes_of_hugging_face(
    changes: dict[str, Any], resize: int | None, crop: int | None
) -> None:
    found = Preprocess.of(VIT | changes)
    assert (found.resize, found.center_crop) == (resize, crop)


TIMM = {"mean": MEAN, "std": STD, "input_size": [3, 288, 288], "crop_pct": 0.95}


def test_a_data_configuration_of_timm_also_inside_of_its_config_json() -> None:
    found = Preprocess.of(TIMM | {"interpolation": "bicubic", "crop_mode": "center"})
    assert found == Preprocess(mean=tuple(MEAN), std=tuple(STD), resize=303, center_crop=288)
    assert Preprocess.of({"architecture": "resnet50", "pretrained_cfg": TIMM}) == found


def test_transforms_of_torchvision() -> None:
    transforms = SimpleNamespace(mean=MEAN, std=STD, crop_size=[224], resize_size=[232])
    assert Preprocess.of(transforms) == Preprocess(
        mean=tuple(MEAN), std=tuple(STD), resize=232, center_crop=224
    )


def test_a_file_a_text_and_names(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(VIT))
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": VIT}))
    for name in ("preprocessor_config.json", "processor_config.json"):
        assert Preprocess.of(str(tmp_path / name)) == Preprocess.of(VIT)
        assert Preprocess.of(tmp_path / name) == Preprocess.of(VIT)
    assert Preprocess.of('{"mean": 0.5, "std": [0.5], "offset": 1}') == Preprocess(
        mean=(0.5,), std=(0.5,), offset=1
    )
    assert Preprocess.of("imagenet") == Preprocess(mean=tuple(MEAN), std=tuple(STD))
    assert Preprocess.of("inception").mean == (0.5,) * 3


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("nowhere.json", r"nowhere\.json: no such file; give .* imagenet or inception"),
        ("{", "cannot be read as JSON"),
        ({"means": [1]}, "has no means; it has mean, std, layout"),
        ({f"field{number}": 1 for number in range(9)}, "has no field0, field1, field2, …; it"),
        ({"architectures": ["X"], "num_labels": 3}, "describes a network.*preprocessor_config"),
        ({"image_processor_type": "X"}, "no image_mean and image_std"),
        (VIT | {"rescale_factor": 0}, "not understood"),
        (VIT | {"image_mean": ["a"]}, "not understood"),
        (TIMM | {"input_size": 3}, "not understood"),
        ({"input_size": [3, 8, 8]}, "not understood: KeyError"),
        (3, "a int says nothing of preprocessing"),
    ],
)
def test_what_is_not_understood_is_said_in_a_line(told: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Preprocess.of(told)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="JSON"):
        Preprocess.of(tmp_path / "list.json")
    with pytest.raises(ValueError, match="cannot be read as text"):
        Preprocess.of(tmp_path / "bytes.json")
