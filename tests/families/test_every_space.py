"""Each family by its text through evaluation, averaging, losses and training."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from every_space import EVERY_SPACE, LIMITED, SEVERAL
from tiny_runs import (
    Call,
    Mishaps,
    colours,
    fail,
    newest,
    save_as_npz,
    tiny_run,
)
from upright import Pose, RegularizedLoss, Space, evaluate, tta, warp
from upright.attacks import SpatialPGD
from upright.families import FAMILIES
from upright.train import Recipe, load_network

COUNT, CLASSES = 6, 4


pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


def images() -> Tensor:
    return torch.rand(COUNT, 3, 9, 7, generator=torch.Generator().manual_seed(0))


def labels() -> Tensor:
    return torch.arange(COUNT) % CLASSES


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 63, CLASSES)
        ).eval()


def by_hand(space: Space, counts: tuple[int, ...]) -> list[list[float]]:
    """A grid of two or three values, from the limits alone; the first axis is the slowest.

    Of three the inner one is the identity, if that is inside.
    """
    values = []
    for axis, count in zip(space.axes, counts, strict=True):
        inner = 0.0 if axis.low < 0 < axis.high else (axis.low + axis.high) / 2
        values.append([axis.low, inner, axis.high] if count == 3 else [axis.low, axis.high])
    return [list(pose) for pose in product(*values)]


def some_counts(space: Space) -> tuple[int, ...]:
    """Three values of the first two axes, two of the others."""
    return tuple(3 if place < 2 else 2 for place in range(len(space.axes)))


def test_no_family_of_this_package_is_left_out() -> None:
    own = {name for name, kind in FAMILIES.items() if kind.__module__.startswith("upright.")}
    assert set(LIMITED) == own


@pytest.mark.parametrize("text", EVERY_SPACE)
def test_a_grid_finds_the_worst_of_all_its_poses(text: str) -> None:
    """Pose by pose and image by image, with the model asked about one image at a time."""
    model, box = network(), Space.of(text).in_pixels(9, 7)
    counts = some_counts(box)
    name = "grid-" + "x".join(map(str, counts))
    found = evaluate(model, (images(), labels()), attacks=[name], space=text).attacks[name]
    poses = by_hand(box, counts)
    for i in range(COUNT):
        losses, right = [], []
        for pose in poses:
            moved = warp(images()[i : i + 1], Pose(torch.tensor([pose]), box.chain))
            logits = model(moved).detach()
            losses.append(float(F.cross_entropy(logits, labels()[i : i + 1])))
            right.append(bool(logits.argmax() == labels()[i]))
        wrong = [loss for loss, good in zip(losses, right, strict=True) if not good]
        assert bool(found.correct[i]) == all(right)
        assert found.worst_loss is not None
        assert float(found.worst_loss[i]) == pytest.approx(max(wrong or losses), abs=1e-5)
    assert found.fooled is not None
    torch.testing.assert_close(found.fooled.poses.values, torch.tensor(poses))


@pytest.mark.parametrize("text", EVERY_SPACE)
def test_every_attack_stays_in_the_space_and_zero_is_the_identity(text: str) -> None:
    model, box = network(), Space.of(text).in_pixels(9, 7)
    found = evaluate(model, (images(), labels()), attacks=["wo-3", "s-pgd"], space=text)
    natural = model(images()).argmax(1) == labels()
    assert found.natural_correct.equal(natural)
    for result in found.attacks.values():
        assert result.worst_pose is not None
        assert box.contains(result.worst_pose).all()
        moved = torch.cat(
            [warp(images()[i : i + 1], result.worst_pose[i : i + 1]) for i in range(COUNT)]
        )
        expected = F.cross_entropy(model(moved), labels(), reduction="none").double()
        assert result.worst_loss is not None
        torch.testing.assert_close(result.worst_loss, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("text", EVERY_SPACE)
def test_what_is_only_counted_is_what_is_found_in_full(text: str) -> None:
    asked: dict[str, Any] = {"attacks": ["wo-3"], "space": text}
    full = evaluate(network(), (images(), labels()), **asked)
    quick = evaluate(network(), (images(), labels()), only_accuracy=True, **asked)
    assert quick.attacks["wo-3"].correct.equal(full.attacks["wo-3"].correct)


@pytest.mark.parametrize("text", EVERY_SPACE)
def test_a_state_is_of_its_space(text: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"attacks": ["wo-2"], "state": tmp_path / "state"}
    first = evaluate(network(), (images(), labels()), space=text, **asked)
    again = evaluate(network(), (images(), labels()), space=Space.of(text), **asked)
    one, other = first.attacks["wo-2"].worst_pose, again.attacks["wo-2"].worst_pose
    assert one is not None
    assert other is not None
    assert one.values.equal(other.values)
    with pytest.raises(ValueError, match="belongs to another evaluation \\(other space\\)"):
        evaluate(network(), (images(), labels()), space="rotate(1)", **asked)


@pytest.mark.parametrize("text", EVERY_SPACE)
def test_averaging_is_the_mean_over_the_poses(text: str) -> None:
    averaged = tta(network(), 3, space=text)
    poses = averaged.poses_for(9, 7)
    expected = [network()(warp(images(), poses[i : i + 1])) for i in range(3)]
    torch.testing.assert_close(averaged(images()), torch.stack(expected).mean(0))
    assert Space.of(text).in_pixels(9, 7).contains(poses).all()


@pytest.mark.parametrize("attack", ["Wo-3", "S-PGD", "grid"])
@pytest.mark.parametrize("text", EVERY_SPACE)
def test_a_loss_searches_any_space(text: str, attack: str) -> None:
    box = Space.of(text).in_pixels(9, 7)
    if attack == "grid":
        attack = "grid-" + "x".join(map(str, some_counts(box)))
    model = network().train()
    loss = RegularizedLoss(
        f"KL(rob, {attack}; λ=2)", text, generator=torch.Generator().manual_seed(1)
    )
    terms = loss(model, images(), labels())
    (pose,) = {id(each): each for each in terms.poses.values()}.values()
    assert box.contains(pose).all()
    moved, plain = model(warp(images(), pose)), model(images())
    penalty = F.kl_div(moved.log_softmax(1), plain.log_softmax(1), log_target=True, reduction="sum")
    expected = F.cross_entropy(moved, labels()) + 2 * penalty / COUNT
    torch.testing.assert_close(terms.total, expected)
    terms.total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("text", EVERY_SPACE)
def test_a_climb_takes_steps_of_a_hundredth_of_half_the_range(text: str) -> None:
    box = Space.of(text).in_pixels(9, 7)
    start = box.sample(COUNT, generator=torch.Generator().manual_seed(0)).values
    slopes = torch.tensor([1.0 if place % 2 else -1.0 for place in range(len(box.axes))])
    found = SpatialPGD(steps=1).worst_pose(
        lambda pose: (pose.values * slopes).sum(-1),
        box,
        COUNT,
        generator=torch.Generator().manual_seed(0),
    )
    half = torch.tensor([(high - low) / 2 for low, high in box.limits])
    low, high = torch.tensor(box.limits).T
    expected = torch.minimum(torch.maximum(start + 0.01 * half * slopes, low), high)
    torch.testing.assert_close(found.values, expected)


@pytest.mark.parametrize("text", EVERY_SPACE)
def test_without_an_attack_a_grid_has_as_many_values_as_are_usual(text: str) -> None:
    few = (images()[:2], labels()[:2])
    (result,) = evaluate(network(), few, space=text, only_accuracy=True).attacks.values()
    counts = Space.of(text).usual_counts()
    assert result.attack in ("grid-" + "x".join(map(str, counts)), f"grid-{math.prod(counts)}")
    assert math.prod(counts) <= 7500


def test_the_usual_grid_of_the_papers_space_is_the_papers() -> None:
    (result,) = evaluate(network(), (images()[:1], labels()[:1])).attacks.values()
    assert result.attack == "grid-775"
    assert result.fooled is not None
    assert len(result.fooled.poses) == 775


def test_too_many_axes_for_a_grid_ask_for_an_attack() -> None:
    with pytest.raises(ValueError, match=r"too many for a grid .* name an attack, such as wo-100"):
        evaluate(network(), (images(), labels()), space=" ".join(FAMILIES))


def test_counts_that_do_not_fit_are_refused_before_any_model_is_asked() -> None:
    def never(_: Tensor) -> Tensor:
        raise AssertionError

    message = r"for each of its axes \(dx, dy, zoom\), as in grid-5x5x5, but has 3x3"
    with pytest.raises(ValueError, match=message):
        evaluate(never, (images(), labels()), attacks=["grid-3x3"], space="shift zoom")
    with pytest.raises(ValueError, match=message):
        RegularizedLoss("AT(rob, grid-3x3)", "shift zoom")
    with pytest.raises(ValueError, match=message):
        tta(never, "grid-3x3", space="shift zoom")
    with pytest.raises(ValueError, match=message):
        Recipe(objective="AT(rob, grid-3x3)", space=Space.of("shift zoom"))


# --- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", EVERY_SPACE)
def test_a_run_is_trained_and_evaluated_by_the_text(text: str, upright: Call) -> None:
    code, _, err = upright(
        *("train", "KL(rob, Wo-2)", "--data", "npz:colours.npz", "--space", text),
        *("--model", "tiny", "--steps", 4, "--batch", 8, "--out", "run"),
    )
    assert (code, err) == (0, "")
    recipe = json.loads(Path("run/run.json").read_text())["recipe"]
    assert recipe["space"] == str(Space.of(text))
    data = colours(count=36)
    save_as_npz(data, Path("others.npz"))
    code, out, err = upright(
        *("evaluate", "run", "--data", "npz:others.npz", "--space", text, "--attack", "wo-3"),
        *("--details", "--json", "result.json", "--record", "records.jsonl"),
    )
    assert (code, err) == (0, "")
    assert Space.of(text).in_words() in out
    result = json.loads(Path("result.json").read_text())
    direct = evaluate(
        load_network(Path("run")), (data.images, data.labels), attacks=["wo-3"], space=text
    ).attacks["wo-3"]
    assert result["space"] == str(Space.of(text))
    assert result["attacks"]["wo-3"]["accuracy"] == direct.accuracy
    assert direct.worst_pose is not None
    chain = direct.worst_pose.chain
    assert result["details"]["attacks"]["wo-3"]["worst_pose"] == {
        name: getattr(direct.worst_pose, name).tolist() for name in chain.column_of
    }
    record = json.loads(Path("records.jsonl").read_text())
    assert record["evaluation"]["space"] == record["recipe"]["space"] == str(Space.of(text))


@pytest.mark.parametrize("text", SEVERAL)
def test_the_objective_is_trained_under_s_pgd_and_a_grid(text: str, tmp_path: Path) -> None:
    for number, attack in enumerate(("S-PGD", "grid-" + "x".join(["2"] * _axes(text)))):
        run = tiny_run(
            tmp_path / str(number), objective=f"AT(rob, {attack})", space=Space.of(text), steps=2
        )
        assert run.finished


def _axes(text: str) -> int:
    return len(Space.of(text).axes)


@pytest.mark.parametrize("text", SEVERAL)
def test_a_resumed_run_ends_where_the_unbroken_run_ends(
    text: str, tmp_path: Path, mishaps: Mishaps
) -> None:
    tiny_run(tmp_path / "whole", space=Space.of(text), steps=6)
    mishaps[5] = fail
    with pytest.raises(ZeroDivisionError):
        tiny_run(tmp_path / "broken", space=Space.of(text), steps=6)
    mishaps.clear()
    tiny_run(tmp_path / "broken", space=Space.of(text), steps=6, resume=True)
    assert newest(tmp_path / "broken") == newest(tmp_path / "whole")
