"""Models of the library timm: ``timm:NAME``, with their published weights or those of a file."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from upright.models.of_libraries import need_timm
from upright.sources.hub import quiet_hub
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.sources.registry import model_source
from upright.train.weight_files import load_weights, read_weights

__all__ = ["load_timm"]


@model_source(
    "timm:NAME",
    r"timm:([^@]*)(?:@(.+))?",
    prefix=True,
    about="with its published weights; timm:NAME@FILE has those of a file",
)
def load_timm(name: str, file: str | None, *, device: torch.device) -> Pretrained:
    """Load a network of timm, with its data configuration as the preprocessing."""
    timm = need_timm(name)
    network = _published(timm, name) if file is None else _with_weights(timm, name, file)
    usual = Preprocess.of(network.pretrained_cfg)
    return Pretrained(network.to(device).eval(), usual, _classes(timm, network))


def _published(timm: Any, name: str) -> Any:
    try:
        with quiet_hub(name):
            return timm.create_model(name, pretrained=True)
    # Weights come over the network: what that raises depends on who serves them.
    except Exception as error:
        text = " ".join(str(error).split()).removesuffix(".")
        raise ValueError(
            f"timm could not load {name}: {text}; give weights of your own as timm:{name}@FILE"
        ) from error


def _with_weights(timm: Any, name: str, file: str) -> nn.Module:
    """A network with as many outputs as the weights have."""
    weights, network = read_weights(file), timm.create_model(name, pretrained=False)
    last = network.pretrained_cfg.get("classifier")
    last = last if isinstance(last, str) else next(iter(last or ()), "")
    head = weights.get(f"{last}.weight")
    if head is not None and len(head) != network.num_classes:
        network = timm.create_model(name, pretrained=False, num_classes=len(head))
    load_weights(network, weights, file=file)
    return network  # type: ignore[no-any-return]


def _classes(timm: Any, network: Any) -> tuple[str, ...]:
    """The names of ImageNet's classes, of whichever part has as many; else none."""
    subset = timm.data.infer_imagenet_subset(network)
    if subset is None:
        return ()
    info = timm.data.ImageNetInfo(subset)
    pairs = zip(info.label_descriptions(), info.label_names(), strict=True)
    return tuple(f"{words}, {number}" for words, number in pairs)
