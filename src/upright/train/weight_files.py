"""Weights in a file, for a network that is known without: ``timm:NAME@FILE``, or to start from."""

from __future__ import annotations

import argparse
import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from pickle import UnpicklingError
from textwrap import shorten
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from upright.factories import need_file

__all__ = ["as_called_in", "is_torchscript", "load_weights", "read_weights", "weights_digest"]

_NOT_READ = re.compile(r"Unsupported global: GLOBAL (\S+)")
_WRAPPED = "module."
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_IN_WORDS = (OSError, RuntimeError, UnpicklingError, SafetensorError)
"""What says to a person why a file cannot be read; of a damaged pickle there are others, too."""


def read_weights(name: str) -> dict[str, Tensor]:
    """Read a state dict from a ``.safetensors`` file or from one of ``torch.save``; runs no code.

    Of a checkpoint it is what is called ``state_dict``, ``model`` or ``model_state_dict``.
    """
    path = need_file(name)
    if is_torchscript(path):
        raise ValueError(
            f"{path} is a model of torch.jit, and not weights alone; save these, by "
            f"torch.save(torch.jit.load({path.name!r}).state_dict(), FILE)"
        )
    if path.suffix.lower() == ".onnx":
        raise ValueError(
            f"{path} is a model of ONNX, and not weights alone; save these where it was exported, "
            "by torch.save(model.state_dict(), FILE)"
        )
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # The options of whoever trained it are plain values, and lie beside many weights.
        with torch.serialization.safe_globals([argparse.Namespace]):
            found: Any = torch.load(path, map_location="cpu", weights_only=True)
    # Depending on what is wrong with the file, almost any error.
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as weights: {_why(error)}; save the state_dict() of the "
            "network alone, by torch.save or safetensors"
        ) from error
    for inside in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(inside), Mapping):
            found = found[inside]
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        raise ValueError(f"{path} holds no weights by name; save the state_dict() of the network")
    # As DistributedDataParallel calls them.
    return {str(key).removeprefix(_WRAPPED): value for key, value in found.items()}


def as_called_in(network: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give weights by the names of a network that has a part of its own called ``module``."""
    known = network.state_dict().keys()
    return {
        _WRAPPED + name if name not in known and _WRAPPED + name in known else name: value
        for name, value in weights.items()
    }


def is_torchscript(path: Path) -> bool:
    """Whether it is an archive of TorchScript: pickles of weights have no code beside them."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = [PurePosixPath(name).parts[1:] for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False
    return ("constants.pkl",) in inside and any(parts[:1] == ("code",) for parts in inside)


def _why(error: Exception) -> str:
    """Say in a line what is wrong with a file, without advice to trust it."""
    if not isinstance(error, _IN_WORDS):
        return "it is damaged, or of another kind"
    text = " ".join(_COLOUR.sub("", str(error)).split())
    if found := _NOT_READ.search(text):
        return f"it holds a {found[1]}, for which code would have to be run"
    return shorten(text, 200, placeholder=" …")


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], *, file: str) -> None:
    """Give a network weights, all of them and no others."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        text = shorten(str(error), 300, placeholder=" …")
        raise ValueError(f"{file} holds weights of another network: {text}") from error


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of weights by name, whichever file or network they are in."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        plain = tensor.detach().cpu().contiguous().view(-1)
        digest.update(name.encode() + plain.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
