"""A view: the model sees the middle of larger images, and real pixels come in from outside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from every_space import EVERY_SPACE, SEVERAL
from tiny_runs import (
    Call,
    colours,
    save_as_npz,
    tiny_run,
)
from upright import Pose, RegularizedLoss, Space, evaluate, warp
from upright.evaluation import Oracle
from upright.objective import LocNet, LocNetLoss
from upright.record_files import read
from upright.report.asked import unlike_the_paper
from upright.train import Recipe, load_network, train

COUNT, CLASSES, VIEW = 6, 4, 8
SIZES = [(16, 16), (13, 20), (8, 9), (8, 8)]


pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


def images(size: tuple[int, int] = (16, 16)) -> Tensor:
    return torch.rand(COUNT, 3, *size, generator=torch.Generator().manual_seed(0))


def labels() -> Tensor:
    return torch.arange(COUNT) % CLASSES


def middle(moved: Tensor) -> Tensor:
    """Cut the central square out, by hand."""
    top, left = (moved.shape[-2] - VIEW) // 2, (moved.shape[-1] - VIEW) // 2
    return moved[..., top : top + VIEW, left : left + VIEW]


class Seen(nn.Module):
    """A network for images of the view's size alone, which remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.linear = nn.Linear(3 * VIEW * VIEW, CLASSES)
        self.seen: list[Tensor] = []

    def forward(self, shown: Tensor) -> Tensor:
        self.seen.append(shown.detach())
        answer: Tensor = self.linear(shown.flatten(1))
        return answer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", EVERY_SPACE)
def test_natural_images_are_the_central_crop_bit_for_bit(text: str, size: tuple[int, int]) -> None:
    model = Seen().eval()
    asked: dict[str, Any] = {"attacks": ["wo-2"], "space": text, "only_accuracy": True}
    found = evaluate(model, (images(size), labels()), view=VIEW, **asked)
    assert {seen.shape[1:] for seen in model.seen} == {(3, VIEW, VIEW)}
    assert torch.equal(model.seen[0], middle(images(size)))
    cropped = evaluate(model, (middle(images(size)).contiguous(), labels()), **asked)
    assert found.natural_correct.equal(cropped.natural_correct)
    assert found.natural_loss.equal(cropped.natural_loss)


@pytest.mark.parametrize("size", SIZES)
def test_a_view_of_all_is_no_view(size: tuple[int, int]) -> None:
    data = (middle(images(size)).contiguous(), labels())
    asked: dict[str, Any] = {"attacks": ["grid-3x3x3", "wo-3", "s-pgd"]}
    whole, viewed = (evaluate(Seen().eval(), data, view=view, **asked) for view in (None, VIEW))
    for name, result in whole.attacks.items():
        other = viewed.attacks[name]
        assert result.worst_pose is not None
        assert other.worst_pose is not None
        assert result.worst_pose.values.equal(other.worst_pose.values)
        assert result.correct.equal(other.correct)


def test_poses_are_about_the_centre_of_the_view_and_bring_in_real_pixels() -> None:
    """Of an image whose middle lies at its own, a moved larger image is cut afterwards."""
    pose = Space.of("shift rotate zoom").pose(dx=2.5, dy=-1, angle=30, zoom=0.1)
    large = images((16, 16))
    seen = warp(large, pose, view=VIEW)
    torch.testing.assert_close(seen, middle(warp(large, pose)))
    black = warp(middle(large).contiguous(), pose)
    assert not torch.allclose(seen, black)
    assert (seen > 0).all()
    # Of an odd difference the view's own middle is what images turn about.
    odd, quarter = images((9, 9)), Pose.of(angle=90)
    assert torch.equal(warp(odd, quarter, view=VIEW), torch.rot90(middle(odd), 1, (-2, -1)))


@pytest.mark.parametrize("text", ["shift(25%)", "rotate(40)", "shift(1px, 2px) zoom"])
def test_the_worst_pose_is_that_of_the_moved_image_cut_by_hand(text: str) -> None:
    model = Seen().eval()
    box = Space.of(text).in_pixels(VIEW, VIEW)
    counts = tuple(3 for _ in box.axes)
    name = "grid-" + "x".join(map(str, counts))
    data = (images(), labels())
    found = evaluate(model, data, attacks=[name], space=text, view=VIEW).attacks[name]
    poses = box.grid(counts)
    right = torch.ones(COUNT, dtype=torch.bool)
    for place in range(len(poses)):
        moved = middle(warp(images(), poses[place : place + 1]))
        right &= model(moved).argmax(1) == labels()
    assert found.correct.equal(right)
    assert found.fooled is not None
    torch.testing.assert_close(found.fooled.poses.values, poses.values)


def test_a_percentage_is_of_the_view() -> None:
    asked: dict[str, Any] = {"attacks": ["grid-3x3"], "view": VIEW}
    part = evaluate(Seen().eval(), (images((13, 20)), labels()), space="shift(25%)", **asked)
    pixels = evaluate(Seen().eval(), (images((13, 20)), labels()), space="shift(2px)", **asked)
    one, other = (each.attacks["grid-3x3"].fooled for each in (part, pixels))
    assert one is not None
    assert other is not None
    assert one.poses.values.equal(other.poses.values)
    assert one.bits.equal(other.bits)


def test_a_view_may_be_larger_than_the_image_on_its_canvas() -> None:
    data = (images((6, 6)), labels())
    found = evaluate(Seen().eval(), data, attacks=["grid-3x3x3"], canvas=1, view=VIEW)
    plain = evaluate(Seen().eval(), (F.pad(data[0], [1] * 4), labels()), attacks=["grid-3x3x3"])
    assert found.attacks["grid-3x3x3"].correct.equal(plain.attacks["grid-3x3x3"].correct)


@pytest.mark.parametrize("view", [17, 100])
def test_a_view_that_does_not_fit_is_named(view: int) -> None:
    message = f"a view of {view} pixels does not lie in images of 16 x 16; give larger images"
    with pytest.raises(ValueError, match=message):
        evaluate(Seen().eval(), (images(), labels()), view=view)
    with pytest.raises(ValueError, match=message):
        RegularizedLoss("std*", view=view)(Seen(), images(), labels())
    with pytest.raises(ValueError, match="view must be at least 1"):
        evaluate(Seen().eval(), (images(), labels()), view=0)


def test_a_state_is_of_its_view(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"attacks": ["wo-2"], "state": tmp_path / "state"}
    model = Seen().eval()
    first = evaluate(model, (images(), labels()), view=VIEW, **asked)
    again = evaluate(model, (images(), labels()), view=VIEW, **asked)
    assert again.attacks["wo-2"].correct.equal(first.attacks["wo-2"].correct)
    for view in (None, VIEW - 1):
        with pytest.raises(ValueError, match=r"belongs to another evaluation \(other view\)"):
            evaluate(model, (images(), labels()), view=view, **asked)


# --- losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["std", "std*", "KL(rob, Wo-3; λ=1)", "L2(mix, S-PGD; λ=1)"])
@pytest.mark.parametrize("text", ["shift rotate", *SEVERAL])
def test_a_loss_shows_the_view_and_searches_in_it(text: str, objective: str) -> None:
    model = Seen()
    loss = RegularizedLoss(
        objective, text, view=VIEW, generator=torch.Generator().manual_seed(1), check=False
    )
    terms = loss(model, images(), labels())
    assert {seen.shape[1:] for seen in model.seen} == {(3, VIEW, VIEW)}
    shown = model.seen[-1]
    poses = list({id(each): each for each in terms.poses.values()}.values())
    originals = [middle(images())] if objective != "std*" else []
    moved = [warp(images(), pose, view=VIEW) for pose in poses]
    torch.testing.assert_close(shown, torch.cat([*originals, *moved]))
    if originals:
        assert shown[:COUNT].equal(originals[0])
    assert all(Space.of(text).in_pixels(VIEW, VIEW).contains(pose).all() for pose in poses)


def test_a_locnet_is_shown_the_view() -> None:
    model = Seen()
    space = Space.of("shift(25%) rotate zoom")
    loss = LocNetLoss(LocNet(), space, view=VIEW, generator=torch.Generator().manual_seed(3))
    loss(model, images())
    box = space.in_pixels(VIEW, VIEW)
    pose = box.sample(COUNT, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(model.seen[0], middle(warp(images(), pose)))


def test_an_oracle_is_shown_the_view() -> None:
    model = Seen().eval()
    oracle = Oracle(lambda moved: Pose.zeros(len(moved)), model).eval()
    asked: dict[str, Any] = {"attacks": ["wo-3"], "view": VIEW}
    found = evaluate(oracle, (images(), labels()), **asked)
    plain = evaluate(model, (images(), labels()), **asked)
    assert found.attacks["wo-3"].correct.equal(plain.attacks["wo-3"].correct)


# --- runs ----------------------------------------------------------------------------------------


def test_a_run_with_a_view_is_that_of_the_cropped_images_where_nothing_moves(
    tmp_path: Path,
) -> None:
    """Cut before or behind a warp that does nothing: the same weights, bit for bit."""
    still = {"objective": "AT(mix, rnd)", "space": Space.of("shift(0px) rotate(0)"), "steps": 4}
    large = colours(side=14)
    small = type(large)(middle(large.images).contiguous(), large.labels, large.classes)
    recipe = tiny_run(tmp_path / "any", **still).recipe
    whole = train(recipe, tmp_path / "cropped", data=small)
    seen = train(
        Recipe.from_json({**recipe.as_json(), "view": VIEW}), tmp_path / "seen", data=large
    )
    pairs = zip(whole.model.parameters(), seen.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_code_of_ones_own_is_asked_about_the_view(upright: Call) -> None:
    Path("net.py").write_text(
        "from torch import nn\n"
        "def make(classes):\n"
        f"    return nn.Sequential(nn.Flatten(), nn.Linear(3 * {VIEW} * {VIEW}, classes))\n"
    )
    save_as_npz(colours(side=14), Path("large.npz"))
    command = ("train", "KL(rob, Wo-2)", "--data", "npz:large.npz", "--model", "net.py:make")
    code, _, err = upright(*command, "--view", VIEW, "--steps", 3, "--batch", 8, "--out", "run")
    assert (code, err) == (0, "")
    # A run is evaluated as it was trained: the network takes nothing else.
    save_as_npz(colours(count=36, side=14), Path("others.npz"))
    code, _, err = upright(
        *("evaluate", "run", "--data", "npz:others.npz", "--attack", "wo-2"),
        *("--json", "result.json", "--record", "records.jsonl"),
    )
    assert (code, err) == (0, "")
    (record,) = read("records.jsonl").records
    assert record.evaluation["view"] == record.recipe["view"] == VIEW
    assert f"view of {VIEW} px" in unlike_the_paper(record)
    assert json.loads(Path("result.json").read_text())["options"]["view"] == VIEW
    data = colours(count=36, side=14)
    direct = evaluate(
        load_network(Path("run")), (data.images, data.labels), attacks=["wo-2"], view=VIEW
    )
    assert record.measured["wo-2"] == direct.attacks["wo-2"].accuracy


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (99, "a view of 99 pixels does not lie in images of 8 x 8"),
        (0, "view must be at least 1"),
    ],
)
def test_a_view_that_cannot_be_ends_a_command_in_one_line(
    view: int, message: str, upright: Call
) -> None:
    for command in (
        ("train", "std*", "--model", "tiny", "--batch", 8, "--steps", 2, "--out", "run"),
        ("evaluate", "net.py:make", "--attack", "rnd"),
    ):
        Path("net.py").write_text("def make():\n    return lambda images: images.mean((2, 3))\n")
        code, out, err = upright(*command, "--data", "npz:colours.npz", "--view", view)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
        assert not Path("run").exists()
