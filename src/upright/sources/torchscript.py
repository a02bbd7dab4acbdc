"""Models saved by ``torch.jit``: ``FILE.pt``, also under the other endings that people give them.

Files of the same endings hold weights for the most. An archive of TorchScript is known by the code
that it has.
"""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path, PurePosixPath

import torch

from upright.checks import Model
from upright.factories import need_file
from upright.identity import FromFile, file_digest
from upright.sources.registry import model_source, unknown_model

__all__ = ["load_torchscript"]


@model_source("FILE.pt", r"(.+\.(?:pt|pth|ts|torchscript))", about="of torch.jit")
def load_torchscript(name: str, *, device: torch.device) -> Model:
    """Load a scripted or traced module."""
    path = need_file(name)
    if not _has_code(path):
        raise unknown_model(name)
    try:
        with warnings.catch_warnings():
            # That TorchScript is to be left is news for who saves a model, not for who has it.
            warnings.simplefilter("ignore", DeprecationWarning)
            module: torch.jit.ScriptModule = torch.jit.load(path, map_location=device)
    # Depending on what is wrong with the file, almost any error.
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as a model of torch.jit: {' '.join(str(error).split())[:200]}; "
            f"write it with torch.jit.save, by a version of PyTorch no newer than "
            f"{torch.__version__}"
        ) from error
    # Its weights are not all: code and constants of the file answer, too.
    return FromFile(module.eval(), file_digest(path))


def _has_code(path: Path) -> bool:
    """Whether it is an archive of TorchScript: pickles of weights have no code beside them."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = [PurePosixPath(name).parts[1:] for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False
    return ("constants.pkl",) in inside and any(parts[:1] == ("code",) for parts in inside)
