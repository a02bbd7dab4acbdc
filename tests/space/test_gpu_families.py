"""Families on a GPU give what they give on a CPU, in kernels too. These tests need a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from random_inputs import MIXED
from upright import Pose, Space, warp
from upright.families import FAMILIES, Spatial
from upright.resample import has_kernel
from upright.transforms import Random

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

CUDA = "cuda"
SPATIAL = [name for name, kind in FAMILIES.items() if issubclass(kind, Spatial)]
CHAINS = [
    "shift(3px) rotate(30)",
    "shift(3px) rotate(30) zoom(0.8..1.2)",
    "shift(3px) rotate(30) zoom(0.8..1.2) shear perspective",
    "rotate(30) shift(3px)",
    MIXED,
]
every_text = pytest.mark.parametrize("text", [*FAMILIES, *CHAINS])
every_way = pytest.mark.parametrize(
    "way", [{}, {"view": 20}, {"view": 21}, {"fill": "border"}, {"fill": "#ff8000"}], ids=str
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images_of(count: int = 5, size: tuple[int, int] = (40, 27)) -> Tensor:
    return torch.rand(count, 3, *size, generator=generator())


def test_these_images_go_through_kernels() -> None:
    assert has_kernel(images_of().to(CUDA))


@every_text
@every_way
@pytest.mark.parametrize("shape", [(5,), (1,), (3, 5), (3, 1)])
def test_images_and_slopes_on_the_gpu_are_those_on_the_cpu(
    text: str, way: dict[str, Any], shape: tuple[int, ...]
) -> None:
    space, images = Space.of(text), images_of()
    values = space.sample(*shape, generator=generator(1)).values
    found = []
    for device in ("cpu", CUDA):
        leaf = values.to(device).requires_grad_()
        moved = warp(images.to(device), Pose(leaf, space.chain), **way)
        ways = torch.linspace(-1, 1, moved.numel()).mul(50).sin().view_as(moved).to(device)
        (slope,) = torch.autograd.grad((moved * ways).sum(), leaf)
        found.append((moved.detach().cpu(), slope.cpu()))
    (exact, slope), (moved, gradient) = found
    torch.testing.assert_close(moved, exact, rtol=0, atol=5e-5)
    assert (gradient - slope).norm() <= 2e-3 * slope.norm() + 1e-3


@every_text
@pytest.mark.parametrize("view", [None, 20, 21])
def test_zero_is_the_identity_bit_for_bit(text: str, view: int | None) -> None:
    images, space = images_of().to(CUDA), Space.of(text)
    expected = warp(images, Space.of("brightness").zeros(1), view=view)
    for shape in ((1,), (5,)):
        assert warp(images, space.zeros(*shape, device=CUDA), view=view).equal(expected)


@every_text
@pytest.mark.parametrize("view", [None, 20])
def test_a_graph_holds_images_and_slopes(text: str, view: int | None) -> None:
    space, images = Space.of(text), images_of().to(CUDA)
    leaf = space.sample(5, generator=generator(1)).values.to(CUDA).requires_grad_()

    def slope() -> tuple[Tensor, Tensor]:
        moved = warp(images, Pose(leaf, space.chain), view=view)
        return moved, torch.autograd.grad(moved.square().sum(), leaf)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            slope()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        recorded = slope()
    for seed in (2, 3):
        with torch.no_grad(), torch.cuda.stream(stream):
            leaf.copy_(space.sample(5, generator=generator(seed)).values)
        with torch.cuda.stream(stream):  # on which the leaf's slope was first accumulated
            graph.replay()
            plain = slope()
        stream.synchronize()
        for found, expected in zip(recorded, plain, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@every_text
def test_nothing_waits_for_the_gpu(text: str) -> None:
    space, images = Space.of(text), images_of().to(CUDA)
    draws = torch.Generator(CUDA).manual_seed(0)
    warp(images, space.sample(5, generator=draws))
    try:
        torch.cuda.set_sync_debug_mode("error")
        warp(images, space.sample(5, generator=draws))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_transform_draws_where_the_images_are() -> None:
    images, transform = images_of().to(CUDA), Random(MIXED, view=20)
    before = torch.get_rng_state()
    moved = transform(images)
    assert torch.get_rng_state().equal(before)
    assert moved.is_cuda
    assert moved.shape == (5, 3, 20, 20)
    on_cpu = Random(MIXED, view=20, generator=generator(2))(images)
    poses = Space.of(MIXED).sample(5, generator=generator(2))
    torch.testing.assert_close(on_cpu, warp(images, poses, view=20))
