"""What a search and a training step leave untouched, and where their randomness comes from."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noting_model import COUNT, IMAGES, LABELS, SEARCHES, NotingModel
from rigid_spaces import rigid_box
from upright.objective import Objective, RegularizedLoss, evaluation_mode

# --- what a search leaves untouched ---------------------------------------------------------------


def mixed() -> NotingModel:
    """Make a model with parts in either mode, one frozen weight, and gradients of a past step."""
    model = NotingModel()
    model.dropout.eval()
    model.linear.weight.requires_grad_(False)
    model.conv.weight.grad = torch.full_like(model.conv.weight, 7.0)
    return model


def trace(model: nn.Module) -> list[Any]:
    """Everything that a search might change."""
    tensors = [(name, tensor.tolist()) for name, tensor in model.state_dict().items()]
    flags = [(name, part.training) for name, part in model.named_modules()]
    parameters = [
        (name, part.requires_grad, None if part.grad is None else part.grad.tolist())
        for name, part in model.named_parameters()
    ]
    return [tensors, flags, parameters]


@contextlib.contextmanager
def unchanged_global_randomness() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("text", SEARCHES)
def test_a_step_leaves_what_its_training_pass_alone_would_leave(text: str) -> None:
    model, other = mixed(), mixed()
    with unchanged_global_randomness():
        RegularizedLoss(text)(model, IMAGES, LABELS)
    other(model.seen[-1])
    assert trace(model) == trace(other)


@pytest.mark.parametrize("text", SEARCHES)
@pytest.mark.parametrize("call", [1, 2])
def test_a_search_that_fails_leaves_no_trace(text: str, call: int) -> None:
    model, before = mixed(), trace(mixed())
    model.fails_at = 1 if text == "AT(rob, Wo-4)" else call  # its search is a single call
    with unchanged_global_randomness(), pytest.raises(RuntimeError, match="fails here"):
        RegularizedLoss(text)(model, IMAGES, LABELS)
    assert trace(model) == before


def test_dropout_draws_nothing_in_a_search() -> None:
    model, other = NotingModel(), NotingModel()
    start = torch.get_rng_state()
    RegularizedLoss("KL(mix, Wo-4)")(model, IMAGES, LABELS)
    after = torch.get_rng_state()
    torch.set_rng_state(start)
    other(model.seen[-1])
    assert torch.equal(torch.get_rng_state(), after)


def test_evaluation_mode_gives_each_part_its_own_mode_back() -> None:
    model = mixed()
    with contextlib.suppress(KeyboardInterrupt), evaluation_mode(model):
        assert not any(part.training for part in model.modules())
        raise KeyboardInterrupt
    assert [name for name, part in model.named_modules() if not part.training] == ["dropout"]


def test_images_and_labels_are_not_written_to() -> None:
    copies = copy.deepcopy((IMAGES, LABELS))
    RegularizedLoss("L2(mix, S-PGD×2)")(NotingModel(), IMAGES, LABELS)
    assert torch.equal(IMAGES, copies[0])
    assert torch.equal(LABELS, copies[1])


# --- randomness -----------------------------------------------------------------------------------


def poses(
    loss: RegularizedLoss, images: Tensor = IMAGES, model: nn.Module | None = None
) -> list[Any]:
    found = loss(model or NotingModel(), images, LABELS).poses
    return [(target, pose.values.tolist()) for target, pose in found.items()]


@pytest.mark.parametrize("text", ["std*", *SEARCHES])
def test_the_generator_alone_decides_the_draws(text: str) -> None:
    def seeded(seed: int) -> RegularizedLoss:
        return RegularizedLoss(text, generator=torch.Generator().manual_seed(seed))

    loss = seeded(0)
    first, second = poses(loss), poses(loss)
    assert first != second
    torch.manual_seed(5)
    assert poses(seeded(0)) == first
    assert poses(seeded(1)) != first


@pytest.mark.parametrize("text", ["std*", *SEARCHES])
def test_poses_lie_in_the_space_one_for_each_draw_of_each_image(text: str) -> None:
    space = rigid_box(max_dx=0.5, max_dy=1.0, max_angle=7.0)
    objective = Objective.parse(text)
    found = RegularizedLoss(objective, space)(NotingModel(), IMAGES, LABELS).poses
    assert tuple(found) == objective.targets
    for pose in found.values():
        assert pose.shape == (COUNT * objective.draws,)
        assert space.contains(pose).all()


@pytest.mark.parametrize("definition", ["grid-1x1x1", "grid-3x1x1"])
def test_a_grid_too_gives_one_pose_for_each_draw_of_each_image(definition: str) -> None:
    found = RegularizedLoss(f"ALP(rob, {definition}×2)")(NotingModel(), IMAGES, LABELS).poses
    assert found["cross-entropy"].shape == (2 * COUNT,)


@pytest.mark.parametrize("text", ["std*", *SEARCHES])
def test_a_relative_space_is_resolved_by_the_size_of_the_images(text: str) -> None:
    oblong = torch.rand(COUNT, 2, 4, 16, generator=torch.Generator().manual_seed(1))
    relative = rigid_box(max_dx=0.25, max_dy=0.25, max_angle=20, unit="image")
    absolute = rigid_box(max_dx=4, max_dy=1, max_angle=20)
    in_fractions, in_pixels = (RegularizedLoss(text, space) for space in (relative, absolute))
    assert poses(in_fractions, oblong) == poses(in_pixels, oblong)


@pytest.mark.parametrize("text", SEARCHES)
def test_a_step_without_gradients_finds_the_same(text: str) -> None:
    expected = poses(RegularizedLoss(text))
    with torch.no_grad():
        assert poses(RegularizedLoss(text)) == expected


@pytest.mark.parametrize("text", ["std*", *SEARCHES])
def test_a_step_in_inference_mode_finds_the_same(text: str) -> None:
    """As in a validation step of Lightning: of its images, too, which are made there."""
    expected, model = poses(RegularizedLoss(text)), mixed().eval()
    before = trace(model)
    with torch.inference_mode():
        assert poses(RegularizedLoss(text), model=model) == expected
        assert poses(RegularizedLoss(text), IMAGES.clone(), model) == expected
        terms = RegularizedLoss(text)(model, IMAGES, LABELS.clone())
        assert torch.is_inference_mode_enabled()
    assert not terms.total.requires_grad
    assert trace(model) == before


def test_images_that_were_made_in_inference_mode_are_climbed_outside_of_it() -> None:
    with torch.inference_mode():
        images = IMAGES.clone()
    expected = poses(RegularizedLoss("AT(mix, S-PGD)"))
    with torch.no_grad():
        assert poses(RegularizedLoss("AT(mix, S-PGD)"), images) == expected


def test_a_model_that_was_made_in_inference_mode_cannot_be_climbed() -> None:
    with torch.inference_mode():
        model = NotingModel()
    with pytest.raises(ValueError, match=r"s-pgd needs the gradient .*make it outside of that"):
        RegularizedLoss("AT(rob, S-PGD)")(model, IMAGES, LABELS)
    assert all(part.requires_grad for part in model.parameters())


@pytest.mark.parametrize("text", ["KL(rob, Wo-2)", "L2(mix, S-PGD)", "ALP(nat, rnd)"])
@pytest.mark.parametrize(("given", "inside"), [("float16", "bfloat16"), ("bfloat16", "float16")])
def test_autocast_takes_images_in_the_other_half_precision(
    text: str, given: str, inside: str
) -> None:
    """As a loader may give them; torch puts none of one beside one of the other."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    images, labels = torch.rand(4, 3, 4, 4).to(getattr(torch, given)), torch.arange(4)
    with torch.autocast("cpu", getattr(torch, inside)):
        terms = RegularizedLoss(text, "shift(1px)")(model, images, labels)
    terms.total.backward()
    assert all(part.grad is not None and part.grad.isfinite().all() for part in model.parameters())
