"""One run on two processes is the run of one process, and only one of them writes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from augmented import augment
from rank_pool import FailedError, RankPool
from rigid_spaces import rigid_box
from tiny_runs import Mishaps, WithMishaps, build_tiny, colours, lines, names, sending, tiny_recipe
from upright import PAPER
from upright.attacks import RandomSearch, RefiningSearch
from upright.models import NETWORKS, network, network_forms
from upright.pose import Pose
from upright.ranks import ALONE, Ranks
from upright.train import PLAIN, Recipe, RunDirectory, SlowPath, Speed, TrainedRun, loop, train
from upright.train.parallel import OfPart
from upright.uniform import uniform

OPTIONS = {"checkpoint_every": 3, "log_every": 2}
MISHAPS: Mishaps = {}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    with RankPool(tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@pytest.fixture(autouse=True)
def networks(monkeypatch: pytest.MonkeyPatch) -> None:
    network_forms()
    monkeypatch.setattr(NETWORKS, "_entries", dict(NETWORKS._entries))
    register(on_this_rank={})


def register(*, on_this_rank: Mishaps) -> None:
    """Make the networks of these tests known, once in a process, and set their mishaps."""
    MISHAPS.clear()
    MISHAPS.update(on_this_rank)
    if "plain" not in network_forms():
        network("tiny", "tiny")(partial(build_tiny, MISHAPS, None))
        network("plain", "plain")(build_plain)


def build_plain(*, classes: int, channels: int) -> nn.Module:
    """A network without statistics of the batch."""
    return nn.Sequential(
        WithMishaps(MISHAPS),
        nn.Conv2d(channels, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, classes),
    )


def take(
    ranks: Ranks, folder: Path, recipe: Recipe, signals: dict[int, int], options: dict[str, Any]
) -> tuple[int, dict[str, Tensor]]:
    """Train on all ranks; rank 1 has a folder of its own that nobody should need, and the signals.

    A signal comes twice, in the middle of a step.
    """
    mishaps = {step: partial(get_signal, number) for step, number in signals.items()}
    register(on_this_rank=mishaps if ranks.rank == 1 else {})
    out = folder if ranks.leads else folder / "not-mine"
    run = train(recipe, out, data=colours(), ranks=ranks, **OPTIONS, **options)
    return run.step, run.model.state_dict()


def get_signal(number: int, images: Tensor) -> Tensor:
    for _ in range(2):
        os.kill(os.getpid(), number)
    return images


def together(
    pool: RankPool, folder: Path, signals: dict[int, int] | None = None, **changes: Any
) -> list[tuple[int, dict[str, Tensor]]]:
    """Follow the tiny recipe on both ranks."""
    options = {name: changes.pop(name) for name in ("resume", "sync_batch_norm") if name in changes}
    return pool.run(take, folder, tiny_recipe(**changes), signals or {}, options)


def alone(folder: Path, **changes: Any) -> TrainedRun:
    resume = changes.pop("resume", False)
    return train(tiny_recipe(**changes), folder, data=colours(), resume=resume, **OPTIONS)


def difference(one: Path, other: Path) -> float:
    """The largest difference between two runs' newest weights, buffers or momenta."""
    tensors = []
    for folder in (one, other):
        checkpoint = RunDirectory.open(folder).load()
        assert checkpoint is not None
        assert checkpoint.step == 12
        tensors.append(checkpoint.tensors)
    assert tensors[0].keys() == tensors[1].keys()
    return max(float((tensors[0][name] - tensors[1][name]).abs().max()) for name in tensors[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "KL(rob, Wo-2)", "model": "plain"},
        {"objective": "KL-C(mix, S-PGD)", "model": "plain"},
        {"objective": "L2(mix, rnd×3)", "model": "plain", "batch": 10},
        {"objective": "std", "model": "tiny", "sync_batch_norm": True},
        {"objective": "KL(rob, Wo-2)", "model": "resnet8x0.25", "sync_batch_norm": True},
    ],
    ids=lambda changes: f"{changes['objective']} {changes['model']}",
)
def test_two_ranks_take_the_steps_of_one_process_also_with_an_odd_batch(
    pool: RankPool, tmp_path: Path, changes: dict[str, Any]
) -> None:
    ranks = together(pool, tmp_path / "two", **changes)
    changes.pop("sync_batch_norm", None)
    alone(tmp_path / "one", **changes)
    assert difference(tmp_path / "one", tmp_path / "two") < 1e-5
    for name, tensor in ranks[0][1].items():
        assert torch.equal(tensor, ranks[1][1][name]), name  # ranks never drift apart
    for one, other in zip(lines(tmp_path / "one"), lines(tmp_path / "two"), strict=True):
        one.pop("images_per_second")
        other.pop("images_per_second")
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)


def test_rank_0_alone_writes(pool: RankPool, tmp_path: Path) -> None:
    together(pool, tmp_path / "run")
    assert not (tmp_path / "run" / "not-mine").exists()
    assert len(names(tmp_path / "run")) == 4
    assert [line["step"] for line in lines(tmp_path / "run")] == [2, 4, 6, 8, 10, 12]


def test_without_global_norms_each_rank_normalises_its_own_images(
    pool: RankPool, tmp_path: Path
) -> None:
    ranks = together(pool, tmp_path / "two", model="tiny")
    alone(tmp_path / "one", model="tiny")
    assert difference(tmp_path / "one", tmp_path / "two") > 1e-4
    for name, tensor in ranks[0][1].items():
        assert torch.equal(tensor, ranks[1][1][name]), name


def test_a_run_of_two_ranks_stops_at_one_step_and_continues_on_one(
    pool: RankPool, tmp_path: Path
) -> None:
    alone(tmp_path / "unbroken", model="plain")
    stopped = together(pool, tmp_path / "run", {5: signal.SIGTERM}, model="plain")
    assert [step for step, _ in stopped] == [5, 5]
    assert names(tmp_path / "run")[-1] == "00000005.safetensors"
    assert alone(tmp_path / "run", resume=True, model="plain").finished
    assert difference(tmp_path / "unbroken", tmp_path / "run") < 1e-5


def test_a_run_of_one_process_continues_on_two_ranks(pool: RankPool, tmp_path: Path) -> None:
    alone(tmp_path / "unbroken", model="plain")
    MISHAPS[5] = sending(signal.SIGTERM)
    assert alone(tmp_path / "run", model="plain").step == 5
    ended = together(pool, tmp_path / "run", resume=True, model="plain")
    assert [step for step, _ in ended] == [12, 12]
    assert difference(tmp_path / "unbroken", tmp_path / "run") < 1e-5


def test_a_rank_that_is_killed_ends_the_others_and_costs_the_steps_since_the_checkpoint(
    tmp_path: Path,
) -> None:
    alone(tmp_path / "unbroken", model="plain")
    (tmp_path / "pool").mkdir()
    with RankPool(tmp_path / "pool") as pool:
        recipe = tiny_recipe(model="plain")
        outcomes = pool.outcomes(take, tmp_path / "run", recipe, {8: signal.SIGKILL}, {})
    assert all(isinstance(outcome, FailedError) for outcome in outcomes)
    assert "hangs" not in f"{outcomes}"
    assert names(tmp_path / "run")[-1] == "00000006.safetensors"
    assert alone(tmp_path / "run", resume=True, model="plain").finished
    assert difference(tmp_path / "unbroken", tmp_path / "run") < 1e-5


def test_what_rank_0_finds_wrong_is_told_to_all(pool: RankPool, tmp_path: Path) -> None:
    together(pool, tmp_path / "run", model="plain")
    other = tiny_recipe(model="plain", seed=1)
    for outcome in pool.outcomes(take, tmp_path / "run", other, {}, {}):
        assert "belongs to another recipe" in str(outcome)


def test_a_batch_with_fewer_images_than_ranks_is_refused(pool: RankPool, tmp_path: Path) -> None:
    for outcome in pool.outcomes(take, tmp_path / "run", tiny_recipe(batch=1), {}, {}):
        assert "a batch of 1 images cannot be shared by 2 processes; start fewer" in str(outcome)
    assert not (tmp_path / "run").exists()


def test_on_a_gpu_several_ranks_take_the_plain_path_and_say_so() -> None:
    gpu, graph = torch.device("cuda"), Speed(compile=False, kernels=False)
    with pytest.warns(SlowPath, match="2 processes share the step"):
        assert loop._possible_speed(graph, gpu, Ranks(0, 2)) == PLAIN
    assert loop._possible_speed(graph, gpu, ALONE) == graph


@given(count=st.integers(1, 40), size=st.integers(1, 9))
def test_parts_cover_a_batch_once_and_differ_by_one_image_at_most(count: int, size: int) -> None:
    parts = [Ranks(rank, size).part(count) for rank in range(size)]
    everything = torch.arange(count)
    assert torch.cat([part.take(everything) for part in parts]).equal(everything)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(times=st.integers(1, 3), size=st.integers(1, 4), unit=st.sampled_from(["px", "image"]))
def test_draws_do_not_depend_on_the_number_of_ranks(times: int, size: int, unit: Any) -> None:
    batch, space = 7, rigid_box(max_dx=0.1, max_dy=0.2, max_angle=30, unit=unit)
    images = torch.rand(batch, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    recipe = Recipe(objective="std")

    def draw(ranks: Ranks) -> tuple[Pose, Tensor]:
        part = ranks.part(batch)
        generator = OfPart.on(torch.device("cpu"), part).manual_seed(1)
        drawn = space.in_pixels(8, 8).sample(times * len(part), 4, generator=generator)
        return drawn, augment(part.take(images), recipe, generator)

    whole, augmented = draw(ALONE)
    parts = [draw(Ranks(rank, size)) for rank in range(size)]
    by_time = torch.cat([pose.values.unflatten(0, (times, -1)) for pose, _ in parts], 1)
    assert by_time.flatten(0, 1).equal(whole.values)
    assert torch.cat([mine for _, mine in parts]).equal(augmented)


def test_what_is_for_no_images_is_drawn_on_any_rank() -> None:
    generator = OfPart.on(torch.device("cpu"), Ranks(0, 2).part(8))
    assert uniform(0, 2, generator=generator).shape == (0, 2)


@pytest.mark.parametrize("attack", [RandomSearch(10), RefiningSearch(20, True)])
def test_searches_draw_for_each_rank_what_its_images_get_in_the_whole_batch(
    attack: RandomSearch | RefiningSearch,
) -> None:
    def tried(ranks: Ranks) -> Tensor:
        part = ranks.part(8)
        generator = OfPart.on(torch.device("cpu"), part).manual_seed(7)
        if isinstance(attack, RandomSearch):
            return attack.candidates(PAPER, len(part), generator=generator).values
        poses = attack.begin(PAPER, len(part), generator=generator).propose()
        assert poses is not None
        return poses.values

    first, second = tried(Ranks(0, 2)), tried(Ranks(1, 2))
    assert torch.cat((first, second), 1).equal(tried(ALONE))
    assert not first.equal(second)
