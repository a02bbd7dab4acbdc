"""Scores in tiles that fit: lacks of memory that pass, those that stay, and how they are told."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bar_images import bars, trained_network
from rigid_spaces import rigid
from upright import Evaluation, GridSearch, Pose, SpatialPGD, evaluate
from upright.tiles import Room, Tiles, images_on_a_gpu, is_out_of_memory

COUNT = 40


class Machine:
    """Scores a pose by a sum; now and then, and above a size, there is no memory for it."""

    def __init__(self, seed: int, failing: float = 0.0, fits: float = float("inf")) -> None:
        self.random, self.failing, self.fits = random.Random(seed), failing, fits
        self.sizes: list[int] = []
        self.failures = 0

    def __call__(self, poses: Pose, rows: slice) -> Tensor:
        index = torch.arange(COUNT)[rows]
        value = poses.values.sum(-1) + index
        if self.random.random() < self.failing or value.numel() > self.fits:
            self.failures += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.sizes.append(value.numel())
        return value


def score(machine: Machine, room: Room, *, shared: bool = True, tries: int = 60) -> Tensor:
    shape = (tries, 1) if shared else (tries, COUNT)
    pose = Pose(torch.rand(*shape, 3, generator=torch.Generator().manual_seed(0)))
    found = Tiles(room, COUNT, torch.device("cpu"), machine)(pose)
    torch.testing.assert_close(found, pose.values.sum(-1) + torch.arange(COUNT))
    return found


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("failing", [0.002, 0.05])
def test_failures_that_pass_end_nothing(failing: float, shared: bool) -> None:
    """Twenty of twenty, with batches of two: two failures were enough to give up."""
    failures = 0
    for seed in range(20):
        machine, room = Machine(seed, failing), Room(2)
        score(machine, room, shared=shared, tries=20)
        failures += machine.failures
    assert failures > 20 * (COUNT * 20 / 2) * failing / 2


def test_batches_grow_again_after_a_lack_that_passed() -> None:
    machine, room = Machine(0), Room(32)
    machine.fits = 3
    score(machine, room, tries=5)
    assert max(machine.sizes) <= 3
    machine.fits = float("inf")
    score(machine, room)
    assert room.batch_size == max(machine.sizes) == 32


def test_a_lack_that_stays_is_met_less_and_less_often() -> None:
    machine, room = Machine(0, fits=5), Room(32)
    for _ in range(8):
        score(machine, room)
    assert len(machine.sizes) > 4000
    assert machine.failures < 15


def test_a_single_image_is_tried_a_few_times_and_then_given_up() -> None:
    machine = Machine(0, fits=0)
    with pytest.raises(MemoryError, match="single image; use a smaller model, smaller images"):
        score(machine, Room(1))
    assert machine.failures == 5


def test_an_evaluation_is_the_same_with_failures_also_of_gradients() -> None:
    """A failure after the model has answered, as of its way back, counts no pass twice."""
    images, labels = (part[:20] for part in bars(1100, seed=4))
    chance = random.Random(5)

    class Fragile(torch.autograd.Function):
        @staticmethod
        def forward(_: object, logits: Tensor) -> Tensor:
            return logits.clone()

        @staticmethod
        def backward(_: object, *slopes: Tensor) -> Tensor:
            if chance.random() < 0.1:
                raise RuntimeError("CUDA error: out of memory")
            return slopes[0]

    def fragile(images: Tensor) -> Tensor:
        if chance.random() < 0.05:
            raise MemoryError
        answer: Tensor = Fragile.apply(trained_network()(images))
        return answer

    def measure(model: Callable[[Tensor], Tensor]) -> Evaluation:
        attacks = [GridSearch((2, 2, 3)), SpatialPGD(steps=2)]
        space = rigid(1, 15)
        return evaluate(model, (images, labels), attacks=attacks, space=space, batch_size=4)

    expected, found = measure(trained_network()), measure(fragile)
    for name, result in expected.attacks.items():
        other = found.attacks[name]
        assert torch.equal(result.correct, other.correct)
        assert result.forward_passes == other.forward_passes
        torch.testing.assert_close(result.worst_loss, other.worst_loss, rtol=0, atol=1e-12)


class Fail(Exception):  # noqa: N818
    """As onnxruntime's own: no RuntimeError."""


@pytest.mark.parametrize(
    "words",
    [
        "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Conv node. "
        "Name:'y_nchwc' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:"
        "360 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) "
        "Failed to allocate memory for requested buffer of size 327680000",
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
        "Conv node. Name:'y_nchwc' Status Message: std::bad_alloc",
        "Available memory of 1048576 is smaller than requested bytes of 4194304",
        "CUDA failure 2: out of memory ; GPU=0",
        "CUDNN failure 4: CUDNN_STATUS_ALLOC_FAILED",
    ],
    ids=["arena", "malloc", "limit", "cuda", "cudnn"],
)
def test_the_words_of_runtimes_for_a_lack_of_memory_are_known(words: str) -> None:
    assert is_out_of_memory(Fail(words))
    machine, room = Machine(0), Room(8)

    def first_fails(poses: Pose, rows: slice) -> Tensor:
        if not machine.sizes and not machine.failures:
            machine.failures += 1
            raise Fail(words)
        return machine(poses, rows)

    Tiles(room, COUNT, torch.device("cpu"), first_fails)(Pose.zeros(1, 1))
    assert machine.sizes[0] == 4


def test_other_errors_are_passed_on_as_they_are() -> None:
    def broken(poses: Pose, rows: slice) -> Tensor:
        raise Fail(f"invalid graph for {len(poses)} poses of {rows}")

    with pytest.raises(Fail, match="invalid graph"):
        Tiles(Room(8), COUNT, torch.device("cpu"), broken)(Pose.zeros(1, 1))


@pytest.mark.parametrize(
    ("side", "most"), [(8, 131_072), (32, 8192), (64, 2048), (128, 512), (224, 512), (512, 128)]
)
def test_a_gpu_gets_batches_that_outlast_their_launches(side: int, most: int) -> None:
    assert images_on_a_gpu(torch.empty(1, 3, side, side)) == most
