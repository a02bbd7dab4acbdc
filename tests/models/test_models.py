"""Networks: parameters counted by hand, the details of the authors' program, and the registry."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import upright.models
from every_network import every_network
from upright import SuspiciousInput
from upright.models import NETWORKS, build_network, network, network_forms, resnet
from upright.models.layers import Standardise
from upright.models.resnet import Block


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# --- parameters, counted by hand ------------------------------------------------------------------


def conv(before: int, after: int) -> int:
    return 9 * before * after


def norm(channels: int) -> int:
    return 2 * channels


def test_resnet32_has_464154_parameters() -> None:
    stem = 3 * 16 * 9
    # Each block: norm, convolution, norm, convolution.
    stage1 = 5 * (2 * 16 + 16 * 16 * 9 + 2 * 16 + 16 * 16 * 9)
    stage2 = (2 * 16 + 16 * 32 * 9 + 2 * 32 + 32 * 32 * 9) + 4 * 2 * (2 * 32 + 32 * 32 * 9)
    stage3 = (2 * 32 + 32 * 64 * 9 + 2 * 64 + 64 * 64 * 9) + 4 * 2 * (2 * 64 + 64 * 64 * 9)
    head = 2 * 64 + 64 * 10 + 10
    assert stem + stage1 + stage2 + stage3 + head == 464_154
    assert size(build_network("resnet32")) == 464_154


@pytest.mark.parametrize(
    ("name", "blocks", "widths", "classes", "channels"),
    [
        ("resnet8", 1, (16, 32, 64), 10, 3),
        ("resnet14", 2, (16, 32, 64), 100, 3),
        ("resnet20", 3, (16, 32, 64), 10, 1),
        ("resnet110", 18, (16, 32, 64), 10, 3),
        ("resnet32x2", 5, (32, 64, 128), 7, 4),
        ("resnet14x0.5", 2, (8, 16, 32), 10, 3),
        ("resnet8x.25", 1, (4, 8, 16), 2, 1),
    ],
)
def test_the_family_has_the_parameters_of_its_depth_width_classes_and_channels(
    name: str, blocks: int, widths: tuple[int, ...], classes: int, channels: int
) -> None:
    expected = conv(channels, widths[0])
    before = widths[0]
    for width in widths:
        for _ in range(blocks):
            expected += norm(before) + conv(before, width) + norm(width) + conv(width, width)
            before = width
    expected += norm(before) + (before + 1) * classes
    model = build_network(name, classes=classes, channels=channels)
    assert size(model) == expected
    depth = 1 + sum(isinstance(module, nn.Conv2d) for module in model.modules())
    assert name.partition("x")[0] == f"resnet{depth}"


def test_convolutions_have_no_bias_and_norms_forget_a_tenth_a_step() -> None:
    for module in build_network("resnet14").modules():
        if isinstance(module, nn.Conv2d):
            assert module.bias is None
            assert module.kernel_size == (3, 3)
        if isinstance(module, nn.BatchNorm2d):
            assert module.momentum == 0.1


@pytest.mark.parametrize(("name", "epsilon"), [("resnet8", 1e-5), ("resnet8x2-epsilon0.001", 1e-3)])
def test_a_name_says_what_norms_add_to_a_variance(name: str, epsilon: float) -> None:
    norms = [part for part in build_network(name).modules() if isinstance(part, nn.BatchNorm2d)]
    assert [norm.eps for norm in norms] == [epsilon] * 7
    with pytest.raises(ValueError, match="more than 0, not 0"):
        build_network("resnet8-epsilon0")


@pytest.mark.parametrize("name", ["resnet8", "wideresnet10-1", "gresnet8x0.5", "convnet"])
@pytest.mark.parametrize("counting", [False, True])
def test_weights_from_a_file_or_of_norms_that_count_are_loaded(
    name: str, counting: bool, tmp_path: Path
) -> None:
    network = build_network(name)
    other = copy.deepcopy(pickle.loads(pickle.dumps(build_network(name))))
    weights = network.state_dict()
    if counting:
        weights |= {
            f"{part}.num_batches_tracked": torch.tensor(7)
            for part, norm in network.named_modules()
            if isinstance(norm, nn.BatchNorm2d)
        }
    save_file(weights, tmp_path / "weights.safetensors")
    other.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    images = noise(2, 3, 32, 32)
    torch.testing.assert_close(other.eval()(images), network.eval()(images), rtol=0, atol=0)


# --- standardisation ------------------------------------------------------------------------------


def test_each_image_gets_mean_zero_and_deviation_one_over_all_its_values() -> None:
    images = noise(3, 2, 5, 7).double() * torch.tensor([1.0, 0.1, 0.5]).view(3, 1, 1, 1)
    standard = Standardise()(images).flatten(1)
    zero, one = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    torch.testing.assert_close(standard.mean(1), zero, rtol=0, atol=1e-12)
    torch.testing.assert_close(standard.std(1, correction=0), one)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_flat_image_becomes_zero_with_finite_gradients(level: float) -> None:
    images = torch.full((2, 3, 8, 8), level, dtype=torch.float64).requires_grad_()
    standard = Standardise()(images)
    torch.testing.assert_close(standard, torch.zeros_like(standard), rtol=0, atol=1e-9)
    standard.square().sum().backward()
    assert images.grad is not None
    assert images.grad.isfinite().all()


def test_the_deviation_of_an_image_of_0_to_255_is_at_least_one_over_the_root_of_its_size() -> None:
    grey = torch.full((1, 3, 8, 8), 100.0, dtype=torch.float64)
    grey[0, 0, 0, 0] += 0.01
    expected = (grey - grey.mean()) * math.sqrt(3 * 8 * 8)
    torch.testing.assert_close(Standardise()(grey / 255), expected)


@every_network
def test_brightness_and_contrast_do_not_matter(name: str) -> None:
    model = build_network(name).double().eval()
    images = noise(2, 3, 16, 16).double()
    torch.testing.assert_close(model(0.3 * images + 0.4), model(images), rtol=0, atol=1e-9)


# --- blocks ---------------------------------------------------------------------------------------


def silenced(block: Block) -> Block:
    """Leave only the shortcut."""
    nn.init.zeros_(block.conv2.weight)
    return block.eval()


def test_a_block_that_keeps_the_shape_passes_its_input_on() -> None:
    x = noise(2, 4, 6, 6) - 0.5
    assert torch.equal(silenced(Block(4, 4, 1))(x), x)


def test_a_wider_block_averages_by_its_stride_and_adds_empty_channels_on_both_sides() -> None:
    x = noise(2, 4, 6, 6) - 0.5
    moved = silenced(Block(4, 8, 2))(x)
    means = x.reshape(2, 4, 3, 2, 3, 2).mean((3, 5))
    assert moved.shape == (2, 8, 3, 3)
    torch.testing.assert_close(moved[:, 2:6], means)
    assert not moved[:, :2].any()
    assert not moved[:, 6:].any()


def test_only_the_first_block_activates_before_its_shortcut() -> None:
    model = resnet(14)
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for place, block in enumerate(blocks):
        x = noise(2, block.norm1.num_features, 4, 4) - 0.5
        activated = F.leaky_relu(block.eval().norm1(x), 0.1)
        through = silenced(block)(x)
        expected = silenced_plain(block)(activated if place == 0 else x)
        torch.testing.assert_close(through, expected)


def silenced_plain(block: Block) -> Block:
    """Make a block of the same shape whose shortcut takes the input as it is."""
    return silenced(Block(block.conv1.in_channels, block.conv1.out_channels, block.stride))


def test_weights_start_with_the_deviation_of_the_authors_program() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = resnet(32)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 5000:
            expected = math.sqrt(2 / (9 * module.out_channels))
            assert module.weight.std().item() == pytest.approx(expected, rel=0.05)
        if isinstance(module, nn.Linear):
            assert not module.bias.any()


# --- any network ----------------------------------------------------------------------------------


@every_network
@pytest.mark.parametrize("shape", [(32, 32), (28, 28), (30, 17), (8, 8)])
def test_images_of_any_size_give_logits(name: str, shape: tuple[int, int]) -> None:
    model = build_network(name, classes=7, channels=2).eval()
    assert model(noise(3, 2, *shape)).shape == (3, 7)


@every_network
def test_gradients_reach_every_parameter_and_the_images(name: str) -> None:
    model, images = stirred(build_network(name)), noise(4, 3, 16, 16).requires_grad_()
    F.cross_entropy(model(images), torch.tensor([0, 1, 2, 3])).backward()
    for key, tensor in [*model.named_parameters(), ("images", images)]:
        assert tensor.grad is not None, key
        assert tensor.grad.isfinite().all(), key
        assert tensor.grad.any(), key


def stirred(model: nn.Module) -> nn.Module:
    """Move all weights a little: a layer that starts at zero keeps gradients from those before."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn(parameter.shape, generator=generator)
    return model


@every_network
def test_the_global_seed_alone_decides_the_first_weights(name: str) -> None:
    states = []
    with torch.random.fork_rng():
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            states.append(build_network(name).state_dict())
    first, again, other = states
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


# --- the registry ---------------------------------------------------------------------------------


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NETWORKS, "_entries", dict(NETWORKS._entries))


@pytest.mark.parametrize("name", ["resnet", "ResNet32", "resnet32x", "resnet32x1.2.3", "vgg", ""])
def test_a_wrong_name_lists_the_right_ones(name: str) -> None:
    with pytest.raises(ValueError, match="no network is called") as caught:
        build_network(name)
    assert network_forms()
    assert all(form in str(caught.value) for form in network_forms())


@pytest.mark.parametrize(
    ("depth", "nearest"),
    [(0, 8), (2, 8), (6, 8), (9, 8), (18, 20), (33, 32), (34, 32), (100, 98), (10**9, 1202)],
)
def test_a_depth_that_is_not_6n_plus_2_is_refused(depth: int, nearest: int) -> None:
    with pytest.raises(ValueError, match=rf"6n\+2 .* not {depth}; write resnet{nearest}, or"):
        build_network(f"resnet{depth}")


@pytest.mark.parametrize("depth", [50, 152])
def test_a_depth_that_imagenet_has_too_says_that_it_is_another_network(depth: int) -> None:
    other = rf"not ImageNet's ResNet-{depth}, which comes as timm:resnet{depth} or torchvision:"
    with pytest.warns(SuspiciousInput, match=other):
        model = build_network(f"resnet{depth}")
    layers = [each for each in model.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


@pytest.mark.usefixtures("own_registry")
def test_one_decorator_makes_a_network_known() -> None:
    @network("linear (or linear-N with N hidden units)", r"linear(?:-(\d+))?")
    def linear(hidden: str | None, *, classes: int, channels: int) -> nn.Module:
        middle = int(hidden or 1)
        return nn.Sequential(nn.Linear(channels, middle), nn.Linear(middle, classes))

    model = build_network("linear-6", classes=4, channels=2)
    assert size(model) == 3 * 6 + 7 * 4
    assert "linear (or linear-N with N hidden units)" in network_forms()


@pytest.mark.usefixtures("own_registry")
def test_a_new_file_is_all_that_a_new_network_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brand_new.py").write_text(
        "from torch import nn\n"
        "from upright.models.registry import network\n"
        "@network('brand-new', 'brand-new')\n"
        "def build(*, classes, channels):\n"
        "    return nn.Linear(channels, classes)\n"
    )
    monkeypatch.setattr(upright.models, "__path__", [*upright.models.__path__, str(tmp_path)])
    try:
        assert size(build_network("brand-new", classes=3, channels=5)) == 18
    finally:
        sys.modules.pop("upright.models.brand_new", None)
