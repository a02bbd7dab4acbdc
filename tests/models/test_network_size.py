"""How large networks are, counted layer by layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from upright.models import build_network
from upright.models.size import NetworkSize, network_size


@pytest.mark.parametrize("model", ["resnet32", "resnet14x0.5", "stn10x0.25"])
def test_parameters_and_arithmetic_are_those_of_the_layers(model: str) -> None:
    network, counted = build_network(model), []

    def count(layer: nn.Module, _: Any, out: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        counted.append(2 * layer.weight[0].numel() * out.numel())

    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    network.eval()(torch.zeros(1, 3, 32, 32))
    parameters = sum(each.numel() for each in network.parameters())
    found = network_size(model, classes=10, shape=(3, 32, 32))
    assert found == NetworkSize(parameters, sum(counted))


def test_a_network_that_fits_into_no_memory_is_counted() -> None:
    """64 times as wide: 16 x 64 channels in its first stage, 64 x 64 in its last."""
    found = network_size("wideresnet28-64", classes=10, shape=(3, 32, 32))
    assert found.parameters > 1.4e9  # 36.5 million of wideresnet28-10, times (64 / 10)^2


def test_counting_draws_nothing() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    network_size("convnet0.5", classes=7, shape=(1, 28, 28))
    assert torch.equal(torch.rand(3), expected)
