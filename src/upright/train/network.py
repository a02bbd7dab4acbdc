"""The network of a recipe, and its weights among the tensors of a checkpoint.

It is one by a name that is registered, of this package or of a library, or one of the user's own
code.

Own code is ``FILE.py:FACTORY`` or ``package.module:FACTORY``, a function or a class. It is called
with the numbers of classes and of channels where it has parameters of their usual names, after the
recipe's seed was set: what it draws are the first weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from upright.checks import as_numbers, check_numbers, warn_if_probabilities
from upright.data import LabelledImages
from upright.factories import FILE, MODULE, Offer, code_digest, digest_of_code, find_factory
from upright.logits import ask
from upright.models import build_network, builder_of, is_network, network_forms
from upright.train.recipe import Recipe
from upright.window import Window

__all__ = [
    "build",
    "build_with",
    "check_code_is_here",
    "check_outputs",
    "is_brought",
    "is_own_code",
    "is_registered_by_user",
    "model_tensors",
    "own_code_digest",
    "plain_names",
    "restore_tensors",
    "with_code_digest",
]

_CLASSES = ("classes", "num_classes")
_CHANNELS = ("channels", "in_channels", "in_chans")
_ENLARGED = re.compile(r"^(enlarged\d+:)+")
"""What may stand before the name of any network."""
_PREFIX = "model/"
"""Of the names that weights and buffers have in a checkpoint."""


def is_own_code(model: str) -> bool:
    """Whether a recipe's network is code of the user's own."""
    named = FILE.fullmatch(model) is not None or MODULE.fullmatch(model) is not None
    return named and not is_network(model)


def is_brought(model: str) -> bool:
    """Whether a recipe's network is not of this package, but own code or a library's."""
    return ":" in _ENLARGED.sub("", model) or is_own_code(model)


def own_code_digest(model: str) -> str:
    """SHA-256 of the file of a network that is the user's own; empty for others."""
    return code_digest(model, kinds=network_forms()) if is_own_code(model) else ""


def is_registered_by_user(model: str) -> bool:
    """Whether a network by name is one that a user's code has given it.

    Its code is not noted: who plans a run must know its recipe before any network is there.
    """
    return bool(digest_of_code(builder_of(_ENLARGED.sub("", model))))


def build(model: str, *, classes: int, channels: int) -> nn.Module:
    """Build a recipe's network, with fresh weights."""
    factory = find_factory(model, kinds=network_forms()) if is_own_code(model) else None
    if factory is not None and isinstance(factory.value, nn.Module):
        raise ValueError(
            f"{model} is a network that is made already; name its class, or a function that makes "
            "it, so that the seed determines its weights"
        )
    network: object
    if factory is None:
        network = build_network(model, classes=classes, channels=channels)
    else:
        network = factory.make(
            # The usual name behind **kwargs: torchvision's and timm's.
            Offer(classes, _CLASSES, in_kwargs="num_classes"),
            Offer(channels, _CHANNELS),
        )
    if not isinstance(network, nn.Module):
        raise ValueError(
            f"{model} gives a {type(network).__name__}, which has no weights to train; give an "
            "nn.Module"
        )
    return network


def check_outputs(
    network: nn.Module, recipe: Recipe, data: LabelledImages, device: torch.device
) -> None:
    """Check, by one image, that a network takes images of this size, and has all outputs.

    What it counts, it counts from the first step on.
    """
    classes = len(recipe.outputs(data.classes))
    image = data.head(1).as_float().to(device)
    seen = Window.of(image, recipe.view).cut(image)
    known = {name: each for name, each in network.named_buffers() if not is_lazy(each)}
    before = {name: each.clone() for name, each in known.items()}
    with torch.no_grad(), _taking(recipe.model, seen):
        logits = ask(network.eval(), seen)
        for name, each in network.named_buffers():
            if name in before:
                each.copy_(before[name])
    check_numbers(as_numbers(logits))
    warn_if_probabilities(logits)
    if logits.shape[1] != classes:
        raise ValueError(
            f"{recipe.model} gives {logits.shape[1]} outputs, but {classes} are to be trained; let "
            "it have a parameter `classes` or `num_classes`, or this number"
        )


@contextmanager
def _taking(model: str, images: Tensor) -> Iterator[None]:
    """Say what images a network was shown that it does not take, by whatever error it says so."""
    try:
        yield
    except (AssertionError, RuntimeError) as error:
        text, size = " ".join(str(error).split()), " x ".join(map(str, images.shape[1:]))
        raise ValueError(
            f"{model} does not take images of {size}: {text}; give others, as by --resize and "
            "--center-crop, or enlarge them inside of a network, as in enlarged224:timm:NAME"
        ) from error


def check_code_is_here(model: str) -> None:
    """Check that a file of the user's own, which a run names, lies in the current folder.

    Nowhere else is looked for it: what lies beside a run that came from a stranger must not be run.
    """
    match = FILE.fullmatch(model)
    if match is not None and not Path(match[1]).expanduser().is_file():
        raise ValueError(
            f"{match[1]} is not in this folder; run it from the folder that has {match[1]}"
        )


def with_code_digest(recipe: Recipe) -> Recipe:
    """Note in a recipe which code it is about to run; code that it does not mean is an error."""
    digest = own_code_digest(recipe.model)
    if recipe.model_digest not in ("", digest):
        raise ValueError(
            f"the code of {recipe.model} is not that of the recipe; bring the old file back, or "
            "leave out model_digest"
        )
    return replace(recipe, model_digest=digest)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Give weights and buffers under the names that a checkpoint has for them."""
    return {_PREFIX + name: tensor for name, tensor in model.state_dict().items()}


def plain_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give the weights and buffers among the tensors of a checkpoint, as a network calls them."""
    return {
        name.removeprefix(_PREFIX): tensor
        for name, tensor in tensors.items()
        if name.startswith(_PREFIX)
    }


def restore_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy weights and buffers into a network, in place.

    By hand, to say in a line what does not fit.
    """
    _let_be_of_their_sizes(model, tensors)
    own = model_tensors(model)
    given = {name for name in tensors if name.startswith(_PREFIX)}
    if differing := sorted(own.keys() ^ given):
        few = ", ".join(map(repr, differing[:4]))
        raise ValueError(f"the weights are those of another network: {few}")
    if other := [name for name, tensor in own.items() if tensor.shape != tensors[name].shape]:
        raise ValueError(f"the weights are of other sizes: {', '.join(other[:4])}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _let_be_of_their_sizes(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give layers that wait for their first images the sizes of what they are to hold."""
    for name, own in (*model.named_parameters(), *model.named_buffers()):
        given = tensors.get(f"{_PREFIX}{name}")
        if is_lazy(own) and given is not None:
            own.materialize(given.shape)


def build_with(
    tensors: dict[str, Tensor],
    name: str,
    *,
    classes: int,
    channels: int,
    build: Callable[..., nn.Module] = build_network,
) -> nn.Module:
    """Build a network with these weights, in evaluation mode.

    By its name among those of this package, unless told how to build: who reads files of strangers
    must not run code that they name.
    """
    # Or a few bytes beside the weights could ask for a network that fills all memory.
    if all(classes not in tensor.shape for tensor in tensors.values()):
        raise ValueError(f"no weights are for its {classes} classes")
    model = build(name, classes=classes, channels=channels)
    restore_tensors(model, tensors)
    return model.eval()
