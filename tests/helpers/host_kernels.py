"""The CUDA kernels of ``upright.models.fused`` compiled for a CPU, and whole passes through them.

Run as a program, in Triton's interpreter, it prints by how much passes in float16 with these
kernels, and with Triton's alone, differ from the network itself, as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from upright.models.fused import (
    FusedResNet,
    FusedTraining,
    convolution_backward_kernels,
    differentiable_stage,
    stage,
    training_layer,
)
from upright.models.fused.differentiable_stage import DifferentiableStage
from upright.models.fused.evaluation_gradient import differentiable_logits
from upright.models.fused.nvrtc import as_argument
from upright.models.fused.stage import StageShape
from upright.models.fused.training_layer import LayerKernels, LayerShape
from upright.models.fused.weight_layout import Layers
from upright.models.resnet import ResNet

HERE = Path(__file__).parent / "on_host"

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

DEVICES = [
    pytest.param("cpu", marks=needs_compiler),
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
"""Where kernels run: emulated, or as they are."""


@dataclass(frozen=True)
class HostKernel:
    """A kernel on a CPU: launched as on a GPU, and done when that returns."""

    library: ctypes.CDLL
    name: str

    def launch(self, grid: int, *arguments: Tensor | int | None) -> None:
        self.library[f"run_{self.name}"](grid, *map(as_argument, arguments))


def compiled(shape: StageShape | LayerShape, folder: Path) -> ctypes.CDLL:
    """The kernels of one shape, for a CPU."""
    source, about = "layer.cpp", list[str]()
    if isinstance(shape, StageShape):
        source = "blocks.cpp"
        about = [f"-DPROGRAM={shape.program}", f'-DKERNELS="{shape.program}.cu"']
    library = folder / f"{type(shape).__name__}-{abs(hash(shape))}.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas"]
    kernels = Path(str(files("upright.models.fused")))
    options = [*about, *shape.options, f"-DSHARED_BYTES={shape.shared_bytes}", f"-I{kernels}"]
    subprocess.run([*command, *options, "-o", str(library), str(HERE / source)], check=True)
    return ctypes.CDLL(str(library))


def on_cpu(folder: Path) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """What takes the place of ``stage_kernel``, ``layer_kernels`` and ``differentiable_stage``."""

    @cache
    def stage_kernel(shape: StageShape, _device: torch.device) -> HostKernel | None:
        if not shape.fits:
            return None
        return HostKernel(compiled(shape, folder), shape.program)

    @cache
    def layer_kernels(shape: LayerShape, _device: torch.device) -> LayerKernels | None:
        if not shape.fits:
            return None
        library = compiled(shape, folder)
        ways = (HostKernel(library, f"layer_{way}") for way in ("forward", "backward"))
        return LayerKernels(shape, *ways)  # type: ignore[arg-type]

    @cache
    def differentiable_stage(
        shape: StageShape, _device: torch.device
    ) -> DifferentiableStage | None:
        if not shape.fits:
            return None
        library = compiled(shape, folder)
        ways = (HostKernel(library, f"{shape.program}{way}") for way in ("", "_backward"))
        return DifferentiableStage(shape, *ways)  # type: ignore[arg-type]

    return stage_kernel, layer_kernels, differentiable_stage


def ascents(model: ResNet, images: Tensor, ways: Tensor) -> dict[str, float]:
    """How far logits and the gradients of images in float16 are off in evaluation mode."""
    from interpreted_kernels import relative

    images, layers = images.clone().requires_grad_(), Layers(model)
    with torch.no_grad():
        weights = layers.for_evaluation(torch.float16)
    exact = model(images)
    logits = differentiable_logits(images, layers, weights)
    slope, found = (torch.autograd.grad((one * ways).sum(), images)[0] for one in (exact, logits))
    return {
        "logits of ascents": relative(logits.detach(), exact.detach()),
        "gradients of images": relative(found, slope),
    }


def passes(images: Tensor, ways: Tensor) -> dict[str, float]:
    """How far logits, gradients and statistics in float16 are off those of the network itself."""
    from interpreted_kernels import network, relative

    plain, fused = (network(depth=14) for _ in range(2))
    with torch.no_grad():
        found = FusedResNet(fused.eval(), torch.float16)(images)
        result = {"evaluation": relative(found, plain.eval()(images))}
        deep, small = network(width=4).eval(), images[..., :8, :8]  # a first stage of 64 channels
        found = FusedResNet(deep, torch.float16)(small)
        result["evaluation with 64 channels"] = relative(found, deep(small))
    result |= ascents(plain, images, ways)
    result |= {
        f"{name} with 64 channels": error for name, error in ascents(deep, small, ways).items()
    }
    plain.train(), fused.train()
    exact, logits = plain(images), FusedTraining(fused, torch.float16)(images)
    (exact * ways).sum().backward()
    (logits * ways).sum().backward()
    result["logits"] = relative(logits.detach(), exact.detach())
    pairs = list(zip(fused.parameters(), plain.parameters(), strict=True))
    mine, other = (torch.cat([pair[side].grad.flatten() for pair in pairs]) for side in (0, 1))
    result["gradients"] = relative(mine, other)
    buffers = zip(fused.buffers(), plain.buffers(), strict=True)
    result["statistics"] = max(relative(mine, other) for mine, other in buffers)
    return result


if __name__ == "__main__":
    from interpreted_kernels import few_programs

    convolution_backward_kernels.tile_for = few_programs
    torch.cuda.device_of = lambda _: contextlib.nullcontext()  # type: ignore[assignment,misc]
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(1, 3, 16, 32, generator=generator)  # for layers of two stages
    ways = torch.randn(1, 10, generator=generator)
    results = {"triton": passes(images, ways)}
    stand_ins = on_cpu(Path(sys.argv[1]))
    stage.stage_kernel, training_layer.layer_kernels = stand_ins[:2]
    differentiable_stage.differentiable_stage = stand_ins[2]
    results["cuda"] = passes(images, ways)
    print(json.dumps(results))
