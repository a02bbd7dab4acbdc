"""What counts as right: among the first k classes, image by image, class by class, as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from bar_images import bars, trained_network
from geometry_reference import scipy_warp
from rigid_spaces import rigid
from upright import (
    Attack,
    AttackResult,
    Evaluation,
    GridSearch,
    RandomSearch,
    RefiningSearch,
    SpatialPGD,
    evaluate,
)
from upright.attacks import WorstCase
from upright.evaluation.score import is_fooled, loss_of, severity
from upright.evaluation.state import load_state, save_state

COUNT = 40
IMAGES, LABELS = bars(COUNT, seed=2)
SPACE = rigid(1, 25)
GRID = GridSearch((1, 3, 5))
EVERY: list[Attack] = [
    GRID,
    GridSearch((2, 2, 2)),
    RandomSearch(2),
    SpatialPGD(steps=2),
    RefiningSearch(17),
]


class Rounded(Attack):
    """A random search that rounds its scores, as a user's own may."""

    def __init__(self, tries: int) -> None:
        self.search_ = RandomSearch(tries)

    def __str__(self) -> str:
        return "rounded"

    @property
    def passes_per_image(self) -> int:
        return self.search_.passes_per_image

    def search(self, *args: Any, **options: Any) -> WorstCase:
        found = self.search_.search(*args, **options)
        return WorstCase(found.pose, found.score.float(), found.forward_passes)


def measure(*attacks: Attack, **options: Any) -> Evaluation:
    options = {"attacks": attacks or EVERY, "space": SPACE} | options
    return evaluate(trained_network(), (IMAGES, LABELS), **options)


def order(image: Any) -> list[int]:
    """All classes, the one with the largest logit first."""
    logits = trained_network()(torch.as_tensor(image)[None])[0].detach().numpy()
    return np.argsort(-logits, kind="stable").tolist()


class TestTop:
    @pytest.mark.parametrize("top", [1, 2, 3])
    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_brute_force_agrees(self, top: int, only_accuracy: bool) -> None:
        """An image is right under an attack only if it is so at every pose."""
        poses = SPACE.grid(GRID.counts).values.tolist()
        first = [order(image)[:top] for image in IMAGES]
        found = measure(GRID, top=top, only_accuracy=only_accuracy)
        natural = [label in few for label, few in zip(LABELS.tolist(), first, strict=True)]
        assert found.natural_correct.tolist() == natural
        for i, label in enumerate(LABELS.tolist()):
            moved = (scipy_warp(IMAGES[i].numpy(), *pose) for pose in poses)
            assert found.attacks[str(GRID)].correct[i] == all(
                label in order(image)[:top] for image in moved
            )

    def test_accuracies_rise_with_k_and_differ(self) -> None:
        grid = [measure(GRID, top=top).attacks[str(GRID)].accuracy for top in (1, 2, 3)]
        assert grid == sorted(grid)
        assert len(set(grid)) == 3

    def test_of_equal_logits_the_first_comes_first(self) -> None:
        logits, labels = torch.tensor([[1.0, 2.0, 2.0, 2.0]]).expand(4, 4), torch.arange(4)
        right = [(~is_fooled(severity(logits, labels, top))).tolist() for top in (1, 2, 3)]
        assert right[0] == [False, True, False, False]
        assert right[1] == [False, True, True, False]
        assert right[2] == [False, True, True, True]
        assert torch.equal(logits.argmax(1) == labels, torch.tensor(right[0]))

    @pytest.mark.parametrize("scale", [0.1, 3.0, 30.0, 1e5])
    def test_the_loss_is_the_cross_entropy_and_its_order_that_of_the_severity(
        self, scale: float
    ) -> None:
        draws = torch.Generator().manual_seed(0)
        logits = scale * torch.randn(500, 4, generator=draws, dtype=torch.float64)
        labels = torch.randint(4, (500,), generator=draws)
        values, losses = severity(logits, labels), F.cross_entropy(logits, labels, reduction="none")
        torch.testing.assert_close(loss_of(values), losses, rtol=1e-9, atol=1e-15)
        fooled = is_fooled(values)
        assert torch.equal(fooled, logits.argmax(1) != labels)
        for some in (fooled, ~fooled):
            in_order = values[some].argsort()
            assert (losses[some][in_order].diff() >= -1e-15).all()
        assert values.isfinite().all()

    def test_right_among_one_is_the_answer_also_where_logits_are_equal(self) -> None:
        draws = torch.Generator().manual_seed(0)
        logits = torch.randint(3, (500, 5), generator=draws).float()
        labels = torch.randint(5, (500,), generator=draws)
        before = [
            sum(other > own or (other == own and place < label) for place, other in enumerate(row))
            for row, label in zip(logits.tolist(), labels.tolist(), strict=True)
            for own in [row[label]]
        ]
        assert (~is_fooled(severity(logits, labels))).tolist() == [count < 1 for count in before]
        assert (~is_fooled(severity(logits, labels, 2))).tolist() == [count < 2 for count in before]

    def test_one_class_is_always_right(self) -> None:
        values = severity(torch.zeros(3, 1), torch.zeros(3, dtype=torch.long))
        assert not is_fooled(values).any()
        assert not loss_of(values).any()

    def test_a_right_answer_of_any_loss_ranks_below_a_wrong_one(self) -> None:
        far = torch.tensor([[0.0, 1e6, -1e6], [0.0, 1e6, -1.0]])
        values = severity(far, torch.tensor([0, 2]), top=2)
        assert is_fooled(values).tolist() == [False, True]
        assert loss_of(values)[1] == 1e6 + 1

    @pytest.mark.parametrize(
        ("top", "message"),
        [(0, "top must be at least 1"), (4, "below the 4 outputs of the model, but is 4")],
    )
    def test_every_or_no_answer_cannot_be_right(self, top: int, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            measure(top=top)

    def test_it_is_said_beside_the_figures(self) -> None:
        found = measure(GRID, top=2)
        assert repr(found).startswith("Evaluation(40 images, top-2: natural ")
        assert found.summary()["top"] == 2
        assert "top" not in measure(GRID).summary()


class TestClasses:
    def test_accuracies_of_each_class_are_those_of_its_images_alone(self) -> None:
        for each in measure().per_class():
            its = each.label == LABELS
            alone = evaluate(
                trained_network(), (IMAGES[its], LABELS[its]), attacks=[GRID], space=SPACE
            )
            assert each.images == int(its.sum())
            assert each.natural == alone.natural_accuracy
            assert each.attacks[str(GRID)] == alone.attacks[str(GRID)].accuracy

    def test_a_class_without_images_is_left_out(self) -> None:
        some = LABELS != 2
        found = evaluate(trained_network(), (IMAGES[some], LABELS[some]), attacks=[])
        assert [each.label for each in found.per_class()] == [0, 1, 3]

    @pytest.mark.parametrize("attack", EVERY, ids=str)
    def test_the_class_at_the_worst_pose_is_what_the_model_says_there(self, attack: Attack) -> None:
        result = measure(attack).attacks[str(attack)]
        assert result.worst_pose is not None
        assert result.worst_class is not None
        for i, pose in enumerate(result.worst_pose.values.tolist()):
            assert result.worst_class[i] == order(scipy_warp(IMAGES[i].numpy(), *pose))[0]
        assert torch.equal(result.worst_class == LABELS, result.correct)

    @pytest.mark.parametrize("include_identity", [False, True])
    def test_it_costs_no_pass_and_is_not_given_where_accuracy_is_all(
        self, include_identity: bool
    ) -> None:
        asked = [0]

        def model(images: Tensor) -> Tensor:
            asked[0] += len(images)
            logits: Tensor = trained_network()(images)
            return logits

        attack = SpatialPGD(steps=2)
        options: dict[str, Any] = {"attacks": [attack], "include_identity": include_identity}
        for only_accuracy in (False, True):
            asked[0] = 0
            found = evaluate(model, (IMAGES, LABELS), only_accuracy=only_accuracy, **options)
            looks, natural = min(64, COUNT) + 16, COUNT
            assert asked == [looks + natural + 3 * COUNT]
            assert found.attacks[str(attack)].forward_passes == 3 * COUNT
            result = found.attacks[str(attack)]
            told = (result.worst_pose, result.worst_loss, result.worst_class)
            assert [each is None for each in told] == 3 * [only_accuracy]

    def test_of_an_attack_with_scores_of_its_own_the_model_is_asked_once_more(self) -> None:
        plain, other = measure(RandomSearch(2)), measure(Rounded(2))
        found = other.attacks["rounded"]
        expected = plain.attacks["wo-2"].worst_class
        assert expected is not None
        assert found.forward_passes == 3 * COUNT
        assert found.worst_class is not None
        assert found.worst_class.dtype == expected.dtype
        for i, pose in enumerate(found.worst_pose.values.tolist()):
            assert found.worst_class[i] == order(scipy_warp(IMAGES[i].numpy(), *pose))[0]


class TestIdentity:
    def test_without_it_a_weak_search_can_be_above_natural_accuracy_and_says_so(self) -> None:
        model, data = wrong_as_it_is()
        found = evaluate(model, data, attacks=["wo-2", "s-pgd", "grid-3x3x1"])
        assert found.natural_accuracy == 0
        assert found.attacks["wo-2"].accuracy > 0
        notes = [note.split(":")[0] for note in found.notes]
        assert notes == ["wo-2 is above natural accuracy", "s-pgd is above natural accuracy"]
        assert str(found.summary()["note"]).count("unless the identity is included") == 2

    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_with_it_nothing_is_above_natural_accuracy(self, only_accuracy: bool) -> None:
        model, data = wrong_as_it_is()
        found = evaluate(
            model,
            data,
            attacks=["wo-2", "s-pgd", "grid-2x2x1"],
            include_identity=True,
            only_accuracy=only_accuracy,
        )
        assert [result.accuracy for result in found.attacks.values()] == [0, 0, 0]
        assert found.notes == ()

    @pytest.mark.parametrize("attack", EVERY, ids=str)
    def test_it_is_the_worse_of_the_search_and_the_image_as_it_is(self, attack: Attack) -> None:
        plain, found = measure(attack), measure(attack, include_identity=True)
        bare, result = plain.attacks[str(attack)], found.attacks[str(attack)]
        quick = measure(attack, include_identity=True, only_accuracy=True).attacks[str(attack)]
        assert torch.equal(result.correct, bare.correct & plain.natural_correct)
        assert torch.equal(quick.correct, result.correct)
        assert quick.forward_passes <= result.forward_passes == bare.forward_passes
        here = as_it_is_is_worse(plain, bare)
        assert result.worst_pose is not None
        assert bare.worst_pose is not None
        expected = torch.where(here[:, None], 0.0, bare.worst_pose.values)
        assert torch.equal(result.worst_pose.values, expected)
        losses = torch.where(here, plain.natural_loss, bare.worst_loss)
        assert torch.equal(result.worst_loss, losses)

    def test_some_image_is_worst_as_it_is(self) -> None:
        """Or the test above would show nothing."""
        plain = measure(RandomSearch(2))
        assert as_it_is_is_worse(plain, plain.attacks["wo-2"]).any()


def wrong_as_it_is() -> tuple[Any, tuple[Tensor, Tensor]]:
    """A model that is wrong about one bright pixel where it is, and right wherever it moves."""
    dots = torch.zeros(30, 1, 7, 7)
    dots[:, :, 3, 3] = 1

    def model(images: Tensor) -> Tensor:
        middle = images[:, 0, 3, 3]
        return 9 * torch.stack((middle - 0.9, 0.9 - middle), 1)

    return model, (dots, torch.ones(30, dtype=torch.int64))


def as_it_is_is_worse(found: Evaluation, result: AttackResult) -> Tensor:
    """Misclassified before correct, then by loss."""
    natural, worst = ~found.natural_correct, ~result.correct
    assert result.worst_loss is not None
    return (natural & ~worst) | ((natural == worst) & (found.natural_loss > result.worst_loss))


class TestStates:
    def test_by_default_a_state_asks_what_it_always_did(self, tmp_path: Path) -> None:
        measure(state=tmp_path / "state")
        question = {"attacks", "space", "only accuracy", "warp", "limit", "seed", "model"}
        metadata = read_question(tmp_path / "state")
        assert metadata.keys() == question

    @pytest.mark.parametrize(
        ("setting", "name"), [({"top": 2}, "top"), ({"include_identity": True}, "include identity")]
    )
    def test_another_rule_is_another_evaluation(
        self, tmp_path: Path, setting: dict[str, Any], name: str
    ) -> None:
        first, again = {}, setting
        for there in (tmp_path / "one", tmp_path / "other"):
            measure(state=there, **first)
            with pytest.raises(ValueError, match=rf"another evaluation \(other {name}\); remove"):
                measure(state=there, **again)
            first, again = again, first

    @pytest.mark.parametrize("older", [1, 2])
    def test_a_state_of_an_older_version_without_classes_is_continued(
        self, tmp_path: Path, older: int
    ) -> None:
        data, path = bars(1100, seed=4), tmp_path / "state"  # three chunks
        options: dict[str, Any] = {"attacks": [RandomSearch(2)], "space": SPACE}
        whole = evaluate(trained_network(), data, state=path, **options)
        state = load_state(path, read_question(path))
        starts = sorted(state.pieces)
        state.pieces = {at: state.pieces[at] for at in starts[:older]}
        for piece in state.pieces.values():
            del piece.arrays["wo-2/class"]
        save_state(path, state)
        for _ in range(2):  # the second time all of it is read
            found = evaluate(trained_network(), data, state=path, **options)
            assert torch.equal(found.attacks["wo-2"].correct, whole.attacks["wo-2"].correct)
            assert found.attacks["wo-2"].worst_class is None


def read_question(path: Path) -> dict[str, object]:
    with safe_open(path, "pt") as file:
        question: dict[str, object] = json.loads(file.metadata()["question"])
    return question
