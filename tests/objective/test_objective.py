"""The loss of an objective: its forward passes, its parts, and the models that it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from noting_model import CLASSES, COUNT, IMAGES, LABELS, SEARCHES, NotingModel
from upright.attacks import Attack, Score, WorstCase
from upright.objective import Objective, RegularizedLoss
from upright.pose import Pose
from upright.space import Space
from upright.warp import Fill, Interpolation, warp

# --- forward passes -------------------------------------------------------------------------------

# For each original: passes of the original in the search; searches by S-PGD, which makes one for
# each x'; passes of the original, and of transformed images, in the training pass.
PASSES = {
    ("AT", "nat"): (0, 0, 1, 0),
    ("AT", "rob"): (0, 1, 0, 1),
    ("AT", "mix"): (0, 1, 1, 1),
    **dict.fromkeys(product(("ALP", "KL-C"), ("nat", "rob", "mix")), (0, 1, 1, 1)),
    **dict.fromkeys((("L2", "nat"), ("KL", "nat"), ("KL", "rob")), (1, 1, 1, 1)),
    **dict.fromkeys((("L2", "rob"), ("L2", "mix"), ("KL", "mix")), (1, 2, 1, 2)),
}


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("definition", ["rnd", "Wo-7", "S-PGD"])
@pytest.mark.parametrize(("name", "batch"), PASSES)
def test_every_objective_takes_the_forward_passes_of_the_table(
    name: str, batch: str, definition: str, draws: int
) -> None:
    model = NotingModel()
    RegularizedLoss(f"{name}({batch}, {definition}×{draws})")(model, IMAGES, LABELS)
    original, searches, original_trained, moved_trained = PASSES[name, batch]
    searched = {
        "rnd": 0,
        "Wo-7": original + 7 * draws * min(searches, 1),
        "S-PGD": original + 5 * draws * searches,
    }[definition]
    if definition == "rnd":
        moved_trained = min(moved_trained, 1)
    *search, training = [len(batch) for batch in model.seen]
    assert sum(search) == searched * COUNT
    assert training == (original_trained + moved_trained * draws) * COUNT


@pytest.mark.parametrize(
    ("text", "search", "training"),
    [
        ("std", 0, 3),
        ("std*", 0, 3),
        ("KL(rob, Wo-10)", 30 + 3, 6),
        ("KL(mix, Wo-10)", 30 + 3, 9),
        ("KL(mix, S-PGD)", 2 * 15 + 3, 9),
        ("KL(rob, S-PGD; steps=2, restarts=4)", 4 * (2 + 1) * 3 + 3, 6),
        ("ALP(nat, grid-2x2x3)", 36, 6),
    ],
)
def test_forward_passes_for_three_images(text: str, search: int, training: int) -> None:
    model = NotingModel()
    RegularizedLoss(text)(model, IMAGES, LABELS)
    assert sum(len(batch) for batch in model.seen) == search + training
    assert len(model.seen[-1]) == training


@pytest.mark.parametrize("text", SEARCHES)
def test_the_search_runs_in_evaluation_mode_and_one_call_trains(text: str) -> None:
    model = NotingModel()
    RegularizedLoss(text)(model, IMAGES, LABELS)
    *search, training = model.modes
    assert len(search) >= 1
    assert all(modes == {False} for modes in search)
    assert training == {True}


def test_originals_come_first_in_the_one_batch_of_the_training_pass() -> None:
    model = NotingModel()
    terms = RegularizedLoss("KL(mix, Wo-5×2)")(model, IMAGES, LABELS)
    moved = [warp(IMAGES.repeat(2, 1, 1, 1), pose) for pose in terms.poses.values()]
    assert len(moved) == 2
    torch.testing.assert_close(model.seen[-1], torch.cat([IMAGES, *moved]), rtol=0, atol=0)


# --- what the terms say ---------------------------------------------------------------------------


@pytest.mark.parametrize("fill", ["black", "reflection", "border"])
@pytest.mark.parametrize("interpolation", get_args(Interpolation))
def test_search_and_training_pass_move_images_in_the_same_way(
    fill: Fill, interpolation: Interpolation
) -> None:
    model = NotingModel()
    loss = RegularizedLoss("AT(rob, Wo-2)", fill=fill, interpolation=interpolation)
    (pose,) = loss(model, IMAGES, LABELS).poses.values()
    tried, trained = model.seen
    assert torch.equal(trained, warp(IMAGES, pose, fill=fill, interpolation=interpolation))
    for image in trained:
        assert any(torch.equal(image, other) for other in tried)


def test_accuracies_and_losses_are_those_of_the_training_pass() -> None:
    model = NotingModel()
    for text in ("KL(mix, Wo-3×2)", "KL(nat, Wo-3×2)"):
        terms = RegularizedLoss(text)(model, IMAGES, LABELS)
        natural, moved = model.answers[-1][:COUNT], model.answers[-1][COUNT : 3 * COUNT]
        both = LABELS.repeat(2)
        assert terms.natural_accuracy == (natural.argmax(1) == LABELS).float().mean()
        assert terms.transformed_accuracy == (moved.argmax(1) == both).float().mean()
        torch.testing.assert_close(terms.natural_loss, F.cross_entropy(natural, LABELS))
        torch.testing.assert_close(terms.transformed_loss, F.cross_entropy(moved, both))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("std", {"transformed_loss", "transformed_accuracy", "penalty"}),
        ("std*", {"natural_loss", "natural_accuracy", "penalty"}),
        ("AT(mix, rnd)", {"penalty"}),
        ("KL(nat, rnd)", set()),
        ("ALP(rob, rnd)", set()),
    ],
)
def test_terms_that_were_not_needed_are_none(text: str, missing: set[str]) -> None:
    terms = RegularizedLoss(text)(NotingModel(), IMAGES, LABELS)
    assert {name for name, value in vars(terms).items() if value is None} == missing


def test_repr_says_what_is_minimised() -> None:
    assert "KL(rob, Wo-10)" in repr(RegularizedLoss("KL(rob, Wo-10)"))


# --- other models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["std", "std*", *SEARCHES])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_losses_are_in_float32_at_least(text: str, dtype: torch.dtype) -> None:
    model = NotingModel().to(dtype)
    terms = RegularizedLoss(text)(model, IMAGES.to(dtype), LABELS)
    assert terms.total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    terms.total.backward()
    assert model.conv.weight.grad is not None
    assert model.conv.weight.grad.dtype == dtype
    assert model.conv.weight.grad.isfinite().all()


@pytest.mark.parametrize("text", ["std", "std*", *SEARCHES])
def test_any_function_of_images_is_a_model(text: str) -> None:
    weight = torch.randn(128, CLASSES, generator=torch.Generator().manual_seed(0))
    weight.requires_grad_()
    loss = RegularizedLoss(text)
    terms = loss(lambda batch: batch.flatten(1) @ weight, IMAGES, LABELS)
    terms.total.backward()
    assert weight.grad is not None
    assert weight.grad.abs().sum() > 0


def test_a_model_without_gradients_is_refused_by_spatial_pgd() -> None:
    def opaque(images: Tensor) -> Tensor:
        return images.detach().mean((2, 3))

    with pytest.raises(ValueError, match="needs the gradient of the model"):
        RegularizedLoss("AT(rob, S-PGD)")(opaque, IMAGES, LABELS % 2)


@dataclass(frozen=True)
class Nudge(Attack):
    """An attack of one's own, which knows two poses and tries both."""

    passes_per_image: int = 2

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        del space, generator
        left, right = Pose.of(dx=[-1.0] * count), Pose.of(dx=[1.0] * count)
        left_score, right_score = score(left), score(right)
        dx = torch.where(left_score > right_score, left.dx, right.dx)
        return WorstCase(Pose.of(dx=dx), torch.maximum(left_score, right_score), 2 * count)


def test_an_attack_of_ones_own_is_used_like_the_others() -> None:
    model = NotingModel().eval()
    objective = replace(Objective.parse("ALP(mix, rnd)"), attack=Nudge())
    terms = RegularizedLoss(objective)(model, IMAGES, LABELS)
    left, right = (
        F.cross_entropy(model(warp(IMAGES, Pose.of(dx=dx))), LABELS, reduction="none")
        for dx in (-1.0, 1.0)
    )
    assert terms.poses["cross-entropy"].dx.tolist() == torch.where(left > right, -1, 1).tolist()
