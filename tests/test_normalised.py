"""A loader that normalises and a network that wants it so: the same answers, and black is black."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bar_images import bars, trained_network
from upright import Normalised, RegularizedLoss, evaluate, warp
from upright.pose import Pose

MEAN, STD = [0.4, 0.2], [0.3, 0.25]
IMAGES, LABELS = bars(40, seed=2)


def by_hand(images: Tensor) -> Tensor:
    """What a loader does to images: in numpy, channel by channel."""
    pixels = images.numpy()
    channels = [(pixels[:, i] - np.float32(MEAN[i])) / np.float32(STD[i]) for i in range(2)]
    return torch.from_numpy(np.stack(channels, 1))


def test_the_network_sees_what_a_loader_would_give_it() -> None:
    model = Normalised(lambda images: images.flatten(1), MEAN, STD)
    torch.testing.assert_close(model(IMAGES), by_hand(IMAGES).flatten(1), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "number", [1, 1.0, np.float32(1), np.ones(1), torch.tensor(1), torch.ones(3), (1, 1, 1)]
)
def test_a_number_may_be_of_any_kind(number: object) -> None:
    images = torch.rand(2, 3, 4, 4)
    model = Normalised(nn.Flatten(), mean=number, std=number)  # type: ignore[arg-type]
    torch.testing.assert_close(model(images), (images - 1).flatten(1))
    assert model.mean.dtype == model.std.dtype == torch.float32


def test_what_a_loader_did_is_undone() -> None:
    model = Normalised(trained_network(), MEAN, STD)
    torch.testing.assert_close(model.undo(by_hand(IMAGES)), IMAGES, rtol=0, atol=1e-12)


def test_a_pose_uncovers_black() -> None:
    """Not the mean, which is what 0 is among normalised images."""
    model = Normalised(trained_network(), MEAN, STD)
    moved = warp(model.undo(by_hand(torch.ones_like(IMAGES))), Pose.of(dx=3))
    assert moved[..., :3].abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_images_keep_their_precision(dtype: torch.dtype) -> None:
    model = Normalised(lambda images: images.flatten(1), MEAN, STD)
    images = IMAGES.to(dtype)
    assert model(images).dtype == model.undo(images).dtype == dtype


def test_its_network_may_answer_as_those_of_hugging_face_do() -> None:
    model = Normalised(lambda images: {"logits": images.mean((2, 3))}, MEAN, STD)
    assert model(IMAGES).shape == (40, 2)


def test_the_network_is_a_part_of_it_as_before_and_learns() -> None:
    """Digests of networks from timm depend on these names."""
    model = Normalised(
        nn.Sequential(nn.Flatten(), nn.LazyLinear(4, dtype=torch.float64)), MEAN, STD
    )
    loss = RegularizedLoss("KL(rob, Wo-2)")
    loss(model, model.undo(by_hand(IMAGES)), LABELS).total.backward()
    assert set(model.state_dict()) == {"mean", "std", "network.1.weight", "network.1.bias"}
    assert all(weight.grad is not None for weight in model.network.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_it_is_in_the_mode_of_its_network(training: bool) -> None:
    assert Normalised(nn.Flatten().train(training), MEAN, STD).training == training


def test_evaluation_of_a_network_that_wants_normalised_images() -> None:
    """The same weights, written for images in [0, 1] and for normalised ones."""
    plain = trained_network()
    inverse = Normalised(
        plain, [-m / s for m, s in zip(MEAN, STD, strict=True)], [1 / s for s in STD]
    )
    again = evaluate(Normalised(inverse, MEAN, STD), (IMAGES, LABELS), attacks=["grid-3x3x3"])
    directly = evaluate(plain, (IMAGES, LABELS), attacks=["grid-3x3x3"])
    assert torch.equal(again.attacks["grid-3x3x3"].correct, directly.attacks["grid-3x3x3"].correct)


@pytest.mark.parametrize(
    ("mean", "std"), [([0.5], [0.2, 0.2]), ([0.5], [0.0]), ([0.5], [-1.0]), ([0.5], [float("nan")])]
)
def test_numbers_that_cannot_be_right_are_refused(mean: list[float], std: list[float]) -> None:
    with pytest.raises(ValueError, match="need one number for each channel"):
        Normalised(trained_network(), mean, std)


def test_images_of_other_channels_are_refused() -> None:
    model = Normalised(trained_network(), MEAN, STD)
    for use in (model, model.undo):
        with pytest.raises(ValueError, match="of 2 channels, but the images have 1; give those"):
            use(torch.ones(2, 1, 5, 5))


@pytest.mark.parametrize("images", [torch.ones(2, 5, 5), torch.ones(2, 2, 5, 5).byte()])
def test_images_in_another_form_are_refused_in_the_words_of_all(images: Tensor) -> None:
    model, labels = Normalised(trained_network(), MEAN, STD), torch.zeros(2, dtype=torch.int64)
    uses = [
        model,
        model.undo,
        lambda images: warp(images, Pose.zeros(1)),
        lambda images: RegularizedLoss("std")(model, images, labels),
    ]
    if images.ndim == 3:  # of bytes an evaluation makes floats
        uses.append(lambda images: evaluate(model.eval(), (images, labels)))
    said = set()
    for use in uses:
        with pytest.raises(ValueError, match="images must be float, N x C x H x W") as caught:
            use(images)
        said.add(str(caught.value))
    assert len(said) == 1
