"""Models saved by ``torch.jit``: ``FILE.pt``, also under the other endings that people give them.

Files of the same endings hold weights for the most. An archive of TorchScript is known by the code
that it has.
"""

from __future__ import annotations

import re
import warnings

import torch
from torch import Tensor

from upright.checks import Model
from upright.factories import need_file
from upright.identity import FromFile, file_digest
from upright.sources.registry import model_source, unknown_model
from upright.sources.sized import not_taken
from upright.tiles import is_out_of_memory
from upright.train.weight_files import is_torchscript

__all__ = ["load_torchscript"]

_LAST_WORDS = re.compile(r"(?:.*\n)?[\w.]*(?:Error|Exception): (.*)", re.DOTALL)
"""Of an error: what follows the traceback and the error's kind."""


@model_source("FILE.pt", r"(.+\.(?:pt|pth|ts|torchscript))", about="of torch.jit")
def load_torchscript(name: str, *, device: torch.device) -> Model:
    """Load a scripted or traced module."""
    path = need_file(name)
    if not is_torchscript(path):
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
    return _Script(module.eval(), file_digest(path))


class _Script(FromFile):
    """Says what is wrong with images without the traceback of the script, which is for its author.

    By an error of the same kind: a model in half precision is asked once more after it.
    """

    def forward(self, images: Tensor) -> Tensor:
        try:
            return self.model(images)
        except (RuntimeError, torch.jit.Error) as error:
            if is_out_of_memory(error):
                raise
            raise RuntimeError(not_taken(images, _last_words(error))) from error


def _last_words(error: Exception) -> str:
    found = _LAST_WORDS.fullmatch(str(error))
    return found[1] if found else str(error)
