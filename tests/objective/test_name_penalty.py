"""A penalty of one's own joins the notation by one call."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from upright import Objective, Penalty, RegularizedLoss, name_penalty
from upright.objective import notation


@dataclass(frozen=True)
class Widest(Penalty):
    """The largest difference of two logits."""

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        return (natural - transformed).abs().amax(-1)


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notation, "_REGULARIZERS", dict(notation._REGULARIZERS))


def test_named_penalty_is_read_written_and_trained_with() -> None:
    name_penalty("MAX", Widest(), weight=3.0)
    objective = Objective.parse("MAX(nat, Wo-2)")
    assert (objective.penalty, objective.weight) == (Widest(), 3.0)
    assert str(objective) == "MAX(nat, Wo-2)"
    assert Objective.parse(str(replace(objective, weight=0.5))).weight == 0.5
    images, labels = torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 0])
    weights = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))
    terms = RegularizedLoss(objective)(lambda x: x.flatten(1) @ weights, images, labels)
    assert terms.penalty is not None
    assert terms.natural_loss is not None
    assert terms.total.item() == pytest.approx(float(terms.natural_loss + 3 * terms.penalty))


def test_penalty_without_a_name_is_not_written_as_another() -> None:
    objective = replace(Objective.parse("KL(nat, rnd)"), penalty=Widest())
    with pytest.raises(ValueError, match="name_penalty"):
        str(objective)


@pytest.mark.parametrize("name", ["KL", "two words", ""])
def test_name_that_is_taken_or_no_word_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="AT, L2, KL, ALP, KL-C"):
        name_penalty(name, Widest())
