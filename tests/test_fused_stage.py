"""The CUDA kernel of a stage computes what its blocks do, on a CPU: no GPU is needed."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from upright.models import build_network
from upright.models.fused.stage import Shape, arrange
from upright.models.fused.weights import Layers
from upright.models.resnet import SLOPE, ResNet

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def on_host(shape: Shape, folder: Path) -> ctypes.CDLL:
    """The kernel, for a CPU."""
    library = folder / "stage.so"
    command = ["g++", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-o", str(library)]
    kernels = Path(str(files("upright.models.fused")))
    options = [*shape.options, f"-DSHARED_BYTES={shape.shared_bytes}", f"-I{kernels}"]
    source = Path(__file__).with_name("stage_on_host.cpp")
    subprocess.run([*command, *options, str(source)], check=True)
    return ctypes.CDLL(str(library))


def blocks_one_by_one(
    active: Tensor, raw: Tensor, kernels: Tensor, scale: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """The blocks' arithmetic in double precision, N x C x H x W."""

    def activate(x: Tensor, number: int) -> Tensor:
        return F.leaky_relu(x * scale[number, :, None, None] + shift[number, :, None, None], SLOPE)

    stem = len(kernels) % 2
    if stem:
        raw = active = activate(F.conv2d(active, kernels[0], padding=1), 0)
    for number in range(stem, len(kernels), 2):
        inner = activate(F.conv2d(active, kernels[number], padding=1), number)
        raw = raw + F.conv2d(inner, kernels[number + 1], padding=1)
        active = activate(raw, number + 1)
    return raw, active


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "images", "tolerance"),
    [
        (Shape(16, 32, 32, torch.float16, stem=True), 1, 1e-3),
        (Shape(16, 8, 16, torch.float16), 9, 1e-3),
        (Shape(32, 16, 16, torch.float16), 3, 1e-3),
        (Shape(32, 16, 16, torch.bfloat16), 1, 8e-3),
    ],
)
def test_kernel_gives_what_the_blocks_give(
    shape: Shape, images: int, tolerance: float, tmp_path: Path
) -> None:
    assert shape.fits
    channels, dtype, count = shape.channels, shape.dtype, 4 + shape.stem
    generator = torch.Generator().manual_seed(0)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    active, raw = (draw(images, shape.height, shape.width, channels).to(dtype) for _ in range(2))
    kernels = (draw(count, channels, 3, 3, channels) / (9 * channels) ** 0.5).to(dtype)
    scale, shift = 0.5 + draw(count, channels).abs(), 0.3 * draw(count, channels)
    active_out, raw_out = torch.empty_like(active), torch.empty_like(raw)
    packed = arrange(kernels.flatten(), channels)
    pointers = (active, raw, active_out, raw_out, packed, scale, shift)
    on_host(shape, tmp_path).run(
        *(ctypes.c_void_p(tensor.data_ptr()) for tensor in pointers), images, 2
    )
    expected = blocks_one_by_one(
        active.double().permute(0, 3, 1, 2),
        raw.double().permute(0, 3, 1, 2),
        kernels.double().permute(0, 1, 4, 2, 3),
        scale.double(),
        shift.double(),
    )
    for found, exact in zip((raw_out, active_out), expected, strict=True):
        difference = found.double().permute(0, 3, 1, 2) - exact
        assert float(difference.norm() / exact.norm()) < tolerance
        assert float(difference.abs().max()) < 20 * tolerance


def test_stages_are_the_blocks_that_leave_the_shape_as_it_is() -> None:
    model = build_network("resnet20")
    assert isinstance(model, ResNet)
    assert Layers(model).stages == [range(3), range(4, 6), range(7, 9)]


@pytest.mark.parametrize(
    "shape",
    [
        Shape(64, 8, 8, torch.float16),
        Shape(16, 30, 32, torch.float16),
        Shape(16, 32, 17, torch.float16),
        Shape(16, 96, 96, torch.float16),
        Shape(16, 32, 32, torch.float32),
    ],
)
def test_shapes_that_a_group_of_threads_cannot_hold_do_not_fit(shape: Shape) -> None:
    assert not shape.fits
