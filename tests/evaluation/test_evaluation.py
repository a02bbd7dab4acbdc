"""The evaluation against one by brute force that shares no code with it, image by image."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor

from bar_images import HEIGHT, WIDTH, bars, trained_network
from geometry_reference import Array, Fill, scipy_warp
from rigid_spaces import rigid_box
from upright import (
    Attack,
    Evaluation,
    GridSearch,
    RandomSearch,
    RefiningSearch,
    SpatialPGD,
    evaluate,
)
from upright.intervals import wilson_interval

COUNT = 40
IMAGES, LABELS = bars(COUNT, seed=2)
LIMITS, COUNTS = (1.0, 0.5, 15.0), (3, 3, 7)
SPACE = rigid_box(max_dx=LIMITS[0], max_dy=LIMITS[1], max_angle=LIMITS[2])
GRID, NAME = GridSearch(COUNTS), "grid-3x3x7"

every_fill = pytest.mark.parametrize("fill", ["black", "reflection", "border"])


@dataclass
class BruteForce:
    """The paper's evaluation in plain loops, one image and one pose at a time."""

    natural: list[bool]
    fooled: npt.NDArray[np.bool_]
    loss: Array
    worst: list[tuple[float, ...]]
    worst_loss: list[float]


@cache
def brute_force(fill: Fill) -> BruteForce:
    axes = [np.linspace(-limit, limit, n) for limit, n in zip(LIMITS, COUNTS, strict=True)]
    poses = [(float(dx), float(dy), float(angle)) for dx, dy, angle in itertools.product(*axes)]
    shape = COUNT, len(poses)
    result = BruteForce([], np.zeros(shape, np.bool_), np.zeros(shape), [], [])
    for i, (image, label) in enumerate(zip(IMAGES.numpy(), LABELS.tolist(), strict=True)):
        result.natural.append(answer(image, label)[0])
        for j, (dx, dy, angle) in enumerate(poses):
            right, loss = answer(scipy_warp(image, dx, dy, angle, fill), label)
            result.fooled[i, j], result.loss[i, j] = not right, loss
        # The misclassified pose of highest loss, or the highest loss where none is misclassified.
        tried = result.fooled[i].nonzero()[0] if result.fooled[i].any() else np.arange(len(poses))
        worst = tried[result.loss[i, tried].argmax()]
        result.worst.append(poses[worst])
        result.worst_loss.append(result.loss[i, worst])
    return result


def answer(image: Array, label: int) -> tuple[bool, float]:
    """Whether the network is right, and its cross-entropy."""
    logits = trained_network()(torch.from_numpy(image)[None])[0].detach().numpy()
    loss = np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label]
    return int(logits.argmax()) == label, float(loss)


@cache
def measured(fill: Fill) -> Evaluation:
    return evaluate(trained_network(), (IMAGES, LABELS), attacks=[GRID], space=SPACE, fill=fill)


@every_fill
def test_the_network_has_learned_and_can_be_fooled(fill: Fill) -> None:
    assert np.mean(brute_force(fill).natural) > 0.9
    assert 0.1 < np.mean(brute_force(fill).fooled.any(1)) < 0.9


@every_fill
def test_brute_force_agrees_on_natural_accuracy(fill: Fill) -> None:
    assert measured(fill).natural_correct.tolist() == brute_force(fill).natural
    assert measured(fill).natural_accuracy == np.mean(brute_force(fill).natural)


@every_fill
def test_brute_force_agrees_on_which_poses_fool_which_images(fill: Fill) -> None:
    fooled = measured(fill).attacks[NAME].fooled
    assert fooled is not None
    assert np.array_equal(fooled.unpack().numpy(), brute_force(fill).fooled)
    assert fooled.bits.shape == (COUNT, 8)


@every_fill
def test_brute_force_agrees_on_worst_pose_and_loss_of_every_image(fill: Fill) -> None:
    result, expected = measured(fill).attacks[NAME], brute_force(fill)
    assert result.worst_pose is not None
    assert result.worst_loss is not None
    assert [tuple(pose) for pose in result.worst_pose.values.tolist()] == expected.worst
    np.testing.assert_allclose(result.worst_loss, expected.worst_loss, rtol=0, atol=1e-9)


@every_fill
def test_brute_force_agrees_on_accuracy(fill: Fill) -> None:
    result, fooled = measured(fill).attacks[NAME], brute_force(fill).fooled
    assert result.correct.tolist() == (~fooled.any(1)).tolist()
    assert result.accuracy == pytest.approx(1 - np.mean(fooled.any(1)))
    assert result.forward_passes == fooled.size


@every_fill
def test_accuracy_alone_is_the_same_in_fewer_passes(fill: Fill) -> None:
    data, fooled = (IMAGES, LABELS), brute_force(fill).fooled
    evaluation = evaluate(
        trained_network(), data, attacks=[GRID], space=SPACE, fill=fill, only_accuracy=True
    )
    result = evaluation.attacks[NAME]
    assert result.correct.tolist() == (~fooled.any(1)).tolist()
    assert result.forward_passes < 0.8 * fooled.size
    assert (result.worst_pose, result.worst_loss, result.fooled) == (None, None, None)


@pytest.mark.parametrize("only_accuracy", [False, True])
@pytest.mark.parametrize(("grid", "accuracy"), [("grid-2x2x1", 1), ("grid-3x3x1", 0)])
def test_an_image_misclassified_as_it_is_counts_only_where_that_pose_is_tried(
    grid: str, accuracy: float, only_accuracy: bool
) -> None:
    dot = F.pad(torch.ones(1, 1, 1, 1), [3] * 4)

    def dark_in_the_middle(images: Tensor) -> Tensor:
        middle = images[:, 0, 3, 3]
        return torch.stack((middle, 1 - middle), 1)

    evaluation = evaluate(
        lambda images: 5 * dark_in_the_middle(images),
        (dot, torch.tensor([1])),
        attacks=[grid],
        only_accuracy=only_accuracy,
    )
    assert evaluation.natural_accuracy == 0
    assert evaluation.attacks[grid].accuracy == accuracy


def test_limits_relative_to_the_image_are_resolved_by_its_size() -> None:
    relative = rigid_box(
        max_dx=LIMITS[0] / WIDTH, max_dy=LIMITS[1] / HEIGHT, max_angle=LIMITS[2], unit="image"
    )
    again = evaluate(trained_network(), (IMAGES, LABELS), attacks=[GRID], space=relative)
    fooled = again.attacks[NAME].fooled
    assert fooled is not None
    assert np.array_equal(fooled.unpack().numpy(), brute_force("black").fooled)


@pytest.mark.parametrize(
    "attack", [RandomSearch(6), SpatialPGD(steps=4, restarts=2), RefiningSearch(30)], ids=str
)
@pytest.mark.parametrize("count", [1, COUNT])
def test_other_attacks_report_what_the_model_says_at_their_worst_pose(
    attack: Attack, count: int
) -> None:
    data = IMAGES[:count], LABELS[:count]
    result = evaluate(trained_network(), data, attacks=[attack], space=SPACE).attacks[str(attack)]
    assert result.worst_pose is not None
    assert result.worst_loss is not None
    assert result.fooled is None
    assert result.forward_passes == attack.passes_per_image * count
    assert SPACE.contains(result.worst_pose).all()
    for i in range(count):
        dx, dy, angle = result.worst_pose.values[i].tolist()
        right, loss = answer(scipy_warp(IMAGES[i].numpy(), dx, dy, angle), int(LABELS[i]))
        assert result.correct[i] == right
        assert result.worst_loss[i].item() == pytest.approx(loss, abs=1e-9)


def test_spatial_pgd_climbs_on_the_networks_loss() -> None:
    losses = []
    for steps in (0, 20):
        attack = SpatialPGD(steps=steps, step_size=(0.1, 0.1, 2.0))
        evaluation = evaluate(trained_network(), (IMAGES, LABELS), attacks=[attack], space=SPACE)
        loss = evaluation.attacks[str(attack)].worst_loss
        assert loss is not None
        losses.append(loss.mean().item())
    assert losses[1] > 1.5 * losses[0]


def test_canvas_gives_the_model_images_with_a_black_frame() -> None:
    seen = set()

    def model(images: Tensor) -> Tensor:
        seen.add(tuple(images.shape[2:]))
        return images.mean((2, 3))

    evaluation = evaluate(model, (IMAGES, LABELS % 2), attacks=["wo-2", GRID], canvas=3)
    assert seen == {(HEIGHT + 6, WIDTH + 6)}
    framed = F.pad(IMAGES, [3] * 4), LABELS % 2
    directly = evaluate(model, framed, attacks=["wo-2", GRID])
    for name, result in evaluation.attacks.items():
        assert torch.equal(result.correct, directly.attacks[name].correct)


def test_without_attacks_only_the_natural_accuracy_is_measured() -> None:
    natural = evaluate(trained_network(), (IMAGES, LABELS), attacks=[])
    assert natural.attacks == {}
    expected = F.cross_entropy(trained_network()(IMAGES), LABELS, reduction="none")
    torch.testing.assert_close(natural.natural_loss, expected.detach())
    assert torch.equal(natural.labels, LABELS)


def test_the_model_and_the_data_are_left_as_they_were() -> None:
    before, network = IMAGES.clone(), trained_network()
    evaluate(network, (IMAGES, LABELS), attacks=["s-pgd", "wo-2"], space=SPACE)
    assert torch.equal(IMAGES, before)
    assert all(weight.grad is None and weight.requires_grad for weight in network.parameters())


def test_attacks_that_are_not_a_list_are_refused() -> None:
    with pytest.raises(ValueError, match=r"attacks must be a list, as in attacks=\['wo-3'\]"):
        evaluate(trained_network(), (IMAGES, LABELS), attacks="wo-3")


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 10), (10, 10), (1, 1), (37, 40), (9_123, 10_000)]
)
def test_interval_is_wilsons(successes: int, trials: int) -> None:
    expected = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    interval = wilson_interval(successes, trials)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_summary_is_json_with_the_figures() -> None:
    evaluation = measured("black")
    result, summary = evaluation.attacks[NAME], json.loads(json.dumps(evaluation.summary()))
    expected = stats.binomtest(int(result.correct.sum()), COUNT).proportion_ci(method="wilson")
    assert summary["images"] == COUNT
    assert summary["natural_accuracy"] == evaluation.natural_accuracy
    assert list(summary["attacks"]) == [NAME]
    assert summary["attacks"][NAME]["accuracy"] == result.accuracy
    assert summary["attacks"][NAME]["interval"] == pytest.approx([expected.low, expected.high])
    assert summary["attacks"][NAME]["forward_passes"] == COUNT * 63
    assert 0 <= summary["attacks"][NAME]["seconds"] <= summary["seconds"]
