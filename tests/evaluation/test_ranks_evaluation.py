"""An evaluation on two processes is that of one, bit for bit, whoever continues it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bar_images import bars, trained_network
from rank_pool import FailedError, RankPool
from rigid_spaces import rigid
from upright import Evaluation, GridSearch, RandomSearch, RefiningSearch, SpatialPGD, evaluate
from upright.ranks import Ranks

OPTIONS: dict[str, Any] = {
    "attacks": [
        GridSearch((2, 2, 3)),
        RandomSearch(3),
        SpatialPGD(steps=2),
        RefiningSearch(16, True),
    ],
    "space": rigid(1, 15),
    "batch_size": 64,
}
CHUNK = 512  # images; see evaluation/stream.py
LOOKS = 64 + 16  # images that a model is asked about first, and some of them once more
DATA = bars(2 * CHUNK + 37, seed=4)  # three chunks for two ranks


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    with RankPool(tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@dataclass
class Machine:
    """A network on a machine that may fail."""

    network: nn.Module
    calls_left: float = float("inf")
    images: int = 0

    def __call__(self, images: Tensor) -> Tensor:
        if self.calls_left <= 0:
            raise ZeroDivisionError("the machine failed")
        self.calls_left -= 1
        self.images += len(images)
        logits: Tensor = self.network(images)
        return logits


def measure(
    ranks: Ranks, network: nn.Module, calls: list[float], options: dict[str, Any]
) -> tuple[int, Evaluation]:
    """Evaluate on all ranks; give also how many images this one sent through the network."""
    machine = Machine(network, calls[ranks.rank])
    try:
        evaluation = evaluate(machine, DATA, ranks=ranks, **OPTIONS, **options)
        return machine.images, evaluation
    except ZeroDivisionError:
        os._exit(1)


def assert_same(one: Evaluation, other: Evaluation) -> None:
    assert one.classes == other.classes
    for name in ("natural_correct", "natural_loss", "labels"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert list(one.attacks) == list(other.attacks)
    for name, mine in one.attacks.items():
        theirs = other.attacks[name]
        assert mine.forward_passes == theirs.forward_passes
        assert torch.equal(mine.correct, theirs.correct)
        assert (mine.estimate is None) == (theirs.estimate is None)
        if mine.estimate is not None and theirs.estimate is not None:
            for part in ("safe", "safe_early", "went_below"):
                assert getattr(mine.estimate, part).equal(getattr(theirs.estimate, part))
        assert torch.equal(stacked(mine.worst_pose), stacked(theirs.worst_pose))
        assert torch.equal(mine.worst_loss, theirs.worst_loss)
        assert (mine.fooled is None) == (theirs.fooled is None)
        if mine.fooled is not None and theirs.fooled is not None:
            assert torch.equal(mine.fooled.bits, theirs.fooled.bits)
            assert torch.equal(stacked(mine.fooled.poses), stacked(theirs.fooled.poses))


def stacked(pose: Any) -> Tensor:
    assert pose is not None
    found: Tensor = pose.values
    return found


@pytest.fixture(scope="module")
def expected() -> Evaluation:
    return evaluate(trained_network(), DATA, **OPTIONS)


def run(
    pool: RankPool, *, calls: tuple[float, ...] = (float("inf"),) * 3, **options: Any
) -> list[Any]:
    return pool.outcomes(measure, trained_network(), list(calls), options)


def test_shards_merge_to_the_very_evaluation_of_one_process(
    pool: RankPool, expected: Evaluation
) -> None:
    (first, one), (second, other) = run(pool)
    assert_same(one, expected)
    assert_same(other, expected)
    looks = 2 * LOOKS  # on each rank
    passes = sum(attack.forward_passes for attack in expected.attacks.values())
    assert first + second == passes + len(DATA[0]) + looks


def test_accuracy_alone_is_that_of_one_process(pool: RankPool, expected: Evaluation) -> None:
    for _, evaluation in run(pool, only_accuracy=True):
        for name, attack in evaluation.attacks.items():
            assert torch.equal(attack.correct, expected.attacks[name].correct)


def test_ranks_without_any_chunk_give_the_whole_result_too(pool: RankPool) -> None:
    alone = evaluate(trained_network(), DATA, limit=5, **OPTIONS)
    for _, evaluation in run(pool, limit=5):
        assert_same(evaluation, alone)


def test_a_state_of_two_ranks_is_continued_by_one_process(
    tmp_path: Path, expected: Evaluation
) -> None:
    state = tmp_path / "state"
    with RankPool(tmp_path) as pool:  # rank 0 fails after its three looks, in its first chunk
        outcomes = run(pool, calls=(3, float("inf")), state=state)
    assert all(isinstance(outcome, FailedError) for outcome in outcomes)
    assert "hangs" not in f"{outcomes}"
    assert [file.name for file in tmp_path.glob("state*")] == ["state.rank-1"]
    machine = Machine(trained_network())
    assert_same(evaluate(machine, DATA, state=state, **OPTIONS), expected)
    passes = 1 + 12 + 3 + 3 + 16
    left = (machine.images - LOOKS) / passes
    assert left in (37, CHUNK)  # a chunk, whichever rank 0 had
    assert [file.name for file in tmp_path.glob("state*")] == ["state"]


def test_a_state_of_one_process_is_continued_by_two_ranks(
    pool: RankPool, tmp_path: Path, expected: Evaluation
) -> None:
    state = tmp_path / "state"
    machine = Machine(trained_network(), calls_left=451)
    with pytest.raises(ZeroDivisionError):
        evaluate(machine, DATA, state=state, **OPTIONS)
    (first, one), (second, other) = run(pool, state=state)
    assert_same(one, expected)
    assert_same(other, expected)
    assert first + second == (CHUNK + 37) * (1 + 12 + 3 + 3 + 16) + 2 * LOOKS
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    assert_same(evaluate(Machine(trained_network(), 3), DATA, state=state, **OPTIONS), expected)


def test_a_state_of_another_question_is_refused_on_all_ranks(
    pool: RankPool, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    evaluate(Machine(trained_network()), DATA, state=state, limit=5, **OPTIONS)
    for outcome in run(pool, state=state, limit=6):
        assert "belongs to another evaluation (other limit)" in str(outcome)


def wrapped(ranks: Ranks, images: int, together: bool) -> list[float] | None:
    """Evaluate in torch's wrapper, which sends buffers round: all ranks, or one by itself."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(4))
    network.double()
    part = (DATA[0][:images], DATA[1][:images])
    network(part[0][:2])
    model = DistributedDataParallel(network)
    model(part[0][:2]).sum().backward()  # after a step of training, as in a loop
    if not (together or ranks.leads):
        return None
    found = evaluate(
        model.eval(),
        part,
        attacks=[GridSearch((1, 1, 3)), SpatialPGD(steps=2)],
        space=OPTIONS["space"],
        only_accuracy=True,
        ranks=ranks if together else Ranks(),
    )
    return [each.accuracy for each in found.attacks.values()]


@pytest.mark.parametrize("images", [40, len(DATA[1])], ids=["one chunk", "more chunks than ranks"])
def test_a_wrapped_network_is_asked_without_a_word_to_other_ranks(
    pool: RankPool, images: int
) -> None:
    one, other = pool.run(wrapped, images, True)
    alone, nothing = pool.run(wrapped, images, False)
    assert one == other == alone != nothing
