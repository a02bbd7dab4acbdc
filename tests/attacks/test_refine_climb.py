"""Refinement that ends in gradient steps: what it adds and costs, and what it must never do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bar_images import bars, trained_network
from hill_scores import draws, hills
from rigid_spaces import rigid
from upright import Pose, RefiningClimb, RefiningSearch, RegularizedLoss, SpatialPGD, evaluate
from upright.attacks import scored

BOX = "shift rotate"
SPACE = rigid(1, 10)
DATA = bars(60, seed=9)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("text", [BOX, "rotate", "shift rotate zoom brightness", "blur(1px)"])
@pytest.mark.parametrize("passes", [7, 20, 63, 150])
def test_ends_with_the_worst_of_all_it_tried_in_its_passes(
    text: str, passes: int, shifted: bool
) -> None:
    score = hills(text, 6, ripples=0.01)
    attack = RefiningClimb(passes, shifted)
    found = attack.search(score, score.space, 6, generator=draws())
    tried = score.tried.detach()
    assert tried.shape == (passes, 6, len(score.space.axes))
    assert found.forward_passes == 6 * passes
    assert not found.score.requires_grad
    assert score.space.contains(Pose(tried, score.space.chain)).all()
    values = hills(text, 6, ripples=0.01)(Pose(tried, score.space.chain))
    torch.testing.assert_close(found.score, values.amax(0))
    torch.testing.assert_close(score(found.pose), found.score)


def test_begins_as_refinement_does_and_never_ends_below_it() -> None:
    score, plain = hills(BOX, 9, ripples=0.01), hills(BOX, 9, ripples=0.01)
    found = RefiningClimb(120).search(score, score.space, 9, generator=draws())
    before = RefiningSearch(90).search(plain, plain.space, 9, generator=draws())
    assert torch.equal(score.tried[:90], plain.tried)
    assert (found.score >= before.score).all()
    assert (found.score > before.score).any()


def test_climbs_as_s_pgd_does() -> None:
    score = hills(BOX, 5)
    RefiningClimb(30).search(score, score.space, 5, generator=draws())
    pose = Pose(score.tried[24].detach(), score.space.chain)
    for step in range(1, 6):
        here = pose.like(pose.values.clone().requires_grad_())
        moved = SpatialPGD().stepped(score.space, here, scored(hills(BOX, 5), here))
        pose = score.space.project(moved)
        assert torch.equal(score.tried[24 + step].detach(), pose.values)


def test_who_leaves_changes_nothing_for_those_who_stay() -> None:
    options = {"attacks": ["refine-40+s-pgd", "refine-40+rnd+s-pgd"], "space": SPACE}
    whole = evaluate(trained_network(), DATA, **options)  # type: ignore[arg-type]
    alone = evaluate(trained_network(), DATA, only_accuracy=True, **options)  # type: ignore[arg-type]
    for name, result in whole.attacks.items():
        assert torch.equal(result.correct, alone.attacks[name].correct)
        assert result.correct.any()
        assert not result.correct.all()
        assert result.forward_passes == 40 * len(DATA[1])
        assert alone.attacks[name].forward_passes < result.forward_passes


@torch.inference_mode()
def test_climbs_in_inference_mode_too() -> None:
    found = evaluate(trained_network(), DATA, attacks=["refine-20+s-pgd"], space=SPACE)
    assert found.attacks["refine-20+s-pgd"].accuracy <= found.natural_accuracy


def test_a_model_without_gradients_says_what_to_do() -> None:
    def model(images: Tensor) -> Tensor:
        return trained_network()(images).detach()

    with pytest.raises(ValueError, match=r"s-pgd needs the gradient of the model.*use an attack"):
        evaluate(model, DATA, attacks=["refine-20+s-pgd"], space=SPACE)


def test_too_few_passes_for_a_climb_are_refused() -> None:
    with pytest.raises(ValueError, match=r"refine-6\+s-pgd needs at least 7 passes"):
        RefiningClimb(6)


def test_says_that_it_climbs() -> None:
    assert RefiningClimb().climbs
    assert SpatialPGD().climbs
    assert not RefiningSearch().climbs


def test_trains() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(DATA[0][0].numel(), 3))
    objective = "KL(rob, refine-20+rnd+S-PGD)"
    loss = RegularizedLoss(objective, space=SPACE)
    terms = loss(network, DATA[0].float(), DATA[1] % 3)
    terms.total.backward()
    for pose in terms.poses.values():
        assert SPACE.contains(pose).all()
    assert str(loss.objective) == objective
