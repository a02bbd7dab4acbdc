"""Image classifiers of the library transformers: ``hf:NAME_OR_FOLDER``, with their processor."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from upright.factories import need_library
from upright.logits import logits_of
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.sources.registry import model_source

__all__ = ["load_hugging_face"]

_NO_NAME = re.compile(r"LABEL_\d+")


@model_source(
    "hf:NAME_OR_FOLDER",
    r"hf:(.*)",
    prefix=True,
    about="an image classifier of Hugging Face, from its hub or a folder, with its processor",
)
def load_hugging_face(name: str, *, device: torch.device) -> Pretrained:
    """Load an image classifier that was saved by ``save_pretrained``; runs no code of its own."""
    library = need_library("transformers", extra="huggingface", wanted=f"hf:{name}")
    with _in_a_line(f"transformers could not load {name} as an image classifier"), _quiet(library):
        network = library.AutoModelForImageClassification.from_pretrained(name)
    advice = "; save that beside it, by processor.save_pretrained"
    with _in_a_line(f"{name} has no image processor that can be read", advice), _quiet(library):
        processor = library.AutoImageProcessor.from_pretrained(name)
    model = _ByName(network.to(device).eval())
    return Pretrained(model, Preprocess.of(processor), _classes(network.config.id2label))


class _ByName(nn.Module):
    """Gives images by name: a few networks have other parameters before them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.training = network, network.training

    def forward(self, images: Tensor) -> Tensor:
        return logits_of(self.network(pixel_values=images))


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
        text = " ".join(str(error).split())[:300]
        raise ValueError(f"{what}: {text}{advice}") from error


@contextlib.contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Without bars and advice, which are for who works with the library itself."""
    logging = library.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
