"""Test-time augmentation: the mean over poses, the same for an image whatever comes with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rigid_spaces import rigid
from upright import PAPER, GridSearch, Pose, SpatialPGD, evaluate, tta, warp
from upright.composed import each_network
from upright.identity import Identity
from upright.models import build_network, in_half_precision
from upright.sources import load_model, model_names
from upright.tta import Averaging


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def noise(count: int, side: int = 8) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(count))


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_network("resnet8x0.25").eval()


def test_it_is_the_mean_of_the_logits_over_the_poses() -> None:
    model, images = network(), noise(3)
    poses = Pose.of(dx=[0.0, 1.0, -2.5], dy=[0.5, 0.0, 1.0], angle=[0.0, 20.0, -7.0])
    by_hand = sum(
        model(warp(images, Pose.of(dx, dy, angle), fill="border"))
        for dx, dy, angle in poses.values.tolist()
    )
    found = tta(model, poses, fill="border")(images)
    torch.testing.assert_close(found, by_hand / 3)


def test_the_zero_pose_alone_changes_nothing() -> None:
    model, images = network(), noise(3)
    assert torch.equal(tta(model, "grid-1x1x1")(images), model(images))


def test_a_grid_may_be_named_or_given() -> None:
    model, images = network(), noise(2)
    space = rigid(1, 10)
    named = tta(model, "grid-2x1x3", space=space)(images)
    assert torch.equal(named, tta(model, GridSearch((2, 1, 3)), space=space)(images))
    assert torch.equal(named, tta(model, space.grid((2, 1, 3)))(images))


def test_an_image_gets_the_same_logits_at_every_call_and_in_any_company() -> None:
    model, images = tta(network().double(), 5), noise(6).double()
    together = model(images)
    torch.manual_seed(3)
    assert torch.equal(model(images), together)
    alone = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)


def test_random_poses_follow_the_seed_and_lie_in_the_space() -> None:
    space = rigid(0.25, 15, unit="image")
    first = tta(network(), 50, space=space, seed=1).poses_for(8, 16)
    again = tta(network(), 50, space=space, seed=1).poses_for(8, 16)
    other = tta(network(), 50, space=space, seed=2).poses_for(8, 16)
    assert first.shape == (50,)
    assert torch.equal(first.values, again.values)
    assert not torch.equal(first.values, other.values)
    assert space.in_pixels(8, 16).contains(first).all()
    assert first.dx.abs().max() > 2 >= first.dy.abs().max()


def test_logits_in_half_precision_are_averaged_in_single_precision() -> None:
    level = iter([256.0, 1.0, 1.0, 1.0])  # in bfloat16 256 + 1 = 256
    model = tta(lambda images: torch.full((len(images), 2), next(level)).bfloat16(), "grid-1x1x4")
    assert model(noise(1)).tolist() == [[259 / 4] * 2]


def test_it_is_attacked_and_evaluated_as_any_model() -> None:
    model, labels = tta(network(), 3), torch.tensor([0, 1, 2, 3])
    data = (noise(4), labels)
    found = evaluate(model, data, attacks=["wo-3", "s-pgd"], batch_size=4)
    again = evaluate(model, data, attacks=["wo-3", "s-pgd"], batch_size=3)
    for name in ("wo-3", "s-pgd"):
        assert torch.equal(found.attacks[name].correct, again.attacks[name].correct)


def test_a_model_left_in_training_mode_is_still_seen() -> None:
    with pytest.warns(UserWarning, match="in training mode"):
        evaluate(tta(network().train(), 2), (noise(2), torch.tensor([0, 1])), attacks=["rnd"])


@pytest.mark.parametrize(
    ("poses", "message"),
    [
        (0, "poses must be at least 1"),
        ("s-pgd", "finds its poses as it goes"),
        (SpatialPGD(), "finds its poses as it goes"),
        (Pose.zeros(2, 1), r"need the shape \(M,\)"),
        (Pose.zeros(0), r"M at least 1"),
    ],
)
def test_what_does_not_list_poses_is_refused(poses: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tta(network(), poses)  # type: ignore[arg-type]


MODEL = """
import torch
from upright.models import build_network
def make():
    torch.manual_seed(0)
    return build_network("resnet8x0.25")
"""


@pytest.mark.parametrize(
    ("name", "poses"), [("tta-4", 4), ("tta-grid-2x2x3", "grid-2x2x3"), ("tta-2:tta-2", None)]
)
def test_a_prefix_to_any_models_name_averages_it(
    name: str, poses: int | str | None, tmp_path: Path
) -> None:
    (tmp_path / "nets.py").write_text(MODEL)
    with torch.random.fork_rng():
        found = load_model(f"{name}:{tmp_path / 'nets.py'}:make")
    expected = tta(tta(network(), 2), 2) if poses is None else tta(network(), poses, space=PAPER)
    images = noise(2)
    assert torch.equal(found(images), expected(images))
    assert any(form.startswith("tta-10:MODEL") for form in model_names())


@pytest.mark.parametrize(
    "text",
    ["mirror", "10", "1+mirror", "grid-3x3x5", "grid-775+mirror", "grid-3x1@shift(1px)+mirror"],
)
def test_an_averaging_is_its_text(text: str) -> None:
    averaging = Averaging.parse(text)
    assert str(averaging) == text
    assert Averaging.parse(str(averaging)) == averaging
    model, images = network(), noise(2)
    assert torch.equal(averaging(model)(images), tta(model, text)(images))
    asked = [*_asked_about(averaging, images)]
    assert len(asked) == averaging.answers


def _asked_about(averaging: Averaging, images: Tensor) -> list[Tensor]:
    seen: list[Tensor] = []

    def model(shown: Tensor) -> Tensor:
        seen.append(shown)
        return torch.zeros(len(shown), 2)

    averaging(model)(images)
    return seen


def test_mirrored_each_pose_is_seen_with_left_and_right_exchanged_too() -> None:
    images = noise(2)
    still, other = _asked_about(Averaging.parse("mirror"), images)
    assert torch.equal(still, images)
    assert torch.equal(other, images.flip(-1))
    seen = _asked_about(Averaging.parse("grid-3x1@shift(2px)+mirror"), images)
    moved = [warp(images, Pose.of(dx=dx)) for dx in (-2.0, 0.0, 2.0)]
    wanted = [view for one in moved for view in (one, one.flip(-1))]
    torch.testing.assert_close(torch.stack(seen), torch.stack(wanted))


def test_a_mirrored_model_answers_alike_to_an_image_and_its_mirror_image() -> None:
    model, images = tta(network().double(), "mirror"), noise(3).double()
    torch.testing.assert_close(model(images), model(images.flip(-1)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("upside", "no 'upside' to average over; give a number"),
        ("mirror+10", r"mirror\+10"),
        ("+mirror", "there is no '' to average over"),
        ("0", "at least 1"),
        ("grid-3x3", "needs a count"),
        ("5@", "space"),
        ("s-pgd", "or mirror"),
        ("", "no '' to average over"),
        ("mirror@shift(1px)", "a mirror image has no space"),
    ],
)
def test_what_is_no_averaging_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Averaging.parse(text)


def test_states_of_other_poses_are_of_another_model() -> None:
    model = network()
    texts = ("mirror", "3", "4", "4+mirror", "grid-2x2x3")
    known = {Identity.of(tta(model, text)) for text in texts}
    known |= {Identity.of(tta(model, 3, seed=1)), Identity.of(tta(model, 3, fill="border"))}
    assert len(known) == 7


def test_in_half_precision_images_are_moved_as_without() -> None:
    seen: list[Tensor] = []

    class Noting(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(images)
            return images.mean((2, 3))

    images = noise(2)
    model = tta(Noting(), "3@shear(20) zoom(0.8..1.2)+mirror")  # whose maps are products
    model(images)
    plain, seen = seen, []
    half = each_network(model, lambda net: in_half_precision(net, "bfloat16"))
    assert half(images).dtype == torch.float32
    assert torch.equal(torch.stack(seen), torch.stack(plain))


def test_its_state_is_of_its_poses_alone() -> None:
    model = tta(network(), Pose.of(dx=torch.arange(500.0)))
    model.load_state_dict(model.state_dict())
    moved = torch.arange(500.0)
    moved[250] += 1e-3
    assert Identity.of(tta(network(), Pose.of(dx=moved))) != Identity.of(model)
    with pytest.raises(ValueError, match="averaged otherwise"):
        tta(network(), 4).load_state_dict(tta(network(), 5).state_dict())


def test_a_grid_that_does_not_fit_the_space_is_named(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(MODEL)
    with (
        torch.random.fork_rng(),
        pytest.raises(ValueError, match=r"needs a count .* as in grid-5x5x31"),
    ):
        load_model(f"tta-grid-75:{tmp_path / 'nets.py'}:make")
