"""STN and ETN: counted by hand, an identity start, composed maps, and estimates that turn along."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tiny_runs import colours, newest, tiny_recipe
from upright import Pose, warp
from upright.models import build_network
from upright.models.coordinates import (
    Affine,
    Coordinates,
    ImageForm,
    RotationScale,
    ScaleX,
    Translation,
)
from upright.models.etn import CentroidPredictor, centroid, circular_centroid
from upright.models.etn_resnet import etn_resnet
from upright.models.stn import DirectPredictor
from upright.models.transformer import Straightening, Transformer
from upright.resample import resample
from upright.train import load_network, train
from upright.train.learner import Learner

NAMES = ["stn10x0.25", "etn10x0.25", "stn-affine10x0.25"]
every_network = pytest.mark.parametrize("name", NAMES)
SHAPES = [(32, 32), (28, 28), (30, 17), (8, 8)]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def build(name: str, *, classes: int = 10, channels: int = 3, moved: bool = True) -> Straightening:
    """Build a network, with ``moved`` one whose first pose is no longer the identity."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_network(name, classes=classes, channels=channels)
        assert isinstance(model, Straightening)
        for predictor in (module.predictor for module in model.transformers) if moved else ():
            last = predictor.heads if isinstance(predictor, CentroidPredictor) else predictor.linear
            for parameter in last.parameters():
                nn.init.normal_(parameter, std=0.1)
    return model


# --- parameters, counted by hand ------------------------------------------------------------------


def conv(before: int, after: int, side: int = 3) -> int:
    return side * side * before * after


def block(before: int, after: int) -> int:
    """Two convolutions with norms, and a shortcut with a norm where the width changes."""
    branch = conv(before, after) + conv(after, after) + 4 * after
    return branch + (conv(before, after, 1) + 2 * after if before != after else 0)


@pytest.mark.parametrize(
    ("depth", "blocks", "published"),
    [
        (10, (1, 1, 1, 1), 1_230_506),
        (18, (2, 2, 2, 2), 2_799_146),
        (34, (3, 4, 6, 3), 5_328_042),
    ],
)
def test_the_classifier_has_the_published_parameters(
    depth: int, blocks: tuple[int, ...], published: int
) -> None:
    expected, before = conv(3, 32, 5) + 2 * 32, 32
    for count, after in zip(blocks, (32, 64, 128, 256), strict=True):
        expected += block(before, after) + (count - 1) * block(after, after)
        before = after
    assert expected + 257 * 10 == published
    assert size(etn_resnet(depth)) == published


def test_pose_networks_have_the_published_parameters() -> None:
    # Two convolutions with norms, then for each number three weights a channel and an offset.
    both = conv(3, 32) + conv(32, 32) + 4 * 32
    assert both + 2 * (3 * 32 + 1) == 10_402
    assert [size(part) for part in build("etn10").transformers] == [10_402, 10_402, 10_402 - 97]
    assert [size(part) for part in build("stn10").transformers] == [
        both + 289 * numbers for numbers in (2, 2, 1)
    ]
    assert [size(part) for part in build("stn-affine10").transformers] == [both + 289 * 6]


def test_a_width_multiplies_all_channels() -> None:
    pose = conv(3, 8) + conv(8, 8) + 4 * 8
    assert size(build("etn10x0.25").transformers[0]) == pose + 2 * (3 * 8 + 1)
    assert size(build("stn10x0.25").classifier) == size(etn_resnet(10, width=0.25))


@pytest.mark.parametrize("name", ["stn", "stn12", "etn", "etn10x", "stn-affine", "affine10"])
def test_other_names_are_unknown(name: str) -> None:
    with pytest.raises(ValueError, match="no network is called"):
        build_network(name)


# --- the identity ---------------------------------------------------------------------------------


@every_network
@pytest.mark.parametrize("shape", SHAPES)
def test_an_identity_start_leaves_the_image_as_it_is_bit_for_bit(
    name: str, shape: tuple[int, int]
) -> None:
    model, images = build(name, moved=False).eval(), noise(3, 3, *shape)
    maps = model.maps(images)
    assert maps.equal(torch.eye(3).expand(3, 3, 3))
    points = Translation().points(ImageForm.of(images))
    assert resample(images, maps, points).equal(images)
    assert model(images).equal(model.classifier(model.standardise(images)))


@pytest.mark.parametrize("count", [4, 7, 28, 32])
def test_a_flat_heat_map_means_no_motion(count: int) -> None:
    flat = torch.zeros(2, count).softmax(-1)
    assert not centroid(flat).any()
    assert not circular_centroid(flat).any()


def test_a_flat_heat_map_has_a_finite_slope() -> None:
    heat = torch.zeros(1, 32).requires_grad_()
    (circular_centroid(heat.softmax(-1)) + centroid(heat.softmax(-1))).sum().backward()
    assert heat.grad is not None
    assert heat.grad.isfinite().all()
    assert heat.grad.any()


# --- coordinates ----------------------------------------------------------------------------------


def square(side: int = 32) -> ImageForm:
    return ImageForm(side, side, torch.device("cpu"), torch.float64)


ALL = [Translation(), RotationScale(), ScaleX(), Affine()]


@pytest.mark.parametrize("coordinates", ALL)
def test_numbers_of_zero_are_the_identity(coordinates: Coordinates) -> None:
    zero = torch.zeros(2, len(coordinates.axes), dtype=torch.float64)
    assert coordinates.maps(zero, square()).equal(torch.eye(3).double().expand(2, 3, 3))


def along(grid: Tensor, axis: int, steps: int, *, cyclic: bool) -> tuple[Tensor, Tensor]:
    """Points of a grid, and those so many steps further along an axis."""
    if cyclic:
        return grid, grid.roll(-steps, axis)
    count = grid.shape[axis] - steps
    return grid.narrow(axis, 0, count), grid.narrow(axis, steps, count)


@given(
    place=st.sampled_from([(each, i) for each in ALL[:3] for i in range(len(each.axes))]),
    steps=st.integers(0, 31),
)
def test_a_map_of_k_steps_takes_each_point_to_the_one_k_steps_further(
    place: tuple[Coordinates, int], steps: int
) -> None:
    coordinates, which = place
    grid = coordinates.points(square())
    numbers = torch.zeros(1, len(coordinates.axes), dtype=torch.float64)
    numbers[0, which] = 2 * steps / 32  # all of [-1, 1] is 32 steps
    (matrix,) = coordinates.maps(numbers, square())
    axis = coordinates.axes[which]
    start, end = along(grid, axis, steps, cyclic=coordinates.cyclic and axis == -1)
    moved = torch.einsum("ij,jrs->irs", matrix[:2, :2], start) + matrix[:2, 2, None, None]
    torch.testing.assert_close(moved, end, rtol=0, atol=1e-9)


def test_radii_go_from_a_tenth_of_half_a_side_to_half_a_diagonal() -> None:
    many = ImageForm(4096, 8, torch.device("cpu"), torch.float64)
    radius = RotationScale().points(many).norm(dim=0) / 2048
    assert radius.min().item() == pytest.approx(0.1, rel=1e-3)
    assert radius.max().item() == pytest.approx(math.sqrt(2), rel=1e-3)
    assert RotationScale.half_range == pytest.approx(1.325, abs=5e-4)
    assert ScaleX.half_range == pytest.approx(1.151, abs=5e-4)


def test_no_angle_is_sampled_twice() -> None:
    x, y = RotationScale().points(square())
    angle = torch.atan2(-y, x)[5]
    gaps = torch.diff(angle, append=angle[:1] + 2 * math.pi)
    torch.testing.assert_close(gaps, torch.full_like(gaps, 2 * math.pi / 32))


def test_the_first_half_of_the_rows_looks_right_of_the_centre_and_the_second_left() -> None:
    x, y = ScaleX().points(square())
    assert (x[:16] > 0).all()
    assert x[16:].equal(-x[:16])
    assert y[16:].equal(y[:16])


# --- maps -----------------------------------------------------------------------------------------


class Says(nn.Module):
    """A predictor that gives the same numbers for every image."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.numbers = numbers

    def forward(self, look: Tensor) -> Tensor:
        return look.new_tensor(self.numbers).expand(len(look), -1)


def straightening(dx: float, dy: float, angle: float) -> Straightening:
    """A network that finds this pose (pixels, degrees) in every image of 32 x 32."""
    parts = [
        Transformer(Translation(), Says(dx / 16, dy / 16)),
        Transformer(RotationScale(), Says(0.0, angle / 180)),
        Transformer(ScaleX(), Says(0.0)),
    ]
    return Straightening(parts, nn.Identity())


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(-180, 180))
def test_the_composed_map_undoes_a_pose_as_warp_with_its_inverse_does(
    dx: float, dy: float, angle: float
) -> None:
    images = noise(2, 3, 32, 32).double()
    model = straightening(dx, dy, angle)
    # Once the image's mean is zero, "black" means the same before and after.
    expected = warp(
        model.standardise(images), Pose.of(dx, dy, angle, dtype=torch.float64).inverse()
    )
    torch.testing.assert_close(model(images), expected, rtol=0, atol=1e-9)


def test_maps_compose_to_translation_after_turn_after_stretch() -> None:
    parts = [
        Transformer(Translation(), Says(0.5, -0.25)),
        Transformer(RotationScale(), Says(0.2, 0.5)),
        Transformer(ScaleX(), Says(-0.5)),
    ]
    scale, stretch = math.exp(0.2 * RotationScale.half_range), math.exp(-0.5 * ScaleX.half_range)
    # A quarter turn counter-clockwise takes right to up: y is negative there.
    expected = torch.tensor([[0, scale, 8], [-scale * stretch, 0, -4], [0, 0, 1]]).double()
    maps = Straightening(parts, nn.Identity()).maps(noise(1, 3, 32, 32).double())
    torch.testing.assert_close(maps[0], expected)


def test_every_look_is_at_the_original_image() -> None:
    looks: list[Tensor] = []

    class Watches(Says):
        def forward(self, look: Tensor) -> Tensor:
            looks.append(look)
            return super().forward(look)

    there = Transformer(Translation(), Watches(0.5, 0.0))
    back = Transformer(Translation(), Watches(-0.5, 0.0))
    model, images = Straightening([there, back], nn.Identity()), noise(1, 3, 32, 32)
    assert model(images).equal(model.standardise(images))  # nothing was lost over the edge
    assert looks[1].equal(warp(looks[0], Pose.of(dx=-8)))


def test_affine_numbers_are_added_to_the_identity() -> None:
    numbers = torch.tensor([[0.1, 0.2, 0.5, 0.3, -0.4, -1.0]])
    found = Affine().maps(numbers, ImageForm(20, 32, torch.device("cpu"), torch.float32))
    torch.testing.assert_close(
        found[0], torch.tensor([[1.1, 0.2, 8.0], [0.3, 0.6, -10.0], [0.0, 0.0, 1.0]])
    )


# --- the estimate turns with the input ------------------------------------------------------------


def angles(model: Straightening, images: Tensor) -> Tensor:
    """The angle in degrees that the second transformer finds, with the image left in its place."""
    transformer = model.transformers[1]
    assert isinstance(transformer, Transformer)
    start = torch.eye(3, dtype=images.dtype).expand(len(images), 3, 3)
    maps = transformer(images, start)
    return torch.rad2deg(torch.atan2(maps[:, 0, 1], maps[:, 0, 0]))


def sharpen(model: Straightening) -> None:
    """Let heat maps of the angle have peaks; a flat one has no direction that could turn."""
    for weight in model.transformers[1].predictor.heads[1].parameters():
        nn.init.normal_(weight, std=30, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("side", [32, 28, 30])
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_quarter_turn_of_the_image_turns_etns_estimate_by_90_degrees(
    side: int, quarters: int
) -> None:
    model = build("etn10x0.25").double().eval()
    sharpen(model)
    images = F.interpolate(noise(8, 3, 5, 5).double() - 0.5, (side, side), mode="bicubic")
    before = angles(model, images)
    after = angles(model, images.rot90(quarters, (-2, -1)))  # counter-clockwise as displayed
    turned = torch.remainder(after - before - 90 * quarters + 180, 360) - 180
    torch.testing.assert_close(turned, torch.zeros_like(turned), rtol=0, atol=1e-9)
    assert before.std() > 10  # the estimates are not all the same


def test_any_turn_of_the_image_turns_etns_estimate_along() -> None:
    model = build("etn10x0.25").double().eval()
    sharpen(model)
    coarse = noise(16, 3, 4, 4).double() - 0.5
    images = F.interpolate(coarse, (64, 64), mode="bicubic") * _disc(64)
    before = angles(model, images)
    for angle in (10.0, 37.0, 111.0, -160.0):
        after = angles(model, warp(images, Pose.of(angle=angle)))
        turned = torch.remainder(after - before - angle + 180, 360) - 180
        assert turned.abs().median() < 2


def _disc(side: int) -> Tensor:
    x, y = Translation().points(square(side))
    return torch.sigmoid(side / 2 - 4 - torch.hypot(x, y))


def test_a_black_image_has_no_angle() -> None:
    model = build("etn10x0.25").eval()
    assert model(torch.zeros(2, 3, 16, 16)).isfinite().all()
    assert not angles(model, torch.zeros(2, 3, 16, 16)).any()


# --- any network ----------------------------------------------------------------------------------


@every_network
@pytest.mark.parametrize("shape", SHAPES)
def test_images_of_any_size_give_logits(name: str, shape: tuple[int, int]) -> None:
    model = build(name, classes=7, channels=2).eval()
    assert model(noise(3, 2, *shape)).shape == (3, 7)


@every_network
def test_a_motion_of_no_number_gives_logits_of_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a GPU resamples by such a map, to black.
    monkeypatch.setattr(
        "upright.models.transformer.resample", lambda images, *_: torch.zeros_like(images)
    )
    model, images = build(name).eval(), noise(2, 3, 16, 16)
    assert not model(images).isnan().any()
    with torch.no_grad():
        list(model.transformers[0].parameters())[-1].fill_(float("nan"))
        assert model(images).isnan().all()


@every_network
def test_brightness_and_contrast_do_not_matter(name: str) -> None:
    model, images = build(name).double().eval(), noise(2, 3, 16, 16).double()
    torch.testing.assert_close(model(0.3 * images + 0.4), model(images), rtol=0, atol=1e-9)


@every_network
def test_gradients_reach_every_parameter_and_the_images(name: str) -> None:
    model, images = build(name), noise(4, 3, 16, 16).requires_grad_()
    F.cross_entropy(model(images), torch.tensor([0, 1, 2, 3])).backward()
    for key, tensor in [*model.named_parameters(), ("images", images)]:
        assert tensor.grad is not None, key
        assert tensor.grad.isfinite().all(), key
        assert tensor.grad.any(), key


@every_network
def test_from_the_identity_the_last_layer_of_each_pose_network_learns(name: str) -> None:
    model = build(name, moved=False)
    F.cross_entropy(model(noise(4, 3, 16, 16)), torch.tensor([0, 1, 2, 3])).backward()
    for transformer in model.transformers:
        last = list(transformer.parameters())[-1]
        assert last.grad is not None
        assert last.grad.any()


@every_network
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    model = build(name).double().eval()
    images = noise(1, 3, 8, 8).double().requires_grad_()
    torch.autograd.gradcheck(lambda x: model(x).square().sum(), images, atol=1e-4, fast_mode=True)


@every_network
def test_half_precision_keeps_the_place_of_every_pixel(name: str) -> None:
    model, images = build(name, moved=False).eval(), noise(2, 3, 28, 28)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.maps(images).equal(torch.eye(3).expand(2, 3, 3))
        moved = resample(images, model.maps(images), Translation().points(ImageForm.of(images)))
        logits = model(images)
    assert moved.equal(images)
    torch.testing.assert_close(logits.float(), model(images), rtol=0.05, atol=0.05)


@every_network
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_that_is_resumed_ends_where_the_unbroken_run_ends(
    name: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not smaller: in bfloat16, oneDNN's gradient of a strided convolution of one pixel is garbage.
    data = colours(side=16)
    recipe = tiny_recipe(
        model=name, precision=precision, optimizer="adam", learning_rate=0.01, steps=4
    )
    train(recipe, tmp_path / "unbroken", data=data)
    monkeypatch.setattr(Learner, "step", failing_at(2, Learner.step))
    with pytest.raises(ZeroDivisionError):
        train(recipe, tmp_path / "broken", data=data, checkpoint_every=1)
    monkeypatch.undo()
    train(recipe, tmp_path / "broken", data=data, resume=True)
    assert newest(tmp_path / "broken") == newest(tmp_path / "unbroken")


def failing_at(broken: int, take: Callable[[Learner, int], None]) -> Callable[[Learner, int], None]:
    def step(learner: Learner, number: int) -> None:
        if number == broken:
            raise ZeroDivisionError
        take(learner, number)

    return step


@every_network
def test_a_checkpoint_gives_the_network_back(name: str, tmp_path: Path) -> None:
    run = train(tiny_recipe(model=name, steps=2), tmp_path, data=colours())
    again = load_network(tmp_path)
    for key, value in run.model.state_dict().items():
        assert again.state_dict()[key].equal(value), key
    images = noise(4, 3, 8, 8)
    torch.testing.assert_close(again(images), run.model(images))


@every_network
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own
def test_compiled_networks_answer_alike(name: str) -> None:
    model, images = build(name).eval(), noise(4, 3, 16, 16)
    compiled = torch.compile(model, dynamic=False)
    torch.testing.assert_close(compiled(images), model(images), rtol=1e-3, atol=1e-4)


@every_network
def test_one_graph_holds_the_whole_network(name: str) -> None:
    model, images = build(name), noise(4, 3, 16, 16)
    explanation = torch._dynamo.explain(model)(images)
    assert explanation.graph_break_count == 0


def test_direct_predictors_stay_within_the_range() -> None:
    predictor = DirectPredictor(2).eval()
    nn.init.normal_(predictor.linear.weight, std=100)
    numbers = predictor(noise(8, 3, 16, 16))
    assert (numbers.abs() <= 1).all()
    assert numbers.abs().max() > 0.99
