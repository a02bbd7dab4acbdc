"""Transformations of a user's own as they are written: with faults, each of which is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from upright import RegularizedLoss, evaluate
from upright.families import Axis, Chain, OfPixels
from upright.space import Space
from upright.warp import warp

IMAGES = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % 4
Apply = Callable[[Tensor, Tensor], Tensor]


def space(apply: Apply) -> Space:
    class Own(OfPixels):
        name = "own"
        axes = (Axis("own", "", -0.5, 0.5),)

        def apply(self, images: Tensor, values: Tensor) -> Tensor:
            return apply(images, values)

    return Space(Chain((Own(),)))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).eval()


def in_place(images: Tensor, values: Tensor) -> Tensor:
    images *= 1 - values[..., 0]
    return images


def test_one_that_writes_into_the_images_is_told_before_it_matters() -> None:
    box, before = space(in_place), IMAGES.clone()
    with pytest.raises(ValueError, match=r"own\.apply writes into the images .*images \* factor"):
        evaluate(network(), (IMAGES.clone(), LABELS), space=box, attacks=["rnd"])
    for ask in (
        lambda images: warp(images, box.sample(len(images))),
        lambda images: RegularizedLoss("std*", box)(network(), images, LABELS),
    ):
        with pytest.raises(ValueError, match="writes into the images"):
            ask(before.clone())


@pytest.mark.parametrize(
    "apply",
    [
        lambda images, values: images * (1 - values.flatten()[0]),
        lambda images, values: images + values[..., 0] * torch.randn_like(images),
        lambda images, values: images + values[..., 0] * images.mean(),
    ],
    ids=["the pose of the first", "drawn anew", "by its neighbours"],
)
def test_one_that_does_not_keep_to_an_image_and_its_pose_is_told(apply: Apply) -> None:
    data = (torch.cat((IMAGES, 1 - IMAGES.roll(1, 3) / 2)), LABELS.repeat(2))
    with pytest.raises(ValueError, match="own does something else to an image that comes alone"):
        evaluate(network(), data, space=space(apply), attacks=["rnd"])


@pytest.mark.parametrize("count", [1, 6])
def test_one_without_a_fault_is_not(count: int) -> None:
    box = space(lambda images, values: images + values[..., 0] * (images - 0.5))
    data = (IMAGES[:count], LABELS[:count])
    assert len(evaluate(network(), data, space=box, attacks=["wo-3"])) == count


@pytest.mark.parametrize("own", [False, True], ids=["ours", "one's own"])
def test_a_compiler_sees_all_of_a_warp(own: bool) -> None:
    """What looks at tensors and not at their values, as their versions, would break the graph."""
    box = space(lambda images, values: images + values[..., 0] * images)
    box = box if own else Space.of("shift(1px) brightness(0.2)")
    poses = box.sample(len(IMAGES), generator=torch.Generator().manual_seed(0))
    expected = warp(IMAGES, poses)  # and what the chain keeps of itself is there
    compiled = torch.compile(
        lambda images, values: warp(images, poses.like(values)), backend="eager", fullgraph=True
    )
    torch.testing.assert_close(compiled(IMAGES, poses.values), expected)
