"""The estimate from observed slopes: its parts by hand, and its error rate by a recount."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bar_images import bars, trained_network
from hill_scores import Hills, draws, hills
from rigid_spaces import rigid
from upright import Evaluation, Pose, RefiningSearch, Space, evaluate
from upright.attacks import Rounds
from upright.attacks.refine import Boxes
from upright.evaluation import SlopeEstimate
from upright.evaluation.score import Predictor, WorstLoss, is_fooled, may_be_fooled, severity
from upright.tiles import Room

BOX, FIVE = "shift rotate", "shift rotate zoom brightness"
SPACE = rigid(1, 10)
DATA = bars(160, seed=9)
NAMES = ["refine-80", "refine-80+rnd", "refine-80+s-pgd"]


def boxes(score: Hills, passes: int, *, shifted: bool = False) -> Boxes:
    attack = RefiningSearch(passes, shifted)
    rounds = attack.begin(score.space, len(score.tops), generator=draws())
    while (poses := rounds.propose()) is not None:
        rounds.learn(score(poses))
    return rounds


def ceiling_by_hand(tried: Boxes, image: int) -> float:
    """The estimate of one image, try by try."""
    widths = [high - low for low, high in tried.ranges.space.limits]
    scores, origins = tried.scores[:, image].tolist(), tried.origins[:, image].tolist()
    poses, sizes = tried.poses.values[:, image].tolist(), tried.sizes[:, image].tolist()
    steepest: dict[int, float] = {}
    for place, origin in enumerate(origins):
        if place != origin:
            apart = zip(poses[place], poses[origin], widths, strict=True)
            length = max(abs(to - at) / width for to, at, width in apart if width)
            slope = abs(scores[place] - scores[origin]) / length if length else 0.0
            steepest[origin] = max(steepest.get(origin, 0.0), slope)
    roots = sorted(slope for place, slope in steepest.items() if origins[place] == place)
    usual = roots[(len(roots) - 1) // 2] if roots else math.inf
    highest = []
    for place, origin in enumerate(origins):
        slope = steepest.get(place, steepest.get(origin, usual))
        highest.append(scores[place] + slope * 0.12 * 0.48 ** sizes[place] / 2)
    return max(highest)


@pytest.mark.parametrize("passes", [1, 10, 20, 40, 150])
@pytest.mark.parametrize("text", ["rotate", BOX, FIVE, "shift(2px, 0px) rotate(0..20)"])
def test_is_that_of_a_sum_by_hand(text: str, passes: int) -> None:
    tried = boxes(hills(text, 6, ripples=0.01), passes, shifted=passes % 20 == 0)
    expected = torch.tensor([ceiling_by_hand(tried, image) for image in range(6)])
    torch.testing.assert_close(tried.ceiling().float(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("text", "passes"), [("rotate", 20), (BOX, 150), (FIVE, 600)])
def test_few_tops_lie_above_it_and_none_far_below(text: str, passes: int) -> None:
    tried = boxes(hills(text), passes)  # their tops are at 0, and their feet near -1
    assert (tried.ceiling() >= 0).double().mean() >= 0.95
    assert tried.ceiling().max() < 0.1


def test_is_never_below_what_was_found() -> None:
    tried = boxes(hills(BOX, ripples=0.05), 100)
    assert (tried.ceiling() >= tried.worst().score).all()


def test_before_slopes_were_seen_anything_may_be() -> None:
    assert boxes(hills(BOX, 3), 10).ceiling().isinf().all()
    empty = RefiningSearch(9).begin(Space.of(BOX), 3, generator=draws())
    assert empty.ceiling().isinf().all()


def test_where_there_is_one_pose_it_is_its_score() -> None:
    tried = boxes(hills("shift(0px) rotate(0)", 3), 30)
    assert torch.equal(tried.ceiling(), tried.worst().score)


def test_an_image_is_judged_by_itself_and_by_differences() -> None:
    score = hills(BOX, 8, ripples=0.02)
    tried, order = boxes(score, 120), torch.tensor([5, 0, 7])
    assert torch.equal(tried.restrict(order).ceiling(), tried.ceiling()[order])
    tried.scores = tried.scores - 1000
    raised = tried.ceiling() + 1000
    torch.testing.assert_close(raised, boxes(score, 120).ceiling(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("top", [1, 2, 5])
def test_what_is_fooled_may_be(top: int) -> None:
    logits = torch.randn(4000, 12, generator=draws()) * 9 * torch.rand(4000, 1, generator=draws(1))
    labels = torch.randint(12, (4000,), generator=draws(2))
    severities = severity(logits, labels, top)
    assert may_be_fooled(severities, top)[is_fooled(severities)].all()
    safe = ~may_be_fooled(severities, top)
    assert safe.any()
    assert (F.cross_entropy(logits, labels, reduction="none")[safe] < math.log(top + 1)).all()
    # The least loss of a wrong answer: as probable as as many others, which alone are possible.
    tie = torch.tensor([[0.0] * (top + 1) + [-99.0] * (11 - top)])
    assert may_be_fooled(severity(tie, torch.tensor([top]), top), top).all()


def measure(**options: Any) -> Evaluation:
    asked: dict[str, Any] = {"attacks": NAMES, "space": SPACE} | options
    return evaluate(trained_network(), DATA, **asked)


def estimates(found: Evaluation) -> dict[str, SlopeEstimate]:
    known = {name: result.estimate for name, result in found.attacks.items()}
    return {name: estimate for name, estimate in known.items() if estimate is not None}


def masks(found: Evaluation) -> dict[str, Tensor]:
    return {
        name: torch.stack((each.safe, each.safe_early, each.went_below))
        for name, each in estimates(found).items()
    }


def assert_same(one: Evaluation, other: Evaluation) -> None:
    first, second = masks(one), masks(other)
    assert first.keys() == second.keys()
    for name, mask in first.items():
        assert torch.equal(mask, second[name])


def recount(name: str, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """What is safe in the end, after a quarter, and what of that is fooled; image by image."""
    whole = measure(attacks=[name], top=top)
    images, labels = DATA
    space = SPACE.in_pixels(*images.shape[-2:])
    with torch.no_grad():
        rounds: Rounds = RefiningSearch(80).begin(space, len(images), generator=draws())
        score = WorstLoss(Predictor(trained_network(), Room(64)), images, labels)
        tried: list[Tensor] = []
        early = None
        while (poses := rounds.propose()) is not None:
            rounds.learn(torch.stack([_log_odds(score.move(images, pose)) for pose in poses]))
            tried.append(torch.stack([_wrong(score.move(images, pose), top) for pose in poses]))
            if early is None and sum(map(len, tried)) >= 20:
                early = ~torch.cat(tried).any(0) & (_ceiling(rounds) < math.log(top))
    assert early is not None
    safe = ~torch.cat(tried).any(0) & (_ceiling(rounds) < math.log(top))
    return safe, early, early & ~whole.attacks[name].correct


def _ceiling(rounds: Rounds) -> Tensor:
    ceiling = rounds.ceiling()
    assert ceiling is not None
    return ceiling


def _log_odds(moved: Tensor) -> Tensor:
    """Against the true class."""
    classes = trained_network()(moved).double().softmax(1)
    own = classes.gather(1, DATA[1][:, None])[:, 0]
    return torch.log((classes.sum(1) - own) / own)


def _wrong(moved: Tensor, top: int) -> Tensor:
    best = trained_network()(moved).topk(top).indices
    return (best != DATA[1][:, None]).all(1)


@pytest.mark.parametrize("top", [1, 2])
def test_the_count_is_that_of_a_recount(top: int) -> None:
    estimate = estimates(measure(attacks=["refine-80"], top=top))["refine-80"]
    safe, early, below = recount("refine-80", top)
    # Odds alone order tries of images that nothing fools as the evaluation's rule does.
    assert torch.equal(estimate.safe, safe)
    assert torch.equal(estimate.safe_early & ~estimate.went_below, early & ~below)
    assert torch.equal(estimate.safe_early, early)
    assert torch.equal(estimate.went_below, below)
    assert 0 < estimate.accuracy < 1
    assert early.any()


@pytest.mark.parametrize("include_identity", [False, True])
def test_accuracy_alone_gives_the_same_estimate(include_identity: bool) -> None:
    whole = measure(include_identity=include_identity)
    alone = measure(include_identity=include_identity, only_accuracy=True)
    assert list(masks(whole)) == NAMES
    assert_same(whole, alone)
    for name, estimate in estimates(alone).items():
        correct = alone.attacks[name].correct
        assert not (estimate.safe & ~correct).any()
        assert torch.equal(estimate.went_below, estimate.safe_early & ~correct)


@pytest.mark.parametrize("only_accuracy", [False, True])
def test_batches_change_nothing(only_accuracy: bool) -> None:
    few = measure(batch_size=7, only_accuracy=only_accuracy)
    assert_same(few, measure(batch_size=500, only_accuracy=only_accuracy))


class StoppedError(Exception):
    pass


def test_a_stopped_evaluation_ends_with_the_same_estimate(tmp_path: Path) -> None:
    data, calls = bars(700, seed=4), [10**6]

    def model(images: Tensor) -> Tensor:
        calls[0] -= 1
        if calls[0] < 0:
            raise StoppedError
        logits: Tensor = trained_network()(images)
        return logits

    options: dict[str, Any] = {"attacks": ["refine-80"], "space": SPACE, "only_accuracy": True}
    unbroken = evaluate(model, data, **options)
    assert estimates(unbroken)["refine-80"].safe_early.any()
    calls[0] = int(0.9 * (10**6 - calls[0]))  # in the second chunk
    with pytest.raises(StoppedError):
        evaluate(model, data, state=tmp_path / "state", **options)
    assert (tmp_path / "state").exists()
    calls[0] = 10**6
    assert_same(evaluate(model, data, state=tmp_path / "state", **options), unbroken)


def test_a_state_from_before_there_were_estimates_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    with monkeypatch.context() as patched:
        patched.setattr(Boxes, "ceiling", Rounds.ceiling)
        old = measure(attacks=["refine-30"], state=state)
    again = measure(attacks=["refine-30"], state=state)
    assert not estimates(old)
    assert not estimates(again)
    assert torch.equal(old.attacks["refine-30"].correct, again.attacks["refine-30"].correct)


def test_what_is_said_of_it() -> None:
    found = measure(attacks=["wo-3", "refine-80", "refine-5"])
    assert list(estimates(found)) == ["refine-80", "refine-5"]
    estimate = estimates(found)["refine-80"]
    below, of = int(estimate.went_below.sum()), int(estimate.safe_early.sum())
    (said,) = (note for note in found.notes if note.startswith("refine"))
    assert said.startswith(f"refine-80: {100 * found.attacks['refine-80'].accuracy:.2f} %; ")
    assert f"perhaps as low as {100 * estimate.accuracy:.2f} %" in said
    assert f"a finer search went below it on {below} of {of} images" in said
    assert not estimates(found)["refine-5"].in_words  # which has no error rate yet
    attacks = found.summary()["attacks"]
    assert isinstance(attacks, dict)
    assert "estimate" not in attacks["wo-3"]
    assert attacks["refine-80"]["estimate"] == {
        "accuracy": estimate.accuracy,
        "safe_after_a_quarter": of,
        "of_these_fooled_later": below,
    }


def test_poses_of_a_search_that_tells_nothing_have_no_estimate() -> None:
    class Silent(Rounds):
        def propose(self) -> Pose | None: ...
        def learn(self, scores: Tensor) -> None: ...
        def restrict(self, rows: Tensor) -> Rounds: ...  # type: ignore[empty-body]
        def worst(self) -> Any: ...

    assert Silent().ceiling() is None
