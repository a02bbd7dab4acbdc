"""Models in ONNX files, run by onnxruntime: ``FILE.onnx``. They give no gradients.

Such a file is a program. It runs in this process, and nothing bounds the memory and the time that
it takes, some of it while it is loaded: it is trusted like other code, see ``SECURITY.md``.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import Tensor

from upright.factories import need_file, need_library
from upright.identity import FromFile, file_digest
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.sources.registry import model_source
from upright.sources.sized import Sized, not_taken
from upright.tiles import is_out_of_memory

__all__ = ["OnnxModel", "load_onnx"]

_FLOAT = "tensor(float)"
_CHANNELS = (1, 3)
# How protobuf writes the pair of "location" and a name, up to the length of that, in 7 bits a byte.
_LOCATION = re.compile(rb"\n\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])", re.DOTALL)


class OnnxModel:
    """One float32 input of images, one float32 output of logits."""

    def __init__(self, path: Path, *, device: torch.device) -> None:
        runtime = need_library("onnxruntime", extra="onnx", wanted=path.name)
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors; its warnings are about speed
        # As many threads as torch has, which moves the images, and none that waits by spinning:
        # threads of the one would take the cores from those of the other.
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        there = runtime.get_available_providers()
        gpu = ["CUDAExecutionProvider"] if device.type == "cuda" else []
        providers = [name for name in (*gpu, "CPUExecutionProvider") if name in there]
        try:
            self._session = runtime.InferenceSession(
                path, options, providers=providers, enable_fallback=len(gpu)
            )
        # The runtime's errors have no base class of their own.
        except Exception as error:
            text = " ".join(str(error).split())
            raise ValueError(
                f"{path} cannot be read as an ONNX model: {text}; export it again, and load only "
                "files that you trust, since they are programs"
            ) from error
        self._quiet = runtime.RunOptions()
        self._quiet.log_severity_level = 4  # what goes wrong with images is raised, too
        self._input = _only(path, "input", self._session.get_inputs())
        self._output = _only(path, "output", self._session.get_outputs())
        self.shape: list[int | str | None] = self._input.shape

    def __call__(self, images: Tensor) -> Tensor:
        feed = {self._input.name: images.detach().float().cpu().contiguous().numpy()}
        try:
            (logits,) = self._session.run([self._output.name], feed, self._quiet)
        # The runtime's errors have no base class of their own.
        except Exception as error:
            if is_out_of_memory(error):
                raise
            why = str(error).rpartition("Status Message: ")[2]
            raise ValueError(not_taken(images, why)) from error
        return torch.from_numpy(logits).to(images.device)


@model_source("FILE.onnx", r"(.+\.onnx)", about="run by onnxruntime")
def load_onnx(name: str, *, device: torch.device) -> Pretrained:
    """Load an ONNX model; one that was exported for a fixed batch size takes any.

    It is a program, which may take any memory and time: load only those that you trust.
    """
    path = need_file(name)
    model = OnnxModel(path, device=device)
    if len(model.shape) != 4:
        raise ValueError(
            f"{path} takes input of shape {model.shape}; export a model that takes images, "
            "N x C x H x W or N x H x W x C"
        )
    # Sizes that may vary have a name, or none.
    batch, *image = (size if isinstance(size, int) else None for size in model.shape)
    last = image[2] in _CHANNELS and image[0] not in _CHANNELS
    sized = Sized(model, batch or 1, batch, tuple(image), channels_last=last)
    return Pretrained(
        FromFile(sized, file_digest(path, *_weights_beside(path))),
        Preprocess(
            layout="channels-last" if last else None, resize=sized.side, center_crop=sized.side
        ),
        in_torch=False,
    )


def _weights_beside(path: Path) -> list[Path]:
    """The files of weights that an ONNX file names: it need not hold them itself."""
    content, names = path.read_bytes(), set[str]()
    for match in _LOCATION.finditer(content):
        length = sum((byte & 127) << 7 * place for place, byte in enumerate(match[1]))
        names.add(content[match.end() : match.end() + length].decode(errors="replace"))
    inside = [name for name in sorted(names) if not {"..", "/"} & {*PurePath(name).parts}]
    files = [path.parent / name for name in inside if "\0" not in name]
    return [file for file in files if file.is_file()]


def _only(path: Path, kind: str, values: list[Any]) -> Any:
    if len(values) != 1:
        names = ", ".join(value.name for value in values)
        raise ValueError(
            f"{path} has {len(values)} {kind}s ({names}); export a model from images to logits "
            "alone"
        )
    if values[0].type != _FLOAT:
        raise ValueError(
            f"the {kind} of {path} is {values[0].type}, but must be {_FLOAT}; export a float32 "
            "model from images to logits"
        )
    return values[0]
