"""The measure of what is left of a rotation is right where the answer is known."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from upright.models.transformer import Straightening


@pytest.fixture
def straighten() -> Any:
    return importlib.import_module("straighten")


class Reads(nn.Module):
    """A stand-in for a network: each image's first pixel is the angle it finds, in degrees."""

    def maps(self, images: Tensor) -> Tensor:
        angle = torch.deg2rad(images[:, 0, 0, 0])
        maps = torch.eye(3).repeat(len(images), 1, 1)
        maps[:, 0, 0] = maps[:, 1, 1] = angle.cos()
        maps[:, 0, 1], maps[:, 1, 0] = angle.sin(), -angle.sin()
        return maps

    def forward(self, images: Tensor) -> Tensor:
        return torch.eye(2)[images[:, 0, 0, 1].long()]


def image(angle: float, label: int) -> Tensor:
    picture = torch.zeros(1, 2, 2)
    picture[0, 0] = torch.tensor([angle, label])
    return picture


def test_what_remains_is_the_turn_less_what_was_found_of_it(straighten: Any) -> None:
    twins = straighten.Twins(
        upright=torch.stack([image(170, 0), image(10, 0), image(0, 0)]),
        turned=torch.stack([image(-150, 0), image(10, 1), image(70, 1)]),  # found: 40, 0, 70
        angles=torch.tensor([50.0, 20.0, 75.0]),
        labels=torch.tensor([0, 1, 0]),
    )
    found = straighten.measure(Reads(), twins)
    assert found.remaining_degrees == pytest.approx(10, abs=1e-3)  # of 10, 20 and 5
    assert found.accuracy == pytest.approx(2 / 3)


def test_twins_differ_by_the_angle_that_is_told(straighten: Any) -> None:
    twins = straighten.twins_of(24)
    assert twins.turned.shape == twins.upright.shape == (24, 3, 16, 16)
    assert twins.angles.abs().max() <= 75
    change = (twins.turned - twins.upright).abs().mean((1, 2, 3))
    small, large = twins.angles.abs() < 10, twins.angles.abs() > 30
    assert change[small].mean() < 0.5 * change[large].mean()


@pytest.mark.parametrize("way", ["together", "in sequence"])
def test_training_moves_what_it_should(straighten: Any, way: str) -> None:
    model = straighten.trained("etn10x0.25", way, 2, 64)
    assert isinstance(model, Straightening)
    assert all(weight.any() for weight in model.transformers[1].predictor.heads.parameters())
    learns = all(parameter.requires_grad for parameter in model.classifier.parameters())
    assert learns == (way == "together")
