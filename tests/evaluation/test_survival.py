"""Which poses come first, and how many at once: it changes the cost, and never the answer."""

from __future__ import annotations

import pytest
import torch

from bar_images import bars, trained_network
from rigid_spaces import rigid
from upright import GridSearch, evaluate
from upright.evaluation import survival
from upright.evaluation.survival import HardestFirst


def known(rates: list[float]) -> HardestFirst:
    return HardestFirst(torch.stack((torch.tensor(rates), torch.ones(len(rates)))))


def test_the_hardest_untried_come_first() -> None:
    hardest, untried = known([0.1, 0.4, 0.2, 0.3]), torch.tensor([True, False, True, True])
    assert hardest.pick(untried, 2).tolist() == [3, 2]
    assert hardest.pick(untried, 9).tolist() == [3, 2, 0]
    hardest.learn(torch.tensor([0]), torch.tensor([[True, True, False]]))
    assert hardest.pick(untried, 1).tolist() == [0]


@pytest.mark.parametrize(
    ("rate", "picked"), [(0.0, 32), (0.0009, 24), (0.004, 8), (0.1, 4)], ids=str
)
def test_several_batches_go_together_while_few_images_fall(rate: float, picked: int) -> None:
    everything = torch.ones(100, dtype=torch.bool)
    now = known([rate] * 100).pick(everything, 4, 8)
    assert len(now) == picked
    assert rate * (picked - 4) < 0.02  # asked in vain, as far as one can tell


def test_the_last_batches_are_what_is_left() -> None:
    few = torch.arange(100) < 10
    assert known([0.0] * 100).pick(few, 4, 8).tolist() == [*range(10)]
    assert known([0.0] * 100).pick(few, 40, 8).tolist() == [*range(10)]


def test_how_many_go_together_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, pick = HardestFirst.pick, list[int]()

    def several(self: HardestFirst, untried: torch.Tensor, count: int, _: int) -> torch.Tensor:
        pick.append(count)
        return plain(self, untried, count, 8)

    data, attack = bars(60, seed=3), GridSearch((3, 3, 7))
    options = {"attacks": [attack], "space": rigid(1, 15), "only_accuracy": True, "batch_size": 30}
    expected = evaluate(trained_network(), data, **options)  # type: ignore[arg-type]
    monkeypatch.setattr(survival.HardestFirst, "pick", several)
    found = evaluate(trained_network(), data, **options)  # type: ignore[arg-type]
    assert pick
    name = str(attack)
    assert found.attacks[name].correct.equal(expected.attacks[name].correct)
