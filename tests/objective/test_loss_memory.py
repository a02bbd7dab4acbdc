"""A search in training asks about so many images at once, and fewer where they do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from noting_model import COUNT, IMAGES, LABELS, NotingModel
from upright import tiles
from upright.objective import LossTerms, RegularizedLoss, loss, search
from upright.tiles import Room

SEARCHES = [
    "AT(rob, Wo-4)",
    "KL(mix, Wo-3×2)",
    "KL(rob, grid-3x1x5)",
    "L2(mix, grid-2x1x3×2)",
    "L2(rob, S-PGD)",
    "KL-C(mix, S-PGD×2; restarts=2)",
]


def step(text: str, model: NotingModel | None = None) -> tuple[NotingModel, LossTerms]:
    model = NotingModel().double() if model is None else model
    torch.manual_seed(0)  # of the dropout in the training pass
    generator = torch.Generator().manual_seed(0)
    terms = RegularizedLoss(text, generator=generator)(model, IMAGES.double(), LABELS)
    return model, terms


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets searches ask about so many images at once."""
    return lambda images: monkeypatch.setattr(loss, "room_for", lambda _: Room(images))


@pytest.mark.parametrize("images", [1, 2, 4, 7])
@pytest.mark.parametrize("text", SEARCHES)
def test_no_more_images_are_asked_about_than_there_is_room_and_the_poses_stay(
    text: str, images: int, limit: Callable[[int], None]
) -> None:
    whole, expected = step(text)
    limit(images)
    model, found = step(text)
    *sizes, training = map(len, model.seen)
    *_, unlimited = map(len, whole.seen)
    originals = COUNT  # which the training pass asks about at once, too, and with gradients
    assert max(sizes) <= max(images, originals)
    assert training == unlimited
    assert sum(sizes) == sum(map(len, whole.seen[:-1]))
    for target, pose in expected.poses.items():
        torch.testing.assert_close(found.poses[target].values, pose.values, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.total, expected.total, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("text", "batch", "size"),
    [
        ("KL(rob, Wo-10)", 64, 32),
        ("KL(mix, Wo-10)", 128, 32),
        ("L2(nat, Wo-20)", 64, 32),
        ("KL(rob, Wo-10)", 64, 28),
    ],
)
def test_the_papers_batches_are_searched_in_one_call(text: str, batch: int, size: int) -> None:
    sizes = []

    def model(images: Tensor) -> Tensor:
        sizes.append(len(images))
        return images[:, 0, 0, :10]

    images = torch.zeros(batch, 1, size, size)
    RegularizedLoss(text)(model, images, torch.zeros(batch, dtype=torch.long))
    assert len(sizes) == 2


@pytest.mark.parametrize("size", [32, 96, 224, 1000])
def test_the_bound_is_one_of_pixels(size: int) -> None:
    room = search.room_for(torch.empty(1, 3, size, size))
    assert 8 <= room.batch_size <= max(8, 2048 * 32 * 32 // size**2)


class Small(NotingModel):
    """A network on a machine that has room for few images in a search."""

    def __init__(self, fits: int, *, also_in_training: bool = False) -> None:
        super().__init__()
        self.fits, self.also_in_training = fits, also_in_training
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.fits and (self.also_in_training or not self.training):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(images)


@pytest.mark.parametrize("text", SEARCHES)
def test_what_does_not_fit_is_halved_and_remembered(text: str) -> None:
    _, expected = step(text)
    model, generator = Small(fits=4), torch.Generator().manual_seed(0)
    objective = RegularizedLoss(text, generator=generator)
    found = objective(model, IMAGES.double(), LABELS)
    for target, pose in expected.poses.items():
        torch.testing.assert_close(found.poses[target].values, pose.values, rtol=0, atol=1e-9)
    (room,) = objective._rooms.values()
    if "S-PGD" not in text:
        assert room.batch_size <= 4


def test_a_training_pass_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        step("AT(rob, Wo-4)", Small(fits=2, also_in_training=True))


def test_what_a_graph_records_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "is_capturing", lambda: True)
    with pytest.raises(torch.OutOfMemoryError):
        step("AT(rob, Wo-4)", Small(fits=4))
