"""What attacks, losses and the warp rely on in a family of transformations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from upright.families import Chain, Family, Spatial
from upright.pose import Pose
from upright.space import Space
from upright.testing.rules import Rules, alike, drawing, keeps, noise
from upright.warp import warp

__all__ = ["check_family"]

_ROUNDING = 1e-9
_PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_MOST_CHANNELS = 3
_FEW_PIXELS = 7, 8
"""Of the images whose slopes are compared with differences, one pixel after the other."""


def check_family(
    space: str | Space, *, size: tuple[int, int] = (9, 12), differentiable: bool = True
) -> None:
    """Try every rule of a family, or of a chain of them, within limits.

    Args:
        space: By its text, such as ``"vignette(0.4)"``, or itself.
        size: Height and width in pixels of the images that it is tried on, which are noise.
        differentiable: False for one that attacks are not to climb, as one that rounds.

    >>> check_family("rotate(20) brightness(0.1)")
    """
    box = Space.of(space).in_pixels(*size)
    images = noise(3, _MOST_CHANNELS, *size)
    poses = _draws(box, len(images))
    rules: dict[str, Callable[[], None]] = {
        "the zero pose leaves images as they are, to the last bit": partial(_rests, box, images),
        "each axis changes images": partial(_each_axis_matters, box, images),
        "images keep size, type and range": partial(_keeps_kind, box, images),
        "images and poses are left as they were": partial(_writes_nothing, images, poses),
        "the same pose gives the same image": partial(_is_certain, images, poses),
        "an image alone is changed as among others": partial(_is_of_one_image, images, poses),
        "one image may meet many poses": partial(_broadcasts, images, poses),
    }
    for each in box.chain.families:
        rules |= _of_matrices(each, size) if isinstance(each, Spatial) else _of_sums(each)
        rules |= _of_text(each)
    if differentiable:
        rules |= _of_slopes(Space.of(space).in_pixels(*_FEW_PIXELS))
    keeps(str(box), rules)


def _draws(box: Space, count: int) -> Pose:
    """Poses from the inside of the limits."""
    return box.sample(count, generator=drawing(1)).to(dtype=torch.float64)


def _ends(box: Space) -> Pose:
    """The two poses where all axes are at their ends."""
    return Pose(torch.tensor(box.limits, dtype=torch.float64).T, box.chain)


def _rests(box: Space, images: Tensor) -> None:
    edged = images.clone()
    edged[0, :, 0, 0], edged[-1, :, -1, -1] = 0, 1
    for dtype in _PRECISIONS:
        given = edged.to(dtype)
        alike(warp(given, box.zeros(1)), given)
        alike(warp(given, box.zeros(2, 1)), given.expand(2, *given.shape))


def _each_axis_matters(box: Space, images: Tensor) -> None:
    for place, (axis, limits) in enumerate(zip(box.axes, box.limits, strict=True)):
        pose = box.zeros(1).to(dtype=torch.float64)
        pose.values[..., place] = max(limits, key=abs)
        if any(limits) and torch.equal(warp(images, pose), images):
            raise AssertionError(f"{axis.name} at {max(limits, key=abs):g} changes nothing")


def _keeps_kind(box: Space, images: Tensor) -> None:
    for dtype in (torch.float32, torch.float64):
        for poses in (_draws(box, 2), _ends(box)):
            given = images[:2].to(dtype)
            found = warp(given, poses.to(dtype=dtype))
            if (found.shape, found.dtype) != (given.shape, dtype):
                was, now = (f"{each.dtype} {tuple(each.shape)}" for each in (given, found))
                raise AssertionError(f"{was} became {now}")
            # NaN is in no range.
            if not ((found >= 0) & (found <= 1 + 1e-6)).all():
                low, high = float(found.min()), float(found.max())
                raise AssertionError(f"values from {low:g} to {high:g}, where 0 to 1 came")


def _writes_nothing(images: Tensor, poses: Pose) -> None:
    given, at = images.clone(), poses.like(poses.values.clone())
    warp(given, at)
    alike(given, images)
    alike(at.values, poses.values)


def _is_certain(images: Tensor, poses: Pose) -> None:
    alike(warp(images, poses), warp(images, poses))


def _is_of_one_image(images: Tensor, poses: Pose) -> None:
    alone = [warp(images[k : k + 1], poses[k : k + 1]) for k in range(len(images))]
    alike(warp(images, poses), torch.cat(alone), to=_ROUNDING)


def _broadcasts(images: Tensor, poses: Pose) -> None:
    each = [warp(images, poses[k : k + 1]) for k in range(len(poses))]
    alike(warp(images, poses[:, None]), torch.stack(each), to=_ROUNDING)


def _of_matrices(family: Spatial, size: tuple[int, int]) -> Rules:
    """What the class of a family that moves points says of its matrices."""
    box = Space(Chain((family,)))
    values = torch.cat((_draws(box, 3).values, _ends(box).values))
    turn = Space.of("rotate").chain.matrix(torch.tensor([[33.0]]).to(values), size)

    def undoes() -> None:
        found = family.matrix(values, size) @ family.inverse_matrix(values, size)
        alike(found, torch.eye(3).to(found).expand_as(found), to=_ROUNDING)

    def adds_up() -> None:
        for (one, other), (first, then) in zip(
            pairwise(0.4 * values), pairwise(family.matrix(0.4 * values, size)), strict=True
        ):
            alike(family.matrix((one + other)[None], size)[0], then @ first, to=_ROUNDING)

    def is_affine() -> None:
        last = family.matrix(values, size)[:, 2]
        alike(last, torch.tensor([0.0, 0.0, 1.0]).to(last).expand_as(last))

    def commutes() -> None:
        matrices = family.matrix(values, size)
        alike(matrices @ turn, turn @ matrices, to=_ROUNDING)

    rules = {f"the inverse matrix of {family.name} undoes its matrix": undoes}
    if family.additive:
        rules[f"one pose of {family.name} after another is their sum (additive)"] = adds_up
    if not family.projective:
        rules[f"the last row of {family.name} is 0, 0, 1 (not projective)"] = is_affine
    if family.conformal:
        rules[f"matrices of {family.name} commute with turns (conformal)"] = commutes
    return rules


def _of_sums(family: Family) -> Rules:
    """What the class of a family of pixels says of two poses, one after the other."""
    box = Space(Chain((family,)))
    poses, images = _draws(box, 3).values, 0.4 + 0.2 * noise(3, _MOST_CHANNELS, 5, 5)
    first, then = (Pose(part * poses, box.chain) for part in (0.3, 0.2))

    def adds_up() -> None:
        twice = warp(warp(images, first), then)
        alike(twice, warp(images, first.like(first.values + then.values)), to=_ROUNDING)

    rule = f"one pose of {family.name} after another is their sum (additive)"
    return {rule: adds_up} if family.additive else {}


def _of_text(family: Family) -> Rules:
    """Records and recipes know it by its text, where its class is known by a name."""

    def is_read_again() -> None:
        (again,) = Space.of(str(family)).chain.families
        if again != family:
            raise AssertionError(f"{str(family)!r} is read as another, {again}")

    return {f"the text of {family.name} is read as itself": is_read_again}


def _of_slopes(box: Space) -> Rules:
    """What attacks that climb need, and losses whose gradients pass through images."""

    def changed(images: Tensor, values: Tensor) -> Tensor:
        return warp(images, Pose(values, box.chain))

    def agrees() -> None:
        # Half way to the limits of poses and of pixels, where no clamp has its kink.
        images = (0.3 + 0.4 * noise(1, _MOST_CHANNELS, *_FEW_PIXELS)).requires_grad_()
        values = (0.5 * _draws(box, 1).values + 0.01).requires_grad_()
        found = changed(images, values).square().sum()
        slope = torch.autograd.grad(found, values, allow_unused=True)[0] if found.grad_fn else None
        if slope is None or not slope.any():
            raise AssertionError(
                "by poses they are zero; differentiable=False does not ask for them"
            )
        torch.autograd.gradcheck(changed, (images, values))

    def is_finite() -> None:
        images = torch.zeros(1, _MOST_CHANNELS, *_FEW_PIXELS)
        images[..., 4:] = 1
        ends = torch.cat((_ends(box).values.float(), box.zeros(1).values))
        given = images.requires_grad_(), ends.requires_grad_()
        total = changed(given[0], given[1][:, None]).square().sum()
        slopes = torch.autograd.grad(total, given, allow_unused=True)
        for name, slope in zip(("images", "poses"), slopes, strict=True):
            if slope is not None and not slope.isfinite().all():
                raise AssertionError(f"slopes by {name} are infinite, or no numbers")

    return {
        "slopes are those of small differences": agrees,
        "slopes are finite at black, white, zero and the limits": is_finite,
    }
