"""A network's weights as the GPU's kernels read them: gathered at once, in all layouts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models import build_network
from upright.models.fused.fragments import as_fragments
from upright.models.fused.weight_layout import PADDED, Layers, Weights
from upright.models.resnet import ResNet


def network() -> ResNet:
    """A network whose norms are far from their start."""
    torch.manual_seed(0)
    model = build_network("resnet14").to(memory_format=torch.channels_last)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                assert tensor is not None
                tensor.data.uniform_(0.5, 1.5)
    assert isinstance(model, ResNet)
    return model


@torch.no_grad()
def weights_of(layers: Layers, dtype: torch.dtype = torch.float16) -> Weights:
    return layers.for_training(dtype)


def laid_out(convolution: nn.Conv2d) -> Tensor:
    """after x 3 x 3 x before, with zeros for the channels that images lack."""
    missing = max(0, PADDED - convolution.in_channels)
    return F.pad(convolution.weight.detach().permute(0, 2, 3, 1), (0, missing)).half()


def test_kernels_are_those_of_the_network_in_half_precision() -> None:
    layers = Layers(network())
    weights = weights_of(layers)
    for kernel, convolution in zip(weights.kernels, layers.convolutions, strict=True):
        assert kernel.equal(laid_out(convolution).flatten())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("some", [range(5), range(1, 5), range(6, 9), range(10, 13), range(7, 8)])
def test_fragments_are_the_kernels_as_fragments(some: range, transposed: bool) -> None:
    weights = weights_of(Layers(network()))
    kernels = torch.cat([weights.kernels[number] for number in some])
    channels = weights.widths[some.start]
    found = weights.fragments(some, transposed=transposed)
    assert found.equal(as_fragments(kernels, channels, transposed=transposed))


def test_what_kernels_read_begins_at_a_multiple_of_16_bytes() -> None:
    with torch.no_grad():
        layers = Layers(network())
        for weights in (layers.for_training(torch.float16), layers.for_evaluation(torch.float16)):
            tensors = [*weights.kernels, *weights.scales, *weights.shifts]
            tensors += [
                weights.fragments(range(5)),
                weights.fragments(range(6, 9), transposed=True),
            ]
            assert {tensor.data_ptr() % 16 for tensor in tensors} == {0}


@torch.no_grad()
def test_norms_are_factors_and_offsets_in_training_and_affine_maps_in_evaluation() -> None:
    model = network().eval()
    layers = Layers(model)
    trained, evaluated = weights_of(layers), layers.for_evaluation(torch.float16)
    for number, norm in enumerate(layers.norms):
        assert trained.scales[number].equal(norm.weight)
        assert trained.shifts[number].equal(norm.bias)
        values = torch.randn(2, norm.num_features, 1, 1)
        scale, shift = (
            part[:, None, None] for part in (evaluated.scales[number], evaluated.shifts[number])
        )
        torch.testing.assert_close(values * scale + shift, norm(values))


def test_weights_are_read_anew_at_each_call_but_while_they_are_held() -> None:
    model = network()
    layers = Layers(model)

    def stem() -> float:
        return float(weights_of(layers).kernels[0][0])

    def shift() -> float:
        with torch.no_grad():
            return float(layers.for_evaluation(torch.float16).shifts[-1][0])

    with layers.held():
        before = stem(), shift()
        with torch.no_grad():
            model.stem.weight.zero_()
            model.norm.bias.add_(1)
        assert (stem(), shift()) == before
    assert stem() == 0
    assert shift() == pytest.approx(before[1] + 1)
