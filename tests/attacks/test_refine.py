"""Refinement: on scores whose highest point is known, and on what it must never do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bar_images import bars, trained_network
from hill_scores import Hills, draws, hills
from rigid_spaces import rigid
from upright import Attack, GridSearch, Pose, RefiningSearch, RegularizedLoss, Space, evaluate, tta
from upright.attacks import Rounds
from upright.attacks.refine import _top

LINE, BOX, FIVE = "rotate", "shift rotate", "shift rotate zoom brightness"
ODD_SPACES = [
    "rotate(-5..20) blur(2px)",
    "brightness(-0.1..0) stretch",
    "hue gamma shear",
    "shift(2px, 0px) rotate(0..20)",
    "blur(1px)",
]


def height(attack: Attack, score: Hills) -> Tensor:
    """How far below the top the attack ends, for each image; the top is at 0."""
    return attack.search(score, score.space, len(score.tops), generator=draws()).score


@pytest.mark.parametrize("ripples", [0.0, 0.01], ids=["smooth", "rippled"])
@pytest.mark.parametrize(
    ("text", "counts"), [(LINE, (31,)), (BOX, (7, 7, 7)), (FIVE, (3, 3, 3, 3, 3))]
)
def test_comes_closer_to_the_top_than_a_grid_of_as_many_poses(
    text: str, counts: tuple[int, ...], ripples: float
) -> None:
    grid = GridSearch(counts)
    refined = height(RefiningSearch(grid.passes_per_image), hills(text, ripples=ripples))
    plain = height(grid, hills(text, ripples=ripples))
    assert refined.mean() > plain.mean() / 1.5
    assert (refined >= plain).double().mean() > 0.8


@pytest.mark.parametrize(("text", "passes"), [(LINE, 8), (BOX, 80), (FIVE, 200)])
def test_finds_a_top_that_lies_in_a_corner(text: str, passes: int) -> None:
    found = height(RefiningSearch(passes), hills(text, corners=True))
    torch.testing.assert_close(found, torch.zeros_like(found), atol=1e-12, rtol=0)


def test_a_narrow_top_is_found_to_many_digits() -> None:
    assert height(RefiningSearch(1000), hills(BOX)).min() > -1e-4


@pytest.mark.parametrize("text", [*ODD_SPACES, BOX, FIVE])
@pytest.mark.parametrize("passes", [1, 2, 7, 20, 63, 150])
def test_the_budget_is_spent_and_the_space_never_left(text: str, passes: int) -> None:
    score = hills(text, 3)
    found = RefiningSearch(passes).search(score, score.space, 3, generator=draws())
    assert found.forward_passes == 3 * passes
    assert score.tried.shape == (passes, 3, len(score.space.axes))
    assert score.space.contains(Pose(score.tried, score.space.chain)).all()


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("text", [*ODD_SPACES, BOX, FIVE])
def test_begins_with_the_image_as_it_is(text: str, shifted: bool) -> None:
    score = hills(text, 3)
    RefiningSearch(30, shifted).search(score, score.space, 3, generator=draws())
    assert not score.tried[0].any()


@pytest.mark.parametrize("text", [LINE, BOX, FIVE])
def test_the_first_round_reaches_every_part_of_every_axis(text: str) -> None:
    score = hills(text, 1)
    rounds = RefiningSearch(100).begin(score.space, 1, generator=draws())
    first = rounds.propose()
    assert first is not None
    limits = torch.tensor(score.space.limits)
    parts = (first.values[:, 0] - limits[:, 0]) / (limits[:, 1] - limits[:, 0])
    thirds = (parts * 3).long().clamp(max=2)
    assert all(set(column.tolist()) == {0, 1, 2} for column in thirds.T)


def test_an_axis_without_width_costs_nothing() -> None:
    flat, line = hills("shift(2px, 0px)", 4), hills("rotate(2)", 4)
    flat.tops = torch.cat((line.tops, torch.zeros(4, 1)), 1)
    height(RefiningSearch(30), flat)
    height(RefiningSearch(30), line)
    assert torch.equal(flat.tried[..., :1], line.tried)
    assert not flat.tried[..., 1].any()


def test_a_space_without_width_is_one_pose() -> None:
    score = hills("shift(0px) rotate(0)", 2)
    found = RefiningSearch(30).search(score, score.space, 2, generator=draws())
    assert score.tried.shape == (1, 2, 3)
    assert not found.pose.values.any()


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("text", [LINE, BOX, FIVE])
def test_fewer_passes_try_the_first_of_more(text: str, shifted: bool) -> None:
    more = hills(text, 5, ripples=0.01)
    height(RefiningSearch(200, shifted), more)
    for passes in (1, 10, 50, 131, 199):
        fewer = hills(text, 5, ripples=0.01)
        found = height(RefiningSearch(passes, shifted), fewer)
        assert torch.equal(fewer.tried, more.tried[:passes])
        assert torch.equal(found, more(Pose(fewer.tried, more.space.chain)).amax(0))


@pytest.mark.parametrize("shifted", [False, True])
def test_an_image_is_searched_as_if_it_were_alone(shifted: bool) -> None:
    together = hills(BOX, 5, ripples=0.01)
    height(RefiningSearch(100, shifted), together)
    first = hills(BOX, 5, ripples=0.01)
    first.tops = first.tops[:1]
    height(RefiningSearch(100, shifted), first)
    assert torch.equal(first.tried[:, 0], together.tried[:, 0])


def test_the_order_of_images_is_nothing() -> None:
    order = torch.tensor([3, 0, 4, 1, 2])
    straight, other = hills(BOX, 5, ripples=0.01), hills(BOX, 5, ripples=0.01)
    other.tops = other.tops[order]
    height(RefiningSearch(100), straight)
    height(RefiningSearch(100), other)
    assert torch.equal(other.tried, straight.tried[:, order])


def test_a_jump_of_the_score_does_not_make_the_search_a_covering() -> None:
    """Scores of wrong answers lie far above those of right ones: see ``severity``."""

    def jumping(pose: Pose) -> Tensor:
        values = score(pose)
        return torch.where(values > -0.02, values + 1000, values)

    score = hills(BOX)
    found = RefiningSearch(300).search(jumping, score.space, len(score.tops), generator=draws())
    assert (found.score - 1000).min() > -1e-4


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("text", [LINE, BOX])
def test_scores_of_any_kind_lead_to_poses_of_the_space(text: str, dtype: torch.dtype) -> None:
    score = hills(text, 5)

    def coarse(pose: Pose) -> Tensor:
        return (100 * score(pose)).to(dtype)

    found = RefiningSearch(300).search(coarse, score.space, 5, generator=draws())
    assert score.space.contains(found.pose).all()
    assert score.space.contains(Pose(score.tried, score.space.chain)).all()
    assert score(found.pose).min() > -0.5


@pytest.mark.parametrize("bend", [-3.0, -0.5, 0.5, 3.0])
@pytest.mark.parametrize("middle", [-0.9, -0.2, 0.1, 0.6])
@pytest.mark.parametrize(("one", "other"), [(0.2, -0.2), (0.2, 0.14), (-0.1, 0.3)])
def test_the_top_of_a_parabola_is_the_highest_of_many_places_along_it(
    bend: float, middle: float, one: float, other: float
) -> None:
    """As far as twice the span of the three places; without a top, on the better end's side."""

    def height(place: Tensor) -> Tensor:
        return bend * (place - middle) ** 2

    here, ends = torch.zeros(1, 1).double(), torch.tensor([[[one]], [[other]]]).double()
    found = _top(here, height(here), ends, height(ends)).item()
    low, high = min(0.0, one, other), max(0.0, one, other)
    places = torch.linspace(2 * low - high, 2 * high - low, 4001).double()
    better = one if height(torch.tensor(one)) > height(torch.tensor(other)) else other
    if bend > 0:
        assert found == pytest.approx(2 * high - low if better > 0 else 2 * low - high)
    else:
        assert found == pytest.approx(places[height(places).argmax()].item(), abs=1e-3)


def test_a_large_box_goes_before_a_slightly_higher_small_one_where_scores_are_steep() -> None:
    """The first round has one hill in view; what lies elsewhere is hidden in larger boxes."""
    rounds = RefiningSearch(400).begin(Space.of(LINE), 1, generator=draws())
    rounds.propose()
    rounds.learn(torch.tensor([[0.9], [1.0], [0.0], [0.0], [0.0]]))
    rounds.sizes[1] = 4
    for slope, first in ((0.001, 1), (5.0, 0)):
        rounds.slopes[:] = slope
        assert rounds.best(1).values.item() == rounds.poses.values[first].item()


def run_rounds(rounds: Rounds, score: Hills, leave: Callable[[int], Tensor | None]) -> Tensor:
    """All poses of the images that stay to the end, where some leave after some rounds."""
    tops, number = score.tops, 0
    while (poses := rounds.propose()) is not None:
        rounds.learn(score(poses))
        stay = leave(number)
        if stay is not None:
            rounds = rounds.restrict(stay)
            score.tops = score.tops[stay]
            score.asked = [asked[:, stay] for asked in score.asked]
        number += 1
    score.tops = tops
    return score.tried


@pytest.mark.parametrize("shifted", [False, True])
def test_who_leaves_changes_nothing_for_those_who_stay(shifted: bool) -> None:
    attack = RefiningSearch(150, shifted)
    whole, part = hills(BOX, 6, ripples=0.01), hills(BOX, 6, ripples=0.01)
    height(attack, whole)
    leaving = {0: torch.tensor([0, 2, 3, 5]), 3: torch.tensor([1, 3])}
    rounds = attack.begin(part.space, 6, generator=draws())
    assert torch.equal(run_rounds(rounds, part, leaving.get), whole.tried[:, [2, 5]])


def test_a_shift_is_each_images_own_and_each_generators() -> None:
    attack = RefiningSearch(10, shifted=True)
    first = attack.begin(Space.of(BOX), 4, generator=draws()).propose()
    again = attack.begin(Space.of(BOX), 4, generator=draws()).propose()
    other = attack.begin(Space.of(BOX), 4, generator=draws(5)).propose()
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first.values, again.values)
    assert len(torch.cat((first.values, other.values), 1)[1].unique(dim=0)) == 8


class OnOneDevice(TorchDispatchMode):
    """Refuses operations on tensors of another device than the meta device, which holds no data."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        found = operation(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves((args, kwargs, found)):
            assert not isinstance(leaf, Tensor) or leaf.is_meta, operation
        return found


@pytest.mark.parametrize("text", [LINE, BOX, FIVE, "shift(2px, 0px) rotate(0..20)"])
def test_neither_copies_from_the_host_nor_looks_at_values(text: str) -> None:
    """A CUDA graph of a training step can capture neither."""
    generator: Any = SimpleNamespace(device=torch.device("meta"))
    with OnOneDevice():
        rounds = RefiningSearch(150).begin(Space.of(text), 4, generator=generator)
        while (poses := rounds.propose()) is not None:
            rounds.learn(torch.empty(poses.shape, device="meta"))
        assert rounds.worst().score.shape == (4,)


SPACE = rigid(1, 10)
DATA = bars(60, seed=9)


@pytest.mark.parametrize("include_identity", [False, True])
def test_accuracy_alone_is_the_same_in_fewer_passes(include_identity: bool) -> None:
    attacks = ["refine-5", "refine-60", "refine-60+rnd"]
    options: dict[str, Any] = {
        "attacks": attacks,
        "space": SPACE,
        "include_identity": include_identity,
    }
    whole = evaluate(trained_network(), DATA, **options).attacks
    alone = evaluate(trained_network(), DATA, only_accuracy=True, **options).attacks
    for name in attacks:
        assert torch.equal(whole[name].correct, alone[name].correct)
        assert whole[name].correct.any()
        assert not whole[name].correct.all()
    assert whole["refine-60"].forward_passes == 60 * 60
    kept = int(alone["refine-60"].correct.sum())
    assert 60 * kept <= alone["refine-60"].forward_passes < 60 * 60


def test_more_passes_never_raise_accuracy() -> None:
    names = [f"refine-{passes}" for passes in (1, 5, 20, 60, 150)]
    found = evaluate(trained_network(), DATA, attacks=names, space=SPACE, only_accuracy=True)
    correct = torch.stack([found.attacks[name].correct for name in names]).int()
    assert (correct.diff(dim=0) <= 0).all()
    assert torch.equal(found.attacks["refine-1"].correct, found.natural_correct)


@pytest.mark.parametrize("objective", ["KL(rob, refine-20)", "L2(mix, refine-20+rnd×2)"])
def test_trains(objective: str) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(DATA[0][0].numel(), 3))
    images, labels = DATA[0].float(), DATA[1] % 3
    loss = RegularizedLoss(objective, space=SPACE)
    terms = loss(network, images, labels)
    terms.total.backward()
    for pose in terms.poses.values():
        assert SPACE.contains(pose).all()
        assert pose.values.any()
    assert str(loss.objective) == objective


def test_averaging_over_poses_refuses_it() -> None:
    with pytest.raises(ValueError, match="refine-9 finds its poses as it goes"):
        tta(trained_network(), "refine-9")


def test_no_pass_is_refused() -> None:
    with pytest.raises(ValueError, match="a refining search needs at least 1 pass, but got 0"):
        RefiningSearch(0)
