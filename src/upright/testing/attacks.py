"""What evaluation, training and penalties rely on in an attack."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from upright.attacks import Attack, Score, WorstCase, parse_attack
from upright.attacks.base import check_worst_case
from upright.attacks.given import check_inside, check_poses
from upright.pose import Pose
from upright.space import PAPER, Space
from upright.testing.rules import alike, drawing, keeps
from upright.uniform import ByPlace

__all__ = ["check_attack"]

_IMAGES = 4
_SIDE = 32


def check_attack(attack: str | Attack, space: str | Space = PAPER) -> None:
    """Try every rule of an attack, on scores with one top for each image.

    Args:
        attack: By its name, such as ``"hill-20"``, or itself.
        space: What it searches; limits in per cent are of 32 pixels.

    >>> check_attack("Wo-10")
    """
    asked = parse_attack(attack) if isinstance(attack, str) else attack
    if not isinstance(asked, Attack):
        raise ValueError(f"an attack is a name or an Attack, not {asked!r}")
    box = Space.of(space).in_pixels(_SIDE, _SIDE)
    asked.check_space(box)
    rules = {
        "each image gets a pose of the space, and the score that this has": _gives_poses,
        "it asks for scores in the space alone": _asks_inside,
        "it counts the passes that it asks for, and no more than it says": _counts,
        "the worst pose alone is that of the search": _agrees_with_itself,
        "the same generator gives the same search": _is_certain,
        "what torch draws elsewhere is left alone": _leaves_torch_alone,
        "one image is searched like several": _searches_one,
        "an image draws in a part what it draws among all": _draws_by_place,
        "limits of zero leave the zero pose": _rests,
    }
    if not asked.climbs:
        rules["it needs no slopes, as it says (climbs)"] = _needs_no_slopes
    keeps(str(asked), {rule: partial(attempt, asked, box) for rule, attempt in rules.items()})


@dataclass
class _Hills:
    """Scores that fall from a top, another one for each image; it notes where it was asked."""

    space: Space
    tops: Tensor
    """Images x axes, as parts of the limits."""
    asked: list[Pose] = field(default_factory=list)

    @staticmethod
    def over(space: Space, count: int = _IMAGES) -> _Hills:
        return _Hills(space, torch.rand(count, len(space.axes), generator=drawing(2)))

    def __call__(self, poses: Pose) -> Tensor:
        away = self.space.fractions(poses) - self.tops
        self.asked.append(poses.like(poses.values.detach().clone()))  # it may go on in place
        return -away.square().sum(-1)

    @property
    def passes(self) -> int:
        images = len(self.tops)
        return sum(poses.values[..., 0].numel() // poses.shape[-1] for poses in self.asked) * images


def _search(
    attack: Attack, score: Score, space: Space, count: int = _IMAGES, seed: int = 0
) -> WorstCase:
    found = attack.search(score, space, count, generator=drawing(seed))
    check_worst_case(f"search of {attack}", found)
    return found


def _gives_poses(attack: Attack, space: Space) -> None:
    found = _search(attack, _Hills.over(space), space)
    check_poses(f"search of {attack}", found.pose, space, f"({_IMAGES},)", (_IMAGES,))
    alike(found.score, _Hills.over(space)(found.pose), to=1e-5)


def _asks_inside(attack: Attack, space: Space) -> None:
    hills = _Hills(space, torch.full((_IMAGES, len(space.axes)), 100.0))
    _search(attack, hills, space)
    for poses in hills.asked:
        check_inside(str(attack), poses, space)


def _counts(attack: Attack, space: Space) -> None:
    hills = _Hills.over(space)
    found = _search(attack, hills, space)
    most = attack.passes_per_image * _IMAGES
    if not found.forward_passes == hills.passes <= most:
        said = f"{found.forward_passes} by forward_passes, {most} at most by passes_per_image"
        raise AssertionError(f"{hills.passes} passes; {said}")


def _agrees_with_itself(attack: Attack, space: Space) -> None:
    hills = _Hills.over(space)
    alone = attack.worst_pose(hills, space, _IMAGES, generator=drawing())
    alike(alone.values, _search(attack, _Hills.over(space), space).pose.values)
    if hills.passes > attack.passes_of_worst_pose * _IMAGES:
        said = f"{attack.passes_of_worst_pose * _IMAGES} by passes_of_worst_pose"
        raise AssertionError(f"{hills.passes} passes for poses alone; {said}")


def _is_certain(attack: Attack, space: Space) -> None:
    once, again = (_search(attack, _Hills.over(space), space, seed=3) for _ in range(2))
    alike(once.pose.values, again.pose.values)


def _leaves_torch_alone(attack: Attack, space: Space) -> None:
    before = torch.get_rng_state()
    _search(attack, _Hills.over(space), space)
    if not torch.equal(torch.get_rng_state(), before):
        raise AssertionError("it drew by torch's own generator: draw by the one that is given")


def _searches_one(attack: Attack, space: Space) -> None:
    found = _search(attack, _Hills.over(space, 1), space, count=1)
    if (*found.pose.shape, *found.score.shape) != (1, 1):
        raise AssertionError(f"poses of shape {tuple(found.pose.shape)} for one image")


def _draws_by_place(attack: Attack, space: Space) -> None:
    every, places = _Hills.over(space), torch.tensor([1, 3])
    whole = _search(attack, every, space)
    part = ByPlace.of(places, of_images=_IMAGES, size=_IMAGES, begin=lambda _: drawing())
    found = attack.search(_Hills(space, every.tops[places]), space, len(places), generator=part)
    if not torch.equal(found.pose.values, whole.pose.values[places]):
        raise AssertionError("draw by space.sample or upright.uniform.uniform, images first")


def _rests(attack: Attack, space: Space) -> None:
    still = [replace(axis, low=0.0, high=0.0) for axis in space.axes]
    nowhere = Space(space.chain.with_axes(still))
    if _search(attack, _Hills.over(nowhere), nowhere).pose.values.any():
        raise AssertionError("it gives another pose where there is none")


def _needs_no_slopes(attack: Attack, space: Space) -> None:
    hills = _Hills.over(space)
    _search(attack, lambda poses: hills(poses).detach(), space)
