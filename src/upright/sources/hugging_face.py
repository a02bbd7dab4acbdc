"""Image classifiers of the library transformers: ``hf:NAME_OR_FOLDER``, with their processor."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from upright.factories import need_library
from upright.logits import logits_of
from upright.sources.hub import quiet_hub
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.sources.registry import model_source

__all__ = ["load_hugging_face"]

_OTHER = "; give the folder of one, or its name on the hub"
_BESIDE = "; save that beside it, by processor.save_pretrained"
_NO_NAME = re.compile(r"LABEL_\d+")
_COLOURS = torch.tensor([[200, 100, 30], [10, 60, 250]], dtype=torch.uint8)


@model_source(
    "hf:NAME_OR_FOLDER",
    r"hf:(.*)",
    prefix=True,
    about="an image classifier of Hugging Face, from its hub or a folder, with its processor",
)
def load_hugging_face(name: str, *, device: torch.device) -> Pretrained:
    """Load an image classifier that was saved by ``save_pretrained``; runs no code of its own."""
    library = need_library("transformers", extra="huggingface", wanted=f"hf:{name}")
    if name.startswith((".", "/", "~")) and not Path(name).exists():
        raise ValueError(f"hf:{name}: no such folder; give one that save_pretrained has written")
    what = f"transformers could not load {name} as an image classifier"
    with _in_a_line(what, _OTHER), _quiet(library, name):
        network = library.AutoModelForImageClassification.from_pretrained(name)
    what = f"{name} has no image processor that can be read"
    with _in_a_line(what, _BESIDE), _quiet(library, name):
        processor = library.AutoImageProcessor.from_pretrained(name)
    usual = Preprocess.of(processor)
    in_colour = getattr(network.config, "num_channels", 3) == 3
    if in_colour and (trouble := _unlike(processor, usual)):
        raise ValueError(
            f"the image processor of {name} {trouble}; write a Python function that gives the "
            "network with what it wants done to images in [0, 1], and name that as "
            "FILE.py:FUNCTION"
        )
    model = _ByName(network.to(device).eval())
    return Pretrained(model, usual, _classes(network.config.id2label))


def _unlike(processor: Any, usual: Preprocess) -> str:
    """Say how what a processor shows of a picture differs from what is shown here; or nothing.

    The picture has two colours and the size to which others are resized, so that numbers, the
    order of channels and, by where the colours meet, scale and crop are seen.
    """
    side, crop = (each or usual.center_crop or 224 for each in (usual.resize, usual.center_crop))
    columns = (torch.arange(side) >= side // 8).long()
    picture = _COLOURS[columns].repeat(side, 1, 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = processor(Image.fromarray(picture.numpy()), return_tensors="pt")
        found = made["pixel_values"].float()
    # Processors do whatever they like, with whatever is missing.
    except Exception as error:
        return f"cannot be run on a picture ({shorten(str(error), 200, placeholder=' …')})"
    sized = usual.center_crop is not None
    if found.ndim != 4 or found.shape[1] != 3 or (sized and found.shape[2:] != (crop, crop)):
        return f"makes {tuple(found.shape)} of a picture of {side} x {side}"
    left = (side - crop) // 2 if sized else 0
    expected = usual.around(nn.Identity())(picture.permute(2, 0, 1)[None] / 255)
    expected = expected[0, :, side // 2, left : left + crop]
    row = found[0, :, found.shape[2] // 2]
    if not sized:  # only what is at both ends can be told
        row, expected = row[:, [0, -1]], expected[:, [0, -1]]
    step = 2 / 255 / min(usual.std or (1.0,))
    wrong = ((row - expected).abs() > step).any(0).sum()
    # Where the colours meet, a crop may be off by a pixel.
    return "does more to images than it says" if wrong > (2 if sized else 0) else ""


class _ByName(nn.Module):
    """Gives images by name: a few networks have other parameters before them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.training = network, network.training

    def forward(self, images: Tensor) -> Tensor:
        try:
            return logits_of(self.network(pixel_values=images))
        except ValueError as error:
            text = " ".join(str(error).split()).removesuffix(".")
            if "image size" not in text:
                raise
            raise ValueError(
                f"{text}; bring images to the size of the model, those of a folder by --resize and "
                "--center-crop"
            ) from error


def _classes(names: dict[int, str]) -> tuple[str, ...]:
    """What the configuration calls the outputs; nothing where it only counts them."""
    found = tuple(str(names[number]) for number in sorted(names))
    return () if all(_NO_NAME.fullmatch(name) for name in found) else found


@contextlib.contextmanager
def _in_a_line(what: str, advice: str = "") -> Iterator[None]:
    try:
        yield
    # Files may be missing or damaged, or come over the network: almost any error.
    except Exception as error:
        text = shorten(str(error), 300, placeholder=" …").removesuffix(".")
        raise ValueError(f"{what}: {text}{advice}") from error


@contextlib.contextmanager
def _quiet(library: Any, name: str) -> Iterator[None]:
    """Without bars and advice, which are for who works with the library itself."""
    own = library.utils.logging
    level, bars = own.get_verbosity(), own.is_progress_bar_enabled()
    own.set_verbosity_error()
    own.disable_progress_bar()
    try:
        with quiet_hub(name):
            yield
    finally:
        own.set_verbosity(level)
        if bars:
            own.enable_progress_bar()
