"""How others write down what is done to images: Hugging Face, timm and torchvision.

Each becomes the fields of a ``Preprocess``. Resizing that changes the proportions of images (as to
224 x 224 of any picture) is read as the shorter side and a central crop.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["NAMED", "fields_of"]

NAMED: Mapping[str, dict[str, Any]] = {
    "imagenet": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    "inception": {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)},
}
"""What most networks for photographs want: by torchvision's models, and by Inception's."""

# What is done by processors of these kinds whether or not their files say so.
_BLUE_FIRST, _NOT_NORMALISED = ("MobileViT", "PPLCNet"), ("MobileViT",)


def fields_of(told: object) -> dict[str, Any]:
    """Give the fields of a ``Preprocess`` in a name, a file, a text, a dict or an object."""
    if isinstance(told, str | Path):
        return _of_text(str(told))
    if isinstance(told, Mapping):
        return _of_config(told)
    if callable(as_dict := getattr(told, "to_dict", None)):  # a processor of transformers
        # What is None there is not done; files leave out what is as usual.
        return _of_config({"do_normalize": False} | as_dict())
    if hasattr(told, "resize_size") and hasattr(told, "crop_size"):
        return _torchvision(told)
    raise ValueError(
        f"a {type(told).__name__} says nothing of preprocessing; give a file, a dict, a processor "
        "of transformers or the transforms of torchvision's weights"
    )


def _of_text(text: str) -> dict[str, Any]:
    if text in NAMED:
        return NAMED[text]
    if not text.lstrip().startswith("{"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise ValueError(
                f"{' '.join(text.split())}: no such file; give one such as "
                f"preprocessor_config.json, JSON text, or {' or '.join(NAMED)}"
            )
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read as text: {error}") from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"preprocessing cannot be read as JSON: {error}; see --preprocess"
        ) from error
    if not isinstance(found, dict):
        raise ValueError('preprocessing is no JSON object; write it as {"mean": ..., "std": ...}')
    return _of_config(found)


def _of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    # Newer files of both have it beside other things.
    for name in ("image_processor", "pretrained_cfg", "data_config"):
        if isinstance(inside := config.get(name), Mapping):
            config = inside
    try:
        if {"image_mean", "do_normalize", "image_processor_type"} & config.keys():
            return _hugging_face(config)
        return _timm(config) if "input_size" in config else dict(config)
    except (
        TypeError,
        KeyError,
        ValueError,
        AttributeError,
        ZeroDivisionError,
        IndexError,
    ) as error:
        raise ValueError(
            f"preprocessing is not understood: {error!r}; tell it by --mean and --std, "
            "--resize and --center-crop"
        ) from error


def _timm(config: Mapping[str, Any]) -> dict[str, Any]:
    """The data configuration of a network, or what ``config.json`` has of it."""
    *_, height, width = config["input_size"]
    sizes = {"resize": math.floor(height / (config.get("crop_pct") or 1)), "center_crop": height}
    return {name: config[name] for name in ("mean", "std")} | (sizes if height == width else {})


def _torchvision(transforms: Any) -> dict[str, Any]:
    """The transforms that come with weights."""
    (resize,), (crop,) = transforms.resize_size, transforms.crop_size
    fields = {"resize": resize, "center_crop": crop}
    return {name: tuple(getattr(transforms, name)) for name in ("mean", "std")} | fields


def _hugging_face(config: Mapping[str, Any]) -> dict[str, Any]:
    """``preprocessor_config.json``: it scales bytes first, and then normalises these."""
    scale = 255 * config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 255.0
    before = 1.0 if config.get("rescale_offset") else 0.0
    mean, std, kind = [0.0], [1.0], str(config.get("image_processor_type", ""))
    if config.get("do_normalize", not kind.startswith(_NOT_NORMALISED)):
        if not {"image_mean", "image_std"} <= config.keys():
            raise ValueError("it has no image_mean and image_std")
        mean, std = _listed(config["image_mean"]), _listed(config["image_std"])
        if config.get("include_top"):  # EfficientNet's divide twice
            std = [each * each for each in std]
    normalised: dict[str, Any] = {
        "mean": tuple((each + before) / scale for each in mean),
        "std": tuple(each / scale for each in std),
    }
    if config.get("do_flip_channel_order", kind.startswith(_BLUE_FIRST)):
        normalised["channels"] = "bgr"
    return normalised | _hugging_face_sizes(config, kind)


def _hugging_face_sizes(config: Mapping[str, Any], kind: str) -> dict[str, int]:
    size = _side(config.get("size")) if config.get("do_resize", True) else None
    crop = _side(config.get("crop_size")) if config.get("do_center_crop") else size
    part = config.get("crop_pct")
    if size is not None and part and size < 384:  # as ConvNeXt's
        size, crop = int(size / part), size
    if size is not None and kind.startswith("Levit"):
        size = int(256 / 224 * size)
    if kind.startswith("Perceiver"):  # which crops first, in proportion
        size, crop = crop, size
    sizes = {"resize": size, "center_crop": crop}
    return {name: side for name, side in sizes.items() if side is not None}


def _side(size: Any) -> int | None:
    """The side of a square, or the shorter one; None for any other."""
    if not isinstance(size, Mapping):
        return None if size is None else int(size)
    if "shortest_edge" in size:
        return int(size["shortest_edge"])
    height, width = size.get("height"), size.get("width")
    return int(height) if height is not None and height == width else None


def _listed(value: Any) -> list[float]:
    return [float(each) for each in (value if isinstance(value, list | tuple) else [value])]
