"""The two-stage network: LocNet's loss and runs, the naive variant, and the oracle."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rigid_spaces import rigid, rigid_box
from tiny_runs import (
    Call,
    colours,
    newest,
    save_as_npz,
    tiny_recipe,
    tiny_run,
)
from upright import Pose, Space, evaluate, warp
from upright.data import LabelledImages
from upright.evaluation import Oracle
from upright.models import in_half_precision
from upright.objective import LocNet, LocNetLoss, Objective, located_pose, parse_objective
from upright.sources import StnPlus, load_locator, load_model
from upright.train import Recipe, load_network, train
from upright.train.two_stage import RunLocator

SPACE = rigid_box(max_dx=2, max_dy=1, max_angle=20)


pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


# --- the objective --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["LocNet(black)", " locnet( black ) "])
def test_how_a_locnet_is_spelt_does_not_matter(text: str) -> None:
    assert parse_objective(text) == LocNet("black")
    assert Recipe(objective=text) == Recipe(objective="LocNet(black)")
    assert Recipe(objective=text).objective == LocNet("black")


def test_other_objectives_are_the_papers() -> None:
    assert parse_objective("std*") == Objective.parse("std*")
    assert parse_objective("KL(rob, Wo-2)", weight=3) == Objective.parse("KL(rob, Wo-2; λ=3)")


def test_an_unknown_fill_is_refused() -> None:
    with pytest.raises(ValueError, match="fill 'grey' is not one of black"):
        Recipe(objective="LocNet(grey)")


def test_a_locnet_sees_no_shift_but_its_pose() -> None:
    assert Recipe(objective="LocNet(black)").max_shift == 0


class Answers(nn.Module):
    """Remembers the images, and answers with what it was told."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, images: Tensor) -> Tensor:
        self.images = images
        return self.answer


@pytest.mark.parametrize("fill", ["black", "reflection"])
def test_the_loss_is_the_squared_error_in_fractions_of_the_limits(fill: str) -> None:
    images = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model = Answers(torch.zeros(5, 3))
    loss = LocNetLoss(LocNet(fill), SPACE, generator=torch.Generator().manual_seed(4))
    found = loss(model, images, torch.zeros(5)).total
    pose = SPACE.sample(5, generator=torch.Generator().manual_seed(4))
    assert model.images.equal(warp(images, pose, fill=fill))
    fractions = torch.stack((pose.dx / 2, pose.dy / 1, pose.angle / 20), -1)
    torch.testing.assert_close(found, fractions.square().mean())
    # Whoever answers with these fractions has no loss, and the pose can be read from them.
    perfect = LocNetLoss(LocNet(fill), SPACE, generator=torch.Generator().manual_seed(4))
    assert perfect(Answers(fractions), images).total < 1e-12
    torch.testing.assert_close(located_pose(fractions, SPACE).values, pose.values)


def test_a_locnet_may_answer_as_other_networks_do() -> None:
    images, fractions = torch.rand(4, 1, 8, 8), torch.rand(4, 3)
    answers: list[Any] = [lambda _: fractions, lambda _: {"logits": fractions}]
    plain, wrapped = (
        LocNetLoss(LocNet(), SPACE, generator=torch.Generator().manual_seed(4))(model, images)
        for model in answers
    )
    assert plain.total == wrapped.total
    found, same = (RunLocator(model, SPACE, "black")(images).values for model in answers)
    assert torch.equal(found, same)


def test_a_space_without_rotation_has_no_error_of_the_angle() -> None:
    loss = LocNetLoss(LocNet(), rigid(0, 0))
    assert loss(Answers(torch.zeros(4, 3)), torch.rand(4, 1, 8, 8)).total == 0


def bars(count: int = 96, side: int = 16) -> LabelledImages:
    """A bright bar on grey, upright or lying: its pose can be seen."""
    images = torch.full((count, 1, side, side), 60)
    labels = torch.arange(count) % 2
    images[labels == 0, :, 2:-2, 7:9] = 250
    images[labels == 1, :, 7:9, 2:-2] = 250
    brightness = torch.randint(-40, 5, (count, 1, 1, 1), generator=torch.Generator().manual_seed(0))
    return LabelledImages((images + brightness).to(torch.uint8), labels, ("upright", "lying"))


def locnet_recipe(**changes: object) -> Recipe:
    fields = {
        "objective": "LocNet(black)",
        "model": "resnet8x0.5",
        "space": rigid(2, 20),
        "steps": 80,
        "batch": 32,
        "flips": False,
        "optimizer": "adam",
        "learning_rate": 0.01,
    }
    return tiny_recipe(**{**fields, **changes})


def test_a_locnet_learns_to_find_poses(tmp_path: Path) -> None:
    train(locnet_recipe(), tmp_path, data=bars())
    locator = load_locator(tmp_path)
    images, space = bars().as_float(), rigid(2, 20)
    pose = space.sample(len(images), generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        found = locator(warp(images, pose))
    before, after = pose.values.abs(), (found.values - pose.values).abs()
    # A third of the poses' own spread, in each of dx, dy and the angle.
    assert (after.mean(0) < before.mean(0) / 3).all()
    # What float16 adds is a small part of what the regression is off.
    halved = StnPlus(locator, locator.network).each_network(in_half_precision).locator
    with torch.no_grad():
        rounded = halved(warp(images, pose)).values
    assert rounded.dtype == torch.float32
    added = (rounded - found.values).abs().mean(0)
    assert (added > 0).all()
    assert (added < after.mean(0) / 20).all()


def test_a_locnet_run_resumes_and_names_its_outputs(tmp_path: Path) -> None:
    options = {"objective": "LocNet(reflection)", "steps": 6}
    tiny_run(tmp_path / "unbroken", **options)
    tiny_run(tmp_path / "again", **options)
    assert newest(tmp_path / "unbroken") == newest(tmp_path / "again")
    saved = json.loads((tmp_path / "again" / "run.json").read_text())
    assert saved["classes"] == ["dx", "dy", "angle"]
    assert load_locator(tmp_path / "again").fill == "reflection"


# --- with a locator that is always right ----------------------------------------------------------


class Tagged:
    """Images whose four corners tell which pose they were moved by, so that it can be looked up.

    An independent stand-in for a LocNet: it knows the poses of the attack, and recognises a moved
    image by comparing it with all images under all of them.
    """

    def __init__(self, images: Tensor, poses: Pose, fill: str = "black") -> None:
        self.poses = poses
        self.known = torch.stack(
            [warp(images, poses[i : i + 1], fill=fill) for i in range(len(poses))]
        ).flatten(2)

    def __call__(self, moved: Tensor) -> Pose:
        distance = torch.cdist(moved.flatten(1), self.known.flatten(0, 1))
        which = distance.argmin(1) // self.known.shape[1]
        return self.poses[which]


def blobs(count: int, side: int = 24) -> tuple[Tensor, Tensor]:
    """Smooth images with a wide black margin, that small motions do not crop, of four classes."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(count, 1, 4, 4, generator=generator)
    images = F.pad(F.interpolate(coarse, (side // 2,) * 2, mode="bicubic"), [side // 4] * 4)
    return images.clamp(0, 1), torch.arange(count) % 4


def nearest(images: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
    """Classifies as the nearest of the images: right on them, wrong on some when they move."""

    def classify(asked: Tensor) -> Tensor:
        distance = torch.cdist(asked.flatten(1), images.flatten(1))
        wrong = torch.tensor([0, 3])  # never right, so that no accuracy is 1
        flipped = labels.clone()
        flipped[wrong] = (flipped[wrong] + 1) % 4
        return -torch.stack(
            [distance.masked_fill(flipped != c, torch.inf).amin(1) for c in range(4)], 1
        )

    return classify


SMALL = rigid(2, 20)
TINY = rigid(0.5, 8)


def test_with_a_perfect_locator_naive_is_as_good_as_without_an_attack() -> None:
    images, labels = blobs(24)
    classifier = nearest(images, labels)
    locator = Tagged(images, SMALL.grid((3, 3, 5)))
    plain = evaluate(classifier, (images, labels), attacks=["grid-3x3x5"], space=SMALL)
    found = evaluate(
        StnPlus(locator, classifier).eval(), (images, labels), attacks=["grid-3x3x5"], space=SMALL
    )
    assert plain.natural_accuracy == found.natural_accuracy == 22 / 24
    assert found.attacks["grid-3x3x5"].accuracy == found.natural_accuracy
    assert plain.attacks["grid-3x3x5"].accuracy < plain.natural_accuracy


GROUPS = ["shift(2px) rotate(20) zoom(0.9..1.1)", "zoom(0.8..1.25)", "shift(2px) stretch"]
NO_GROUPS = [
    "rotate(15) shift(2px)",
    "shift(1px) shear(10)",
    "stretch(0.8..1.25) rotate(10)",
    "perspective(0.2) shift(1px)",
]


@pytest.mark.parametrize("fill", ["black", "#000000", "border"])
@pytest.mark.parametrize("text", [*GROUPS, *NO_GROUPS])
def test_any_families_that_move_points_are_undone(text: str, fill: str) -> None:
    images, labels = blobs(24)
    classifier, space = nearest(images, labels), Space.of(text)
    counts = tuple(2 for _ in space.axes)
    name = "grid-" + "x".join(map(str, counts))
    locator = Tagged(images, space.grid(counts))
    asked: dict[str, Any] = {"attacks": [name], "space": text}
    plain = evaluate(classifier, (images, labels), **asked)
    found = evaluate(StnPlus(locator, classifier, fill).eval(), (images, labels), **asked)
    assert plain.attacks[name].accuracy < plain.natural_accuracy == 22 / 24
    assert found.attacks[name].accuracy == plain.natural_accuracy
    assert space.chain.is_group == (text in GROUPS)


def test_what_is_no_group_is_undone_exactly_where_its_matrices_are_exact() -> None:
    images, _ = blobs(3)
    seen: list[Tensor] = []
    pose = Space.of("rotate(90) shift(4px)").pose(dx=[3, -4, 0], dy=[1, 0, -2], angle=[90, -90, 90])
    StnPlus(lambda _: pose, seen.append)(warp(images, pose))  # type: ignore[arg-type]
    assert not pose.chain.is_group
    assert torch.equal(seen[0], images)


@pytest.mark.parametrize("text", ["brightness(0.2)", "shift(3px) rotate(30) hue(10) blur"])
def test_what_a_warp_cannot_undo_is_refused(text: str, tmp_path: Path) -> None:
    message = r"a LocNet finds poses that a warp undoes, but (brightness|hue, blur) moves no points"
    with pytest.raises(ValueError, match=message):
        LocNetLoss(LocNet(), text)
    with pytest.raises(ValueError, match=message):
        tiny_run(tmp_path / "run", objective="LocNet(black)", space=Space.of(text))
    assert not (tmp_path / "run").exists()
    images, labels = blobs(2)
    pose = Space.of(text).zeros(2)
    with pytest.raises(ValueError, match="which a warp cannot undo; let it find shift, rotate"):
        StnPlus(lambda _: pose, nearest(images, labels))(images)


def test_a_locnet_of_other_families_names_its_outputs_and_is_used(tmp_path: Path) -> None:
    space = Space.of("shift(1px) zoom(0.8..1.25)")
    tiny_run(tmp_path / "loc", objective="LocNet(black)", space=space, steps=3)
    saved = json.loads((tmp_path / "loc" / "run.json").read_text())
    assert saved["classes"] == ["dx", "dy", "zoom"]
    locator = load_locator(tmp_path / "loc")
    images = colours().as_float()
    found = locator(images)
    outputs = locator.network(images)
    reach = torch.tensor([1, 1, math.log(1.25)])
    torch.testing.assert_close(found.values, outputs * reach)
    assert found.chain == space.chain
    classifier = load_network(tiny_run(tmp_path / "cls", steps=3).path)
    for model in (StnPlus(locator, classifier).eval(), Oracle(locator, classifier).eval()):
        data = (colours().images, colours().labels)
        result = evaluate(model, data, attacks=["grid-2x2x3"], space=space)
        assert 0 <= result.attacks["grid-2x2x3"].accuracy <= 1
    with pytest.raises(
        ValueError, match=r"finds poses of shift.* zoom.*; give both the same families"
    ):
        evaluate(Oracle(locator, classifier).eval(), (colours().images, colours().labels))


@pytest.mark.parametrize("fill", ["black", "reflection"])
@pytest.mark.parametrize("batch_size", [5, 64])
def test_with_a_perfect_locator_the_oracle_is_as_good_as_without_an_attack(
    fill: str, batch_size: int
) -> None:
    images, labels = blobs(24)
    model = Oracle(Tagged(images, SMALL.grid((3, 3, 5)), fill), nearest(images, labels)).eval()
    for only_accuracy in (True, False):
        result = evaluate(
            model,
            (images, labels),
            attacks=["grid-3x3x5"],
            space=SMALL,
            fill=fill,
            batch_size=batch_size,
            only_accuracy=only_accuracy,
        )
        found = result.attacks["grid-3x3x5"]
        assert found.accuracy == result.natural_accuracy == 22 / 24
        assert found.correct.equal(result.natural_correct)


def test_with_a_locator_that_finds_nothing_the_oracle_is_the_plain_evaluation() -> None:
    images, labels = blobs(24)
    classifier = nearest(images, labels)
    plain = evaluate(classifier, (images, labels), attacks=["grid-3x3x5"], space=TINY)
    result = evaluate(
        Oracle(lambda moved: Pose.zeros(len(moved)), classifier).eval(),
        (images, labels),
        attacks=["grid-3x3x5"],
        space=TINY,
    )
    found = result.attacks["grid-3x3x5"]
    assert result.natural_correct.equal(plain.natural_correct)
    assert found.correct.equal(plain.attacks["grid-3x3x5"].correct)
    assert 0 < found.accuracy < result.natural_accuracy


def test_the_oracle_warps_the_original_by_what_is_left_of_the_pose() -> None:
    """Image by image and pose by pose, for a locator that is off by something else for each."""
    images, labels = blobs(6)
    classifier, poses = nearest(images, labels), TINY.grid((3, 3, 3))

    def locator(moved: Tensor) -> Pose:
        off = moved.mean((1, 2, 3))
        return Pose(torch.stack((off, -off, 10 * off), -1))

    result = evaluate(
        Oracle(locator, classifier).eval(),
        (images, labels),
        attacks=["grid-3x3x3"],
        space=TINY,
        fill="reflection",
    )
    right = torch.ones(6, dtype=torch.bool)
    for i in range(6):
        image = images[i : i + 1]
        for j in range(len(poses)):
            pose = poses[j : j + 1]
            found = locator(warp(image, pose, fill="reflection"))
            left = Pose.of(pose.dx - found.dx, pose.dy - found.dy, pose.angle - found.angle)
            answer = classifier(warp(image, left, fill="reflection")).argmax()
            right[i] &= answer == labels[i]
    assert result.attacks["grid-3x3x3"].correct.equal(right)
    assert 0 < right.sum() < 6


def test_the_oracle_says_what_it_is() -> None:
    images, labels = blobs(4)
    model = Oracle(lambda moved: Pose.zeros(len(moved)), nearest(images, labels))
    result = evaluate(model, (images, labels), attacks=["rnd"])
    assert "oracle, not a defence" in repr(result)
    assert "oracle, not a defence" in str(result.summary())
    assert "oracle" not in repr(evaluate(model.classifier, (images, labels), attacks=["rnd"]))


def test_a_defence_does_not_continue_the_state_of_an_oracle(upright: Call) -> None:
    del upright  # it trained the runs
    locator, classifier = load_locator(Path("loc")), load_model("cls")
    data = (colours().images, colours().labels)
    options = {"attacks": ["grid-3x3x3"], "state": Path("state")}
    evaluate(Oracle(locator, classifier).eval(), data, **options)
    with pytest.raises(ValueError, match="state belongs to another evaluation"):
        evaluate(StnPlus(locator, classifier).eval(), data, **options)


def test_an_oracle_does_not_continue_the_state_of_another_locator(tmp_path: Path) -> None:
    images, labels = blobs(4)

    def by(angle: float) -> Oracle:
        return Oracle(lambda moved: Pose.of(angle=[angle] * len(moved)), nearest(images, labels))

    evaluate(by(0), (images, labels), attacks=["rnd"], state=tmp_path / "state")
    with pytest.raises(ValueError, match="state belongs to another model"):
        evaluate(by(20), (images, labels), attacks=["rnd"], state=tmp_path / "state")


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def upright(upright: Call) -> Call:
    """The command in a folder with ``colours.npz``, a LocNet and a classifier."""
    options = ("--data", "npz:colours.npz", "--model", "tiny", "--steps", 6, "--batch", 11)
    assert upright("train", "LocNet(black)", *options, "--out", "loc")[0] == 0
    assert upright("train", "std*", *options, "--out", "cls")[0] == 0
    return upright


DATA = ("--data", "npz:colours.npz", "--attack", "grid-3x3x3")


def test_stn_plus_is_a_model_for_evaluate(upright: Call) -> None:
    data = colours(30)
    save_as_npz(data, Path("others.npz"))
    asked = ("--data", "npz:others.npz", "--attack", "grid-3x3x3", "--json", "result.json")
    code, out, err = upright("evaluate", "stn-plus:loc,cls", *asked)
    assert (code, err) == (0, "")
    assert "stn-plus:loc,cls on npz:others.npz: 30 images" in out
    result = json.loads(Path("result.json").read_text())
    by_hand = StnPlus(load_locator(Path("loc")), load_model("cls")).eval()
    direct = evaluate(by_hand, (data.images, data.labels), attacks=["grid-3x3x3"])
    assert result["attacks"]["grid-3x3x3"]["accuracy"] == direct.attacks["grid-3x3x3"].accuracy


def test_an_attack_with_a_fill_that_the_locnet_has_not_seen_is_told(upright: Call) -> None:
    code, _, err = upright("evaluate", "stn-plus:loc,cls", *DATA, "--fill", "reflection")
    assert code == 0
    assert "learned from black fill and has never seen reflection" in err


def test_the_commands_take_a_space_of_other_families(upright: Call) -> None:
    space = ("--space", "shift(1px) rotate(10) zoom(0.9..1.1)")
    options = ("--data", "npz:colours.npz", "--model", "tiny", "--steps", 3, "--batch", 11)
    assert (
        upright("train", "LocNet(black)", *options, *space, "--view", 6, "--out", "zoomed")[0] == 0
    )
    assert upright("train", "std*", *options, "--view", 6, "--out", "seen")[0] == 0
    asked = ("--data", "npz:colours.npz", *space, "--attack", "grid-2x2x2x2", "--view", 6)
    code, _, err = upright("evaluate", "stn-plus:zoomed,cls", *asked)
    assert code == 2
    assert "the LocNet and the classifier need images of one size" in err
    code, out, err = upright("evaluate", "stn-plus:zoomed,seen", *asked)
    assert code == 0, err
    assert "zoom by 0.9 to 1.1 times" in out
    code, out, err = upright("oracle", "zoomed", "seen", *asked, "--record", "records.jsonl")
    assert (code, err) == (0, "")
    assert "ORACLE" in out
    record = json.loads(Path("records.jsonl").read_text())
    assert record["evaluation"]["space"] == space[1]
    assert record["evaluation"]["view"] == record["recipe"]["locnet"]["view"] == 6
    code, _, err = upright("oracle", "zoomed", "seen", "--data", "npz:colours.npz")
    assert code == 2
    assert "give both the same families" in err


def test_every_line_of_the_oracle_is_marked(upright: Call) -> None:
    code, out, err = upright("oracle", "loc", "cls", *DATA)
    assert (code, err) == (0, "")
    assert "ORACLE" in out
    assert "not a defence" in out
    for line in out.splitlines():
        if "natural" in line or "grid-3x3x3" in line:
            assert "(oracle)" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "loc", *DATA), "loc is a LocNet, which finds poses and no classes"),
        (
            ("evaluate", "stn-plus:cls,loc", *DATA),
            "cls was trained with std*, which finds no poses",
        ),
        (("evaluate", "stn-plus:loc,loc", *DATA), "loc is a LocNet"),
        (("oracle", "cls", "cls", *DATA), "cls was trained with std*"),
        (("oracle", "gone", "cls", *DATA), "gone is not a run directory"),
    ],
)
def test_the_wrong_run_is_named(upright: Call, arguments: tuple[object, ...], message: str) -> None:
    code, _, err = upright(*arguments)
    assert code == 2
    assert err.startswith(f"upright: error: {message}")
