"""A model that writes into the images that it is given counts as one that does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from upright import RegularizedLoss, ensemble, evaluate, tta
from upright.checks import Model

IMAGES = torch.rand(12, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 5


class Normalising(nn.Module):
    """Normalises its input, in place or not."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5))
        self.in_place = in_place

    def forward(self, images: Tensor) -> Tensor:
        moved = images.sub_(0.5).mul_(4) if self.in_place else (images - 0.5) * 4
        logits: Tensor = self.layers(moved)
        return logits


AS_ONE: dict[str, Callable[[nn.Module], Model]] = {
    "alone": lambda model: model,
    "several": lambda model: ensemble(model, Normalising(in_place=False).eval(), model),
    "mirrored": lambda model: tta(model, "mirror"),
    "poses and mirrored": lambda model: tta(model, "grid-1x1x3+mirror"),
}


@pytest.mark.parametrize("way", AS_ONE)
def test_it_is_measured_as_another(way: str) -> None:
    there, not_there = (
        evaluate(
            AS_ONE[way](Normalising(in_place=in_place).eval()),
            (IMAGES, LABELS),
            attacks=["grid-3x3x3", "s-pgd"],
        )
        for in_place in (True, False)
    )
    assert there.natural_correct.equal(not_there.natural_correct)
    for name, found in there.attacks.items():
        assert found.correct.equal(not_there.attacks[name].correct)
        torch.testing.assert_close(found.worst_loss, not_there.attacks[name].worst_loss)


@pytest.mark.parametrize(
    "objective",
    ["std*", "L2(rob, Wo-4)", "L2(rob, S-PGD)", "KL-C(mix, S-PGD)", "L2(nat, refine-10+rnd)"],
)
def test_it_is_trained_as_another(objective: str) -> None:
    totals = []
    for in_place in (True, False):
        images = IMAGES.clone()
        loss = RegularizedLoss(objective, generator=torch.Generator().manual_seed(0))
        totals.append(loss(Normalising(in_place=in_place), images, LABELS).total)
        assert images.equal(IMAGES)
    torch.testing.assert_close(*totals)
