"""Group convolutions: against the sum over the group written out, and under every element of it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.group_conv import (
    P4,
    P4M,
    Group,
    GroupBatchNorm,
    GroupConv,
    GroupPool,
    LiftingConv,
)

GROUPS = pytest.mark.parametrize("group", [P4, P4M], ids=["p4", "p4m"])


def noise(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def layer(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * noise(*parameter.shape, seed=3)
    return module


# --- the group, by coordinates --------------------------------------------------------------------


def matrix(element: int) -> tuple[int, int, int, int]:
    """The 2x2 matrix of an element on (x, y), y pointing up: a quarter turn takes x to y."""
    turned = {0: (1, 0, 0, 1), 1: (0, -1, 1, 0), 2: (-1, 0, 0, -1), 3: (0, 1, -1, 0)}[element % 4]
    a, b, c, d = turned
    return (-a, b, -c, d) if element >= 4 else turned  # the mirror negates x first


def times(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, int, int, int]:
    (a, b, c, d), (e, f, g, h) = p, q
    return (a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h)


MATRICES = [matrix(element) for element in range(8)]


def undone_then(element: int, then: int) -> int:
    """The number of s^-1 h: a rotation's or a mirror's inverse is its transpose."""
    a, b, c, d = MATRICES[element]
    return MATRICES.index(times((a, c, b, d), MATRICES[then]))


@GROUPS
def test_products_and_inverses_are_those_of_matrices(group: Group) -> None:
    for first in range(group.planes):
        inverse = MATRICES[group.inverse(first)]
        assert times(inverse, MATRICES[first]) == (1, 0, 0, 1)
        for then in range(group.planes):
            product = MATRICES[group.product(first, then)]
            assert product == times(MATRICES[then], MATRICES[first])


def test_an_element_mirrors_left_right_and_then_turns_counter_clockwise() -> None:
    image = torch.tensor([[1, 2], [3, 4]])
    assert P4M.act(image, 1).tolist() == [[2, 4], [1, 3]]
    assert P4M.act(image, 4).tolist() == [[2, 1], [4, 3]]
    assert P4M.act(image, 5).tolist() == P4M.act(P4M.act(image, 4), 1).tolist()


@GROUPS
def test_on_pixels_and_on_planes_elements_act_one_after_another(group: Group) -> None:
    features = noise(1, group.planes * 2, 3, 3)
    for first in range(group.planes):
        for then in range(group.planes):
            both = group.product(first, then)
            moved = group.act_on_planes(group.act_on_planes(features, first), then)
            assert torch.equal(moved, group.act_on_planes(features, both))


# --- the convolution, as a sum over the group and the plane ---------------------------------------


def by_hand(module: GroupConv | LiftingConv, x: Tensor, plane: int, out: int, at: int) -> float:
    """One value, at pixel (at, at): sum over h, y of x_h(y) * weight(s^-1 (y - at), s^-1 h)."""
    half, total = module.kernel // 2, float(module.bias[out])
    weight = module.weight.view(
        module.after, module.planes, module.kernel, module.kernel, module.before
    )
    a, b, c, d = MATRICES[plane]
    for h in range(module.planes):
        source = undone_then(plane, h) if module.planes > 1 else 0
        for right in range(-half, half + 1):
            for up in range(-half, half + 1):
                column, row = at + right, at - up
                if not (0 <= column < x.shape[-1] and 0 <= row < x.shape[-2]):
                    continue
                # The transpose: where the moved filter at (right, up) comes from.
                from_right, from_up = a * right + c * up, b * right + d * up
                taps = weight[out, source, half - from_up, half + from_right]
                channels = x[h * module.before : (h + 1) * module.before, row, column]
                total += float((taps * channels).sum())
    return total


@GROUPS
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("lifts", [True, False])
def test_each_value_is_the_sum_over_the_group(group: Group, kernel: int, lifts: bool) -> None:
    make = LiftingConv if lifts else GroupConv
    module = layer(lambda: make(group, 2, 3, kernel)).requires_grad_(False)
    assert isinstance(module, LiftingConv | GroupConv)
    x = noise(1, 2 * (1 if lifts else group.planes), 4, 4, seed=1)
    found = module(x)[0]
    for plane in range(group.planes):
        for out in range(3):
            for at in (0, 2):
                expected = by_hand(module, x[0], plane, out, at)
                assert float(found[plane * 3 + out, at, at]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("lifts", [True, False])
def test_gradients_are_those_of_finite_differences_twice(lifts: bool) -> None:
    make = LiftingConv if lifts else GroupConv
    module = layer(lambda: make(P4M, 1, 2, 3))
    assert isinstance(module, LiftingConv | GroupConv)
    x = noise(1, 1 if lifts else 8, 3, 3).requires_grad_()

    def run(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(module, {"weight": weight, "bias": bias}, (x,))

    inputs = (x, module.weight, module.bias)
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(lambda x, w: run(x, w, module.bias).square(), inputs[:2])


def test_half_precision_sums_the_gradient_in_single_precision() -> None:
    module = LiftingConv(P4M, 1, 1, 1)
    with torch.autocast("cpu", torch.bfloat16):
        filters = module.filters()
    assert filters.dtype == torch.bfloat16
    # 256 + 7 small ones: the small ones vanish one by one in bfloat16, whose step is 2 there.
    gradient = torch.tensor([256.0, *[1.0] * 7]).bfloat16().view(8, 1, 1, 1)
    filters.backward(gradient)
    assert module.weight.grad is not None
    assert module.weight.grad.item() == 263


def test_an_even_kernel_has_no_middle_to_turn_about() -> None:
    with pytest.raises(ValueError, match="2 is even"):
        GroupConv(P4, 1, 1, 2)


# --- each layer commutes with the group -----------------------------------------------------------


def chain(group: Group, kind: str) -> nn.Module:
    return nn.Sequential(
        LiftingConv(group, 2, 3, 3),
        GroupBatchNorm(group, 3),
        nn.ReLU(),
        GroupConv(group, 3, 2, 5),
        GroupPool(group, kind) if kind else nn.Identity(),
    )


@GROUPS
@pytest.mark.parametrize("kind", ["mean", "max", ""])
@pytest.mark.parametrize("training", [True, False])
def test_features_turn_with_the_image(group: Group, kind: str, training: bool) -> None:
    net = layer(lambda: chain(group, kind)).train(training)
    images = noise(2, 2, 6, 6)
    features = net(images)
    act = group.act if kind else group.act_on_planes
    for element in range(group.planes):
        moved = net(group.act(images, element))
        assert (moved - act(features, element)).abs().max() < 1e-12


@pytest.mark.parametrize(("size", "exact"), [(5, True), (7, True), (6, False)])
def test_a_stride_of_2_turns_with_the_image_on_odd_sizes_only(size: int, exact: bool) -> None:
    conv = layer(lambda: GroupConv(P4M, 1, 2, 3, stride=2))
    x = noise(1, 8, size, size)
    error = (conv(P4M.act_on_planes(x, 1)) - P4M.act_on_planes(conv(x), 1)).abs().max()
    assert (error < 1e-12) if exact else (error > 0.1)


# --- the norm -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_norm_has_one_scale_for_a_channel_and_statistics_over_images_planes_and_space(
    layout: torch.memory_format,
) -> None:
    norm = layer(lambda: GroupBatchNorm(P4M, 3))
    assert isinstance(norm, GroupBatchNorm)
    x = noise(2, 24, 4, 5).contiguous(memory_format=layout)
    planes = x.unflatten(1, (8, 3))
    mean = planes.mean((0, 1, 3, 4)).view(1, 1, 3, 1, 1)
    variance = planes.var((0, 1, 3, 4), correction=0).view(1, 1, 3, 1, 1)
    normal = (planes - mean) / (variance + 1e-5).sqrt()
    expected = normal * norm.weight.view(3, 1, 1) + norm.bias.view(3, 1, 1)
    found = norm(x)
    torch.testing.assert_close(found, expected.flatten(1, 2))
    assert found.is_contiguous(memory_format=layout)
    torch.testing.assert_close(norm.running_mean, 0.1 * mean.flatten())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_norm_is_that_of_planes_as_more_images(
    layout: torch.memory_format, training: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiled)
    norm, plain = layer(lambda: GroupBatchNorm(P4M, 3)), layer(lambda: nn.BatchNorm2d(3))
    norm.get_buffer("running_mean").copy_(noise(3))
    norm.get_buffer("running_var").copy_(noise(3).exp())
    plain.load_state_dict(norm.state_dict(), strict=False)
    norm.train(training), plain.train(training)
    # Far from zero, where a mean of squares less the square of the mean would lose its digits.
    x = (1000 + noise(2, 24, 4, 5)).contiguous(memory_format=layout).requires_grad_()
    weights = noise(2, 24, 4, 5)
    for _ in range(2):
        found = norm(x)
        expected = plain(x.reshape(16, 3, 4, 5)).view_as(found)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
        for name, buffer in norm.named_buffers():
            torch.testing.assert_close(buffer, plain.get_buffer(name))
        pairs = zip((x, *norm.parameters()), (x, *plain.parameters()), strict=True)
        for one, other in pairs:
            (slope,) = torch.autograd.grad((found * weights).sum(), one, retain_graph=True)
            (own,) = torch.autograd.grad((expected * weights).sum(), other, retain_graph=True)
            torch.testing.assert_close(slope, own, rtol=1e-9, atol=1e-9)


def test_a_compiled_norm_of_half_precision_computes_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    norm, x = GroupBatchNorm(P4, 2), (10 + noise(3, 8, 4, 4)).bfloat16()
    found = norm(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, norm(x.float()).bfloat16())


def test_a_norm_moves_no_memory_in_either_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    monkeypatch.setattr(nn.BatchNorm2d, "forward", lambda _, x: seen.append(x) or x)
    norm = GroupBatchNorm(P4M, 3)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = noise(2, 24, 4, 5).contiguous(memory_format=layout)
        assert norm(x).data_ptr() == x.data_ptr() == seen[-1].data_ptr()


def test_gradients_image_by_image_are_those_of_a_loop() -> None:
    net = layer(lambda: chain(P4M, "mean")).eval()
    weights, images = dict(net.named_parameters()), noise(3, 2, 5, 5)

    def loss(weights: dict[str, Tensor], image: Tensor) -> Tensor:
        return torch.func.functional_call(net, weights, (image[None],)).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, images)
    for place, image in enumerate(images):
        one = torch.autograd.grad(loss(weights, image), list(weights.values()))
        for name, gradient in zip(weights, one, strict=True):
            torch.testing.assert_close(found[name][place], gradient)


# --- filters that are kept are never stale --------------------------------------------------------


def quiet() -> GroupConv:
    conv = layer(lambda: GroupConv(P4M, 2, 2, 3)).eval()
    assert isinstance(conv, GroupConv)
    return conv


def expected(conv: GroupConv, x: Tensor) -> Tensor:
    """What a copy that never kept anything gives."""
    fresh = GroupConv(P4M, 2, 2, 3).to(conv.weight.dtype).train()
    fresh.load_state_dict(conv.state_dict())
    with torch.no_grad():
        return fresh(x)


def test_in_evaluation_filters_are_expanded_once() -> None:
    conv = quiet()
    with torch.no_grad():
        assert conv.filters() is conv.filters()
        conv.train()
        assert conv.filters() is not conv.filters()


def add_in_place(conv: GroupConv) -> None:
    with torch.no_grad():
        conv.weight += 1


def add_through_data(conv: GroupConv) -> None:
    conv.weight.data += 1  # which no count of versions sees


def replace_data(conv: GroupConv) -> None:
    conv.weight.data = conv.weight.data + 1


def replace_the_parameter(conv: GroupConv) -> None:
    conv.weight = nn.Parameter(conv.weight.detach() + 1)


def take_a_step(conv: GroupConv) -> None:
    conv.train()
    conv(noise(1, 16, 5, 5)).square().sum().backward()
    torch.optim.SGD(conv.parameters(), 0.1).step()
    conv.eval()


def take_a_step_without_a_word(conv: GroupConv) -> None:
    conv.training = True
    conv(noise(1, 16, 5, 5)).square().sum().backward()
    torch.optim.SGD(conv.parameters(), 0.1).step()
    conv.training = False


def load_others(conv: GroupConv) -> None:
    conv.load_state_dict({key: value + 1 for key, value in conv.state_dict().items()})


def to_float32_and_back(conv: GroupConv) -> None:
    conv.float().double()


@pytest.mark.parametrize(
    "change",
    [
        add_in_place,
        add_through_data,
        replace_data,
        replace_the_parameter,
        take_a_step,
        take_a_step_without_a_word,
        load_others,
        to_float32_and_back,
    ],
)
def test_filters_are_expanded_anew_when_the_weight_changed(
    change: Callable[[GroupConv], None],
) -> None:
    conv, x = quiet(), noise(1, 16, 5, 5)
    with torch.no_grad():
        before = conv(x)
    change(conv)
    with torch.no_grad():
        after = conv(x)
    assert torch.equal(after, expected(conv, x))
    assert not torch.equal(after, before)


def test_filters_are_kept_for_one_precision_at_a_time() -> None:
    conv, x = quiet().float(), noise(1, 16, 5, 5).float()
    with torch.no_grad():
        single = conv(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert conv(x).dtype == torch.bfloat16
        assert torch.equal(conv(x), single)
        assert conv.double()(x.double()).dtype == torch.float64


def test_a_gradient_of_the_weight_passes_by_what_is_kept() -> None:
    conv, x = quiet(), noise(1, 16, 5, 5)
    with torch.no_grad():
        conv(x)
    conv(x).sum().backward()
    assert conv.weight.grad is not None
    assert conv.weight.grad.any()


def test_filters_of_an_inference_serve_a_later_search_with_gradients() -> None:
    conv, x = quiet().requires_grad_(False), noise(1, 16, 5, 5)
    with torch.inference_mode():
        conv(x)
    x.requires_grad_()
    conv(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.autograd.grad(expected_graph(conv, x), x)[0])


def expected_graph(conv: GroupConv, x: Tensor) -> Tensor:
    filters = conv._expand(conv.weight.dtype)
    return F.conv2d(x, filters, conv.bias.repeat(8), padding=1).sum()


@pytest.mark.parametrize("training", [True, False])
def test_shapes_are_found_without_numbers(training: bool) -> None:
    conv = GroupConv(P4M, 2, 3, 3).to("meta").train(training)
    assert conv(torch.empty(4, 16, 5, 5, device="meta")).shape == (4, 24, 5, 5)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_do_not_carry_what_is_kept(duplicate: Callable[[nn.Module], nn.Module]) -> None:
    conv = quiet()
    with torch.no_grad():
        conv.filters()
    other = duplicate(conv)
    assert isinstance(other, GroupConv)
    assert other._kept is None
    assert torch.equal(other.weight, conv.weight)


def test_the_state_has_the_weights_alone() -> None:
    conv = quiet()
    with torch.no_grad():
        conv.filters()
    assert set(conv.state_dict()) == {"weight", "bias"}
