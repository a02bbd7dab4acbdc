"""A recipe, a pair and a mean are cases of one thing, and callers need not tell which."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch import nn

from tiny_runs import tiny_recipe
from upright.composed import each_network
from upright.evaluation import Oracle
from upright.pose import Pose
from upright.train import Mean, Pair, Plan, Recipe
from upright.train.any_plan import plan_from_json
from upright.train.two_stage import RunLocator, StnPlus
from upright.tta import Averaging


def pair(*, oracle: bool = False, fill: str = "reflection") -> Pair:
    return Pair(
        locnet=tiny_recipe(objective=f"LocNet({fill})", steps=5, seed=4),
        classifier=tiny_recipe(objective="std*", steps=7, seed=4),
        oracle=oracle,
    )


def mean(*members: Plan, over: str | None = "mirror") -> Mean:
    return Mean(members=members, over=None if over is None else Averaging.parse(over))


PLANS = [
    tiny_recipe(),
    tiny_recipe(objective="LocNet(black)"),
    pair(),
    pair(oracle=True),
    mean(tiny_recipe()),
    mean(tiny_recipe(), tiny_recipe(steps=3), over=None),
    mean(pair(), pair(), over="grid-3x1@shift(1px)+mirror"),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_what_holds_for_every_plan(plan: Plan) -> None:
    assert plan.main == plan.runs[-1]
    assert plan.with_runs(plan.runs) == plan
    assert plan.changed() == plan
    assert plan.total_steps == sum(run.steps for run in plan.runs)
    assert plan_from_json(plan.as_json()) == plan
    other = plan.changed(seed=9)
    assert {run.seed for run in other.runs} == {9}
    assert other.changed(seed=plan.main.seed) == plan
    assert (type(other), other.method) == (type(plan), plan.method)
    assert other.hash != plan.hash


def test_a_recipe_is_its_own_only_run() -> None:
    recipe, network = tiny_recipe(), nn.Flatten()
    assert recipe.runs == (recipe,)
    assert recipe.main is recipe
    assert recipe.joined([network]) is network
    assert (recipe.locnet_fill, recipe.is_oracle) == (None, False)
    assert Recipe(objective="KL(rob,wo-10)").method == "KL(rob, Wo-10)"
    with pytest.raises(ValueError, match="too many values"):
        recipe.with_runs([recipe, recipe])


@pytest.mark.parametrize("oracle", [False, True])
def test_a_pair_goes_by_its_classifier_and_is_attacked_as_its_locnet_was_trained(
    oracle: bool,
) -> None:
    both = pair(oracle=oracle)
    assert (both.main, both.total_steps, both.is_oracle) == (both.classifier, 12, oracle)
    assert both.locnet_fill == "reflection"
    assert both.method == "STN+(LocNet(reflection), std*)" + oracle * " oracle"
    text = f"{both.locnet.hash} {both.classifier.hash} {oracle}"
    assert both.hash == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_mean_tells_its_members_and_what_it_is_over() -> None:
    first, second = tiny_recipe(seed=1), tiny_recipe(seed=2)
    alike = mean(first, second)
    assert (alike.runs, alike.main) == ((first, second), second)
    assert alike.method == "mean(2 x KL(rob, Wo-2); mirror)"
    assert mean(first, tiny_recipe(objective="std*"), over=None).method == (
        "mean(KL(rob, Wo-2), std*)"
    )
    assert mean(pair(), over="4").method == "mean(STN+(LocNet(reflection), std*); 4)"
    hashes = {
        plan.hash
        for plan in (first, mean(first), mean(first, over="10"), mean(first, first), alike)
    }
    assert len(hashes) == 5
    assert mean(second, first).hash == alike.hash
    assert mean(pair()).locnet_fill == "reflection"
    assert [mean(first, over=over).answers for over in ("mirror", "grid-2x1x3", "5+mirror")] == [
        *(2, 6, 10)
    ]


def test_seeds_of_a_pair_have_to_fit_and_those_of_members_may_differ() -> None:
    apart = Pair(
        locnet=tiny_recipe(objective="LocNet(black)", seed=1),
        classifier=tiny_recipe(objective="std*", seed=2),
        oracle=False,
    )
    assert mean(tiny_recipe(seed=1), tiny_recipe(seed=2)).seeds_fit
    assert (pair().seeds_fit, apart.seeds_fit, mean(apart).seeds_fit) == (True, False, False)


def test_a_mean_of_means_is_that_of_their_members_where_it_is_the_same() -> None:
    first, second, mirror = tiny_recipe(seed=1), tiny_recipe(seed=2), Averaging.parse("mirror")
    both = mean(first, second)
    assert Mean.of([first, second], mirror) == both
    assert Mean.of([mean(first, second, over=None)], mirror) == both
    assert Mean.of([mean(first), mean(second)]) == both
    others = [
        ([mean(first)], mirror),
        ([mean(first), second], None),
        ([mean(first), mean(second, over="3")], None),
        ([mean(first, first), mean(second)], None),
    ]
    for plans, over in others:
        with pytest.raises(ValueError, match="average all runs at once"):
            Mean.of(plans, over)


def test_json_of_a_mean_of_means_is_refused_however_deep_it_is() -> None:
    values = mean(tiny_recipe()).as_json()
    for _ in range(5000):
        values = {"members": [values], "over": "mirror"}
    with pytest.raises(ValueError, match="a recipe has no members"):
        plan_from_json(values)


@pytest.mark.parametrize(
    ("members", "over", "reason"),
    [
        ([mean(tiny_recipe())], "mirror", "a mean of means"),
        ([tiny_recipe(objective="LocNet(black)"), tiny_recipe()], None, "name classifiers"),
        ([tiny_recipe(), tiny_recipe(view=6)], None, "images of one size"),
        ([], "mirror", "needs a member"),
        ([tiny_recipe()], None, "a mean of one is no mean"),
        ([pair(oracle=True), pair()], None, "an oracle"),
        ([pair(), pair(fill="black")], None, "the same fill"),
    ],
)
def test_what_is_no_mean_is_refused(members: list[Plan], over: str | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        mean(*members, over=over)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"members": 3}, "not a mean of plans"),
        ({"members": [3]}, "not a mean of plans"),
        ({"over": 4}, "not a mean of plans"),
        ({"over": "upside"}, "upside"),
        ({"more": 1}, "not a mean of plans.*more"),
    ],
)
def test_json_that_is_no_mean_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plan_from_json(mean(tiny_recipe()).as_json() | change)


class Says(nn.Module):
    """A network that answers the same to every image."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.tensor(numbers))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.numbers.expand(len(images), -1)


@pytest.mark.parametrize("oracle", [False, True])
def test_networks_of_a_pair_are_joined_and_changed_each_by_itself(oracle: bool) -> None:
    locnet, classifier = Says(0.5, 0, -1), Says(1, 2, 3)
    model = pair(oracle=oracle).joined([locnet, classifier])
    assert isinstance(model, Oracle if oracle else StnPlus)
    images = torch.rand(2, 3, 8, 8)
    # Of the paper's limits of 3 px and 30 degrees.
    assert model.locator(images).values.tolist() == [[1.5, 0, -30]] * 2
    seen = []

    def change(network):
        seen.append(network)
        return nn.Sequential(network)

    changed = each_network(model, change)
    assert type(changed) is type(model)
    assert set(seen) == {locnet, classifier}
    assert isinstance(changed.locator, RunLocator)
    assert changed.locator.fill == "reflection"
    assert changed.locator(images).values.equal(model.locator(images).values)
    assert not changed.training


def test_a_locator_of_one_s_own_is_left_as_it_is_and_a_plain_model_is_changed() -> None:
    def nowhere(images):
        return Pose.zeros(len(images))

    classifier, other = Says(1, 2), Says(2, 1)
    for model in (StnPlus(nowhere, classifier), Oracle(nowhere, classifier)):
        changed = each_network(model, lambda _: other)
        assert (changed.locator, changed.classifier) == (nowhere, other)
    assert each_network(classifier, lambda _: other) is other


def test_networks_of_a_mean_are_asked_for_every_view_and_changed_each_by_itself() -> None:
    images = torch.rand(2, 3, 8, 8)
    networks = [nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval() for _ in range(2)]
    members = tiny_recipe(seed=1), tiny_recipe(seed=2)
    by_hand = [net(seen) for net in networks for seen in (images, images.flip(-1))]
    model = mean(*members).joined(networks)
    torch.testing.assert_close(model(images), torch.stack(by_hand).mean(0))
    changed = each_network(model, nn.Module.double)
    torch.testing.assert_close(changed(images.double()).float(), model.float()(images))
    alone = mean(*members, over=None).joined(networks)
    torch.testing.assert_close(alone(images), sum(net(images) for net in networks) / 2)
