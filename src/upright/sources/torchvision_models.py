"""Models of torchvision: ``torchvision:NAME``, with their published weights or those of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from upright.models.of_libraries import need_torchvision
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.sources.registry import model_source
from upright.train.weight_files import load_weights, read_weights

__all__ = ["load_torchvision"]

# As files of DenseNets have it, which torchvision published before this was no name any more.
_OLD_NAME = re.compile(r"^(.*denselayer\d+\.(?:norm|conv))\.([12]\.)")


@model_source(
    "torchvision:NAME",
    r"torchvision:([^@]*)(?:@(.+))?",
    prefix=True,
    about="with its published weights; torchvision:NAME@FILE has those of a file",
)
def load_torchvision(name: str, file: str | None, *, device: torch.device) -> Pretrained:
    """Load a classifier of torchvision, with the transforms of its published weights."""
    models = need_torchvision(name).models
    published = models.get_model_weights(name).DEFAULT
    usual, classes = Preprocess.of(published.transforms()), tuple(published.meta["categories"])
    if file is None:
        network = _published(models, name, published)
    else:
        network, outputs = _with_weights(models, name, file)
        classes = classes if outputs == len(classes) else ()
    return Pretrained(network.to(device).eval(), usual, classes)


def _published(models: Any, name: str, weights: Any) -> nn.Module:
    try:
        return models.get_model(name, weights=weights)  # type: ignore[no-any-return]
    # Weights come over the network: what that raises depends on who serves them.
    except Exception as error:
        text = " ".join(str(error).split())
        raise ValueError(
            f"torchvision could not load {name}: {text}; give weights of your own as "
            f"torchvision:{name}@FILE"
        ) from error


def _with_weights(models: Any, name: str, file: str) -> tuple[nn.Module, int]:
    """A network with as many outputs as the weights have, and how many these are."""
    weights = {_OLD_NAME.sub(r"\1\2", key): value for key, value in read_weights(file).items()}
    options = _options(name, weights)
    with torch.device("meta"):
        last = [*models.get_model(name, weights=None, **options).state_dict()][-1]
    outputs = len(weights[last]) if last in weights and weights[last].ndim else 1000
    network = models.get_model(name, weights=None, num_classes=outputs, **options)
    load_weights(network, weights, file=file)
    return network, outputs


def _options(name: str, weights: Mapping[str, Tensor]) -> dict[str, bool]:
    """As the published weights have it: these two take their own normalisation back first."""
    if name not in ("googlenet", "inception_v3"):
        return {}
    aux = any(key.lower().startswith("aux") for key in weights)
    return {"transform_input": True, "aux_logits": aux, "init_weights": False}
