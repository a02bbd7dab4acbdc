"""The CUDA kernels compute what the network does, on a CPU: no GPU is needed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from host_kernels import DEVICES, HostKernel, compiled, needs_compiler, on_cpu
from triton_interpreter import needs_interpreter, said_in_interpreter
from upright.models import build_network
from upright.models.fused.fragments import as_fragments
from upright.models.fused.nvrtc import source_of
from upright.models.fused.pipelined_stage import PipelinedShape, stage_shape_of
from upright.models.fused.stage import StageShape
from upright.models.fused.training_layer import (
    Constant,
    LayerKernels,
    LayerShape,
    layer_kernels,
)
from upright.models.fused.weight_layout import Layers
from upright.models.resnet import SLOPE, ResNet


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU there is no device to change to."""
    monkeypatch.setattr(torch.cuda, "device_of", lambda _: contextlib.nullcontext())


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LayerKernels]:
    """Those of each shape, compiled once."""
    return on_cpu(tmp_path_factory.mktemp("kernels"))[1]


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
        (StageShape(16, 32, 32, torch.float16, stem=True), 1, 1e-3),
        (StageShape(16, 8, 16, torch.float16), 9, 1e-3),
        (StageShape(32, 16, 16, torch.float16), 3, 1e-3),
        (StageShape(32, 16, 16, torch.bfloat16), 1, 8e-3),
        (PipelinedShape(64, 8, 8, torch.float16), 6, 1e-3),
        (PipelinedShape(64, 8, 8, torch.bfloat16), 1, 8e-3),
    ],
)
def test_kernel_gives_what_the_blocks_give(
    shape: StageShape, images: int, tolerance: float, tmp_path: Path
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
    packed = as_fragments(kernels.flatten(), channels)
    pointers = (active, raw, active_out, raw_out, packed, scale, shift, None)
    grid = shape.grid_for(images)
    library = compiled(shape, tmp_path)
    HostKernel(library, shape.program).launch(grid, *pointers, images, 2)
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


def sums_of(values: Tensor, other: Tensor) -> Tensor:
    """Of values and of their product with others, channel by channel."""
    return torch.stack([values.sum((0, 1, 2)), (values * other).sum((0, 1, 2))]).float()


def convolved(values: Tensor, kernel: Tensor, **options: Any) -> Tensor:
    """N x H x W x C, by a kernel of after x 3 x 3 x before."""
    moved = F.conv2d(values.permute(0, 3, 1, 2), kernel.permute(0, 3, 1, 2), padding=1, **options)
    return moved.permute(0, 2, 3, 1)


def averaged(values: Tensor) -> Tensor:
    """What a shortcut to half the size and twice the channels gives, N x H x W x C."""
    small = F.avg_pool2d(values.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
    return F.pad(small, [values.shape[3] // 2] * 2)


@dataclass
class Layer:
    """Random tensors around a convolution, and what its kernels need to know of them."""

    shape: LayerShape
    device: str
    images: int = 3

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)
        channels = self.shape.channels
        self.raw_before, self.raw, self.found, self.added, self.skip = (
            self.draw(self.images, self.shape.height, self.shape.width, channels, mean=0.3)
            for _ in range(5)
        )
        self.halved = self.draw(*averaged(self.raw).shape, mean=0.3)
        self.kernel = self.draw(channels, 3, 3, channels, factor=(9 * channels) ** -0.5)
        self.scale, self.shift, self.scale_before, self.shift_before = (
            self.draw(channels).float() for _ in range(4)
        )

    def draw(self, *size: int, mean: float = 0.0, factor: float = 1.0) -> Tensor:
        """Values that half precision holds: rounding them would move some past a ReLU's bend."""
        values = mean + factor * torch.randn(*size, generator=self.generator)
        return values.to(self.shape.dtype).double().to(self.device)

    def normal(self, values: Tensor) -> Tensor:
        mean, variance = values.mean((0, 1, 2)), values.var((0, 1, 2), correction=0)
        return (values - mean) / (variance + self.shape.epsilon).sqrt()

    def half(self, values: Tensor) -> Tensor:
        return values.to(self.shape.dtype).contiguous()

    def kernels(self, on_host: Callable[..., LayerKernels]) -> LayerKernels:
        compiled = layer_kernels if self.device == "cuda" else on_host
        found = compiled(self.shape, torch.device(self.device))
        assert found is not None
        return found

    def check(self, found: Tensor, exact: Tensor, tolerance: float) -> None:
        assert float((found.double() - exact).norm() / exact.norm()) < tolerance


LAYERS = [
    (LayerShape(16, 32, 32, torch.float16, 1e-5), 1e-3),
    (LayerShape(16, 8, 16, torch.bfloat16, 1e-5), 8e-3),
    (LayerShape(32, 16, 16, torch.float16, 1e-5), 1e-3),
    (LayerShape(64, 8, 8, torch.float16, 1e-5), 1e-3),
]


@pytest.mark.usefixtures("no_devices")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("shape", "tolerance"), LAYERS)
@pytest.mark.parametrize("adds", [False, True])
def test_a_layer_forward(
    shape: LayerShape,
    tolerance: float,
    adds: bool,
    device: str,
    on_host: Callable[..., LayerKernels],
) -> None:
    layer = Layer(shape, device)
    wide = torch.ones(2, 2, 3 * shape.channels, device=device)
    sums = wide[0][:, shape.channels : 2 * shape.channels]
    sums_before = wide[1][:, : shape.channels]
    sums_before[:] = sums_of(layer.raw_before, layer.raw_before)
    active, raw = layer.kernels(on_host).forward(
        layer.half(layer.raw_before),
        (sums_before, layer.scale_before, layer.shift_before),
        as_fragments(layer.half(layer.kernel).flatten(), shape.channels)[0],
        sums,
        layer.half(layer.added) if adds else None,
    )
    assert active is not None
    normed = layer.normal(layer.raw_before) * layer.scale_before + layer.shift_before
    layer.check(active, F.leaky_relu(normed, SLOPE), tolerance)
    exact = convolved(active.double(), layer.kernel) + (layer.added if adds else 0)
    layer.check(raw, exact, tolerance)
    layer.check(sums, 1 + sums_of(raw.double(), raw.double()), 1e-5)


@pytest.mark.usefixtures("no_devices")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("shape", "tolerance"), LAYERS)
@pytest.mark.parametrize("adds", ["", "skip", "halved", "shortcut"])
def test_a_layer_backward(
    shape: LayerShape,
    tolerance: float,
    adds: str,
    device: str,
    on_host: Callable[..., LayerKernels],
) -> None:
    layer, channels = Layer(shape, device), shape.channels
    wide = torch.ones(4, 2, 2 * channels, device=device)
    sums, gradient_sums, sums_before, new_sums = (each[:, :channels] for each in wide)
    sums[:] = sums_of(layer.raw, layer.raw)
    gradient_sums[:] = sums_of(layer.found, layer.normal(layer.raw))
    sums_before[:] = sums_of(layer.raw_before, layer.raw_before)
    kernels, of_weights = layer.kernels(on_host), torch.ones_like(layer.kernel).float()
    skip = {"skip": layer.skip, "halved": layer.halved}.get(adds)
    assert kernels.takes(skip)
    gradient, found = kernels.backward(
        layer.half(layer.found),
        layer.half(layer.raw),
        (sums, gradient_sums, layer.scale),
        None if skip is None else layer.half(skip),
        as_fragments(layer.half(layer.kernel).flatten(), channels, transposed=True)[0],
        layer.half(layer.raw_before),
        (sums_before, layer.scale_before, layer.shift_before),
        layer.half(layer.added) if adds == "shortcut" else None,
        new_sums,
        of_weights,
    )
    assert gradient is not None
    raw = layer.raw.clone().requires_grad_()
    out = layer.normal(raw) * layer.scale + layer.shift
    total = (out * layer.found).sum()
    if skip is not None:
        total = total + ((raw if adds == "skip" else averaged(raw)) * skip).sum()
    exact = torch.autograd.grad(total, raw)[0]
    layer.check(gradient, exact, 2 * tolerance)

    normal = layer.normal(layer.raw_before)
    active = F.leaky_relu(normal * layer.scale_before + layer.shift_before, SLOPE)
    active.requires_grad_(), layer.kernel.requires_grad_()
    total = (convolved(active, layer.kernel) * gradient.double()).sum()
    through, exact_weights = torch.autograd.grad(total, (active, layer.kernel))
    layer.check(of_weights, 1 + exact_weights, tolerance)
    through = through + (layer.added if adds == "shortcut" else 0)
    exact = torch.where(active.detach() > 0, through, SLOPE * through)
    layer.check(found, exact, tolerance)
    layer.check(new_sums, 1 + sums_of(found.double(), normal), 1e-4)


@needs_compiler
@needs_interpreter
def test_whole_passes_through_the_kernels_give_what_the_network_gives(tmp_path: Path) -> None:
    found = said_in_interpreter("host_kernels.py", str(tmp_path))
    for name, error in found["cuda"].items():
        assert error != found["triton"][name], name  # other kernels round in another order
        assert error < 1.5 * found["triton"][name], name
        # Rounding moves a few activations to the other side of zero, and all before them sees it;
        # and of the gradient of one image's few pixels, a norm takes most away.
        assert error < (0.1 if name.startswith("gradients") else 2e-3), name


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        (LayerShape(16, 32, 32, torch.bfloat16, 1e-5), True),
        (LayerShape(32, 16, 16, torch.bfloat16, 1e-5), True),
        (LayerShape(64, 8, 8, torch.bfloat16, 1e-5), True),
        (LayerShape(64, 16, 16, torch.bfloat16, 1e-5), False),
        (LayerShape(32, 8, 8, torch.bfloat16, 1e-5), False),
        (LayerShape(16, 30, 32, torch.bfloat16, 1e-5), False),
        (LayerShape(16, 32, 32, torch.float32, 1e-5), False),
    ],
)
def test_layers_of_the_paper_s_network_fit(shape: LayerShape, fits: bool) -> None:
    assert shape.fits == fits


def test_the_text_of_a_kernel_has_all_its_parts_since_the_compiler_finds_no_files() -> None:
    text = source_of("training_layer.cu")
    assert "#include" not in text
    parts = (
        "void ldmatrix(",
        "struct alignas(16) Chunk",
        "struct WideWeightGradient",
        "layer_backward(",
    )
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


def test_kernels_know_the_rows_of_their_constants_by_name() -> None:
    text = source_of("training_layer.cu")
    rows = set(re.findall(r"constants\[(\w+)\]\[channel", text))
    assert rows == {row.name for row in Constant}
    assert [row.value for row in Constant] == list(range(len(Constant)))


def test_stages_are_the_blocks_that_leave_the_shape_as_it_is() -> None:
    model = build_network("resnet20")
    assert isinstance(model, ResNet)
    assert Layers(model).stages == [range(3), range(4, 6), range(7, 9)]


@pytest.mark.parametrize(
    "shape",
    [
        StageShape(64, 8, 8, torch.float16),
        StageShape(16, 30, 32, torch.float16),
        StageShape(16, 32, 17, torch.float16),
        StageShape(16, 96, 96, torch.float16),
        StageShape(16, 32, 32, torch.float32),
        PipelinedShape(64, 8, 8, torch.float32),
        PipelinedShape(64, 8, 16, torch.float16),
        PipelinedShape(64, 8, 8, torch.float16, stem=True),
    ],
)
def test_shapes_that_a_thread_block_cannot_hold_do_not_fit(shape: StageShape) -> None:
    assert not shape.fits


def test_each_stage_of_the_paper_s_network_has_a_kernel() -> None:
    sizes = (32, 32, 16), (16, 16, 32), (8, 8, 64)
    shapes = [
        stage_shape_of(torch.empty(1, *size, dtype=torch.float16), stem=False) for size in sizes
    ]
    assert [shape.program for shape in shapes] == ["stage", "stage", "pipelined_stage"]
    assert all(shape.fits for shape in shapes)
