"""Models saved by ``torch.export``: ``FILE.pt2``. They run without the code that made them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from upright.checks import warn_that_export_trains
from upright.factories import need_file
from upright.identity import FromFile, file_digest
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.sources.registry import model_source
from upright.sources.sized import Sized

__all__ = ["load_exported"]


@model_source("FILE.pt2", r"(.+\.pt2)", about="of torch.export")
def load_exported(name: str, *, device: torch.device) -> Pretrained:
    """Load an exported program; one that was exported for a fixed batch size takes any."""
    path = need_file(name)
    program = move_to_device_pass(_read(path), device)
    example = _example_input(path, program)
    if _trains(program):
        warn_that_export_trains(path)
    module = program.module()

    # A function, not the module: that one says it is in training mode, whatever was exported.
    def model(images: Tensor) -> Tensor:
        logits: Tensor = module(images.to(example.dtype))
        return logits

    batch, *image = example.shape
    least, most = _bounds(program, batch)
    sized = Sized(model, least, most, tuple(_fixed(size) for size in image))
    usual = Preprocess(resize=sized.side, center_crop=sized.side)
    return Pretrained(FromFile(sized, file_digest(path)), usual)


def _read(path: Path) -> ExportedProgram:
    try:
        with _without_logs():
            return torch.export.load(path)
    # Depending on what is wrong with the file, almost any error.
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as a program of torch.export: "
            f"{' '.join(str(error).split())}; write it with torch.export.save, by a version of "
            f"PyTorch no newer than {torch.__version__}"
        ) from error


def _example_input(path: Path, program: ExportedProgram) -> Tensor:
    """The stand-in for the input that the program was exported with."""
    inputs = program.graph_signature.user_inputs
    nodes = [node for node in program.graph.nodes if node.name in inputs]
    values = [node.meta["val"] for node in nodes]
    if len(values) != 1 or not isinstance(values[0], Tensor) or values[0].ndim != 4:
        raise ValueError(
            f"{path} takes {len(inputs)} inputs ({', '.join(map(str, inputs))}); export a model "
            "that takes images, N x C x H x W, and nothing else"
        )
    if not values[0].is_floating_point():
        raise ValueError(
            f"{path} takes images in {values[0].dtype}, and not as float in [0, 1]; export a model "
            "that takes these, and converts them inside"
        )
    return values[0]


def _trains(program: ExportedProgram) -> bool:
    """Whether an operation is told to do as in training: it has an argument of that name."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        names = [] if schema is None else [argument.name for argument in schema.arguments]
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        if given.get("training") is True or given.get("train") is True:
            return True
    return False


def _bounds(program: ExportedProgram, batch: int | torch.SymInt) -> tuple[int, int | None]:
    """The smallest and the largest batch that the program takes."""
    if isinstance(batch, int):
        return batch, batch
    allowed = program.range_constraints.get(batch.node.expr)
    if allowed is None:
        return 1, None
    return max(1, int(allowed.lower)), int(allowed.upper) if allowed.upper.is_Integer else None


def _fixed(size: int | torch.SymInt) -> int | None:
    return size if isinstance(size, int) else None


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """PyTorch logs a traceback before it raises, which would say everything twice."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
