"""G-ResNet: parameters as published, and which of its variants turn with the image."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models import build_network
from upright.models.gresnet import GBlock, GResNet
from upright.models.group_conv import P4, P4M, GroupBatchNorm, GroupConv, LiftingConv
from upright.testing import equivariance_error, invariance_error, quarter_turns

ALL_EIGHT = quarter_turns(mirrors=True)
FEATURES = quarter_turns(mirrors=True, planes=True)


def noise(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def untrained(name: str) -> GResNet:
    """A network in float64 with random biases, and norms that have seen some noise."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_network(name).double()
        for part in model.modules():
            if isinstance(part, GroupBatchNorm):
                part.momentum = 1.0  # takes over the statistics of one batch
            if isinstance(part, LiftingConv | GroupConv):
                part.bias.data.normal_(0, 0.1)
    assert isinstance(model, GResNet)
    with torch.no_grad():
        model(noise(4, 3, 16, 16))
    return model.eval()


# --- parameters -----------------------------------------------------------------------------------


def conv(before: int, after: int, kernel: int, planes: int = 8) -> int:
    return planes * kernel**2 * before * after + after


def counted(blocks: int, widths: tuple[int, ...], features: int, classes: int, colours: int) -> int:
    total, before = conv(colours, widths[0], 3, planes=1), widths[0]
    for place, width in enumerate(widths):
        total += conv(before, width, 1) if place else 0
        for _ in range(blocks):
            total += 2 * before + conv(before, width, 3) + 2 * width + conv(width, width, 3)
            before = width
    return total + 2 * before + (features + 1) * classes


@pytest.mark.parametrize("name", ["gresnet44", "gresnet44-pool"])
def test_gresnet44_has_the_published_2622878_parameters(name: str) -> None:
    assert counted(7, (11, 23, 45), 360, 10, 3) == 2_622_878
    assert sum(parameter.numel() for parameter in build_network(name).parameters()) == 2_622_878


@pytest.mark.parametrize(
    ("name", "blocks", "widths", "features", "classes", "colours"),
    [
        ("gresnet8", 1, (11, 23, 45), 360, 10, 3),
        ("gresnet14x2", 2, (22, 46, 90), 720, 100, 1),
        ("gresnet20x.5-invariant", 3, (6, 12, 22), 22, 7, 3),
        ("gresnet44-pool-invariant", 7, (11, 23, 45), 45, 10, 3),
    ],
)
def test_the_family_has_the_parameters_of_its_depth_width_and_head(
    name: str, blocks: int, widths: tuple[int, ...], features: int, classes: int, colours: int
) -> None:
    model = build_network(name, classes=classes, channels=colours)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert found == counted(blocks, widths, features, classes, colours)


def test_weights_start_as_published() -> None:
    for part in untrained("gresnet44").modules():
        if isinstance(part, LiftingConv | GroupConv) and part.weight.numel() > 5000:
            planes = 1 if isinstance(part, LiftingConv) else 8
            deviation = math.sqrt(2 / (planes * part.kernel**2 * part.before))
            assert part.weight.std().item() == pytest.approx(deviation, rel=0.05)
    for part in build_network("gresnet8").modules():
        if isinstance(part, LiftingConv | GroupConv | nn.Linear):
            assert not part.bias.any()


@pytest.mark.parametrize("depth", [2, 9, 43])
def test_a_depth_that_is_not_6n_plus_2_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=r"6n\+2"):
        build_network(f"gresnet{depth}")


@pytest.mark.parametrize("option", [{"down": "max"}, {"head": "mean"}])
def test_an_option_that_is_not_known_is_refused(option: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"'max'|'mean'"):
        GResNet(depth=8, **option)  # type: ignore[arg-type]


# --- blocks ---------------------------------------------------------------------------------------


def test_a_block_adds_two_convolutions_of_normed_input_to_its_raw_input() -> None:
    block = GBlock(P4, 2, 2, None).double().eval()
    x = noise(1, 8, 6, 6) - 0.5
    inner = block.conv1(F.relu(block.norm1(x)))
    assert torch.equal(block(x), block.conv2(F.relu(block.norm2(inner))) + x)


@pytest.mark.parametrize("down", ["stride", "pool"])
def test_a_halving_block_has_a_1x1_convolution_of_its_raw_input_beside_it(down: str) -> None:
    block = GBlock(P4, 2, 3, down).double().eval()  # type: ignore[arg-type]
    nn.init.zeros_(block.conv2.weight)
    x = noise(1, 8, 6, 6) - 0.5
    raw = x[..., ::2, ::2] if down == "stride" else x.unflatten(2, (3, 2)).unflatten(4, (3, 2))
    if down == "pool":
        raw = raw.mean((3, 5))
    assert isinstance(block.shortcut, GroupConv)
    filters = block.shortcut.filters()
    expected = F.conv2d(raw, filters, block.shortcut.bias.repeat(4))
    torch.testing.assert_close(block(x), expected)


# --- what turns with the image --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("gresnet44-pool", 32),
        ("gresnet44", 33),
        *(("gresnet14x0.3-pool", size) for size in (16, 28, 30, 31, 33)),
        *(("gresnet14x0.3", size) for size in (17, 29)),
    ],
)
def test_features_turn_with_the_image_under_all_eight_elements(name: str, size: int) -> None:
    images, model = noise(1, 3, size, size), untrained(name)
    assert model.features(images).abs().max() > 1
    assert equivariance_error(model.features, images, FEATURES) <= 1e-12


@pytest.mark.parametrize(("way", "size"), [("-pool", 32), ("-pool", 30), ("", 33)])
def test_logits_of_the_invariant_head_stay(way: str, size: int) -> None:
    model = untrained(f"gresnet14x0.3{way}-invariant")
    assert invariance_error(model, noise(2, 3, size, size), ALL_EIGHT) <= 1e-12


@pytest.mark.parametrize("size", [32, 28, 31])
def test_the_published_strides_do_not_turn_with_the_image_unless_its_size_is_4k_plus_1(
    size: int,
) -> None:
    images = noise(2, 3, size, size)
    assert equivariance_error(untrained("gresnet14x0.3").features, images, FEATURES) > 0.1
    assert invariance_error(untrained("gresnet14x0.3-invariant"), images, ALL_EIGHT) > 0.01


@pytest.mark.parametrize("way", ["", "-pool"])
def test_the_published_head_is_not_invariant(way: str) -> None:
    model = untrained(f"gresnet14x0.3{way}")
    assert invariance_error(model, noise(2, 3, 33, 33), ALL_EIGHT) > 0.1


def test_images_that_are_not_square_turn_too() -> None:
    model = untrained("gresnet14x0.3-pool-invariant")
    assert invariance_error(model, noise(1, 3, 30, 17), ALL_EIGHT) <= 1e-12


def test_a_p4_network_turns_but_does_not_mirror() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GResNet(depth=8, down="pool", head="pooled", group=P4).double().eval()
    images = noise(2, 3, 16, 16)
    assert invariance_error(model, images, quarter_turns()) <= 1e-12
    assert invariance_error(model, images, ALL_EIGHT) > 0.01
    assert P4M.planes == 2 * P4.planes
