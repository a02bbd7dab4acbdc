"""A stage forward and backward in one CUDA kernel each, against autograd.

On a CPU the kernels are emulated, and where there is a GPU they also run as they are.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from host_kernels import DEVICES, on_cpu
from upright.models.fused.differentiable_stage import DifferentiableStage, differentiable_stage
from upright.models.fused.pipelined_stage import PipelinedShape
from upright.models.fused.stage import StageShape
from upright.models.fused.weight_layout import PADDED, Layers
from upright.models.resnet import SLOPE, ResNet


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cpu":  # without a GPU there is no device to change to
        monkeypatch.setattr(torch.cuda, "device_of", lambda _: contextlib.nullcontext())
    return str(request.param)


class Climb:
    """A network's first convolution, which may stay outside, and two blocks."""

    def __init__(self, shape: StageShape, device: str) -> None:
        self.shape, self.convolutions, self.device = shape, range(1 - shape.stem, 5), device
        self.generator = torch.Generator().manual_seed(0)
        width = shape.channels / 16
        model = ResNet(depth=14, width=width, classes=10, channels=PADDED).to(device)
        layers = Layers(model)
        with torch.no_grad():
            for conv, norm in zip(layers.convolutions, layers.norms, strict=True):
                conv.weight.copy_(self.draw(*conv.weight.shape) / conv.weight[0].numel() ** 0.5)
                norm.weight.copy_(0.5 + self.draw(len(norm.weight)).abs())
                norm.bias.copy_(0.3 * self.draw(len(norm.weight)))
            self.weights = layers.for_evaluation(shape.dtype)

    def draw(self, *size: int) -> Tensor:
        return torch.randn(*size, generator=self.generator).to(self.device)

    def activate(self, raw: Tensor, number: int) -> Tensor:
        scale, shift = self.weights.scales[number], self.weights.shifts[number]
        return self.rounded(F.leaky_relu(raw * scale.double() + shift.double(), SLOPE))

    def rounded(self, values: Tensor) -> Tensor:
        """To half precision, with the gradient of the identity: so nearly all that is near a
        ReLU's bend is on the side on which the kernel has it."""
        return values + (values.to(self.shape.dtype).double() - values).detach()

    def convolve(self, values: Tensor, number: int) -> Tensor:
        kernel = self.weights.kernels[number].double().view(-1, 3, 3, values.shape[-1])
        moved = F.conv2d(values.permute(0, 3, 1, 2), kernel.permute(0, 3, 1, 2), padding=1)
        return moved.permute(0, 2, 3, 1)

    def enter(self, source: Tensor, active_shortcut: bool) -> tuple[Tensor, Tensor]:
        """What enters the first block, from the images or from the sums before it."""
        active = self.activate(self.convolve(source, 0) if self.shape.stem else source, 0)
        return active, active if active_shortcut else source

    def kernels(self, folder: Path) -> DifferentiableStage:
        compiled = differentiable_stage if self.device == "cuda" else on_cpu(folder)[2]
        found = compiled(self.shape, torch.device(self.device))
        assert found is not None
        return found

    def run(self, active: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        for number in (1, 3):
            inner = self.activate(self.convolve(active, number), number)
            total = raw + self.convolve(inner, number + 1)
            active, raw = self.activate(total, number + 1), self.rounded(total)
        return raw, active


@pytest.mark.parametrize(
    ("shape", "images", "active_shortcut", "tolerance"),
    [
        (StageShape(16, 32, 32, torch.float16, stem=True, signs=True), 1, True, 5e-4),
        (StageShape(16, 8, 16, torch.float16, signs=True), 9, True, 5e-4),
        (StageShape(32, 16, 16, torch.float16, signs=True), 3, False, 5e-4),
        (StageShape(32, 16, 16, torch.bfloat16, signs=True), 1, False, 4e-3),
        (PipelinedShape(64, 8, 8, torch.float16, signs=True), 2, True, 5e-4),
        (PipelinedShape(64, 8, 8, torch.bfloat16, signs=True), 3, False, 4e-3),
    ],
)
def test_the_backward_kernel_gives_the_gradient_of_what_entered(
    shape: StageShape,
    images: int,
    active_shortcut: bool,
    tolerance: float,
    device: str,
    tmp_path: Path,
) -> None:
    climb = Climb(shape, device)
    kernels = climb.kernels(tmp_path)
    source, ways = (
        climb.draw(images, shape.height, shape.width, shape.channels).to(shape.dtype)
        for _ in range(2)
    )
    leaf = source.double().requires_grad_()
    active, raw = climb.enter(leaf, active_shortcut)
    expected = climb.run(active, raw)
    exact = torch.autograd.grad((expected[0] * ways.double()).sum(), leaf)[0]

    entered = (source, source) if shape.stem else (active.to(shape.dtype), raw.to(shape.dtype))
    output = kernels.forward(*entered, climb.weights, climb.convolutions)
    found = kernels.backward(
        ways, output.signs, climb.weights, climb.convolutions, active_shortcut=active_shortcut
    )
    pairs = zip((output.raw, output.active, found), (*expected, exact), strict=True)
    for mine, other in ((mine.double(), other.detach()) for mine, other in pairs):
        difference, size = (mine - other).abs(), other.square().mean().sqrt()
        assert float(difference.median() / size) < tolerance
        # An activation that is rounded to the other side of zero changes some gradients by a tenth.
        assert float(difference.square().mean().sqrt() / size) < 1e-2
