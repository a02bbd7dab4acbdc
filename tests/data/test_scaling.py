"""The simulation behind docs/scaling.md: its limits, where the answer is known without it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module as load
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WORKS = st.lists(st.floats(0.1, 10), min_size=1, max_size=40)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(size=st.floats(0, 1e10), speed=st.floats(1e6, 1e12), latency=st.floats(0, 1e-3))
def test_one_rank_reduces_nothing(size: float, speed: float, latency: float) -> None:
    assert load("simulation").Link(speed, latency).all_reduce(size, 1) == 0


@given(size=st.floats(1e6, 1e10), ranks=st.integers(2, 4096))
def test_without_latency_a_ring_moves_just_under_twice_the_bytes(size: float, ranks: int) -> None:
    seconds = load("simulation").Link(1e9).all_reduce(size, ranks)
    assert seconds == pytest.approx(2 * size / 1e9 * (ranks - 1) / ranks)


@given(ranks=st.integers(2, 4096))
def test_a_small_message_takes_the_latency_of_a_tree(ranks: int) -> None:
    seconds = load("simulation").Link(latency=1e-5).all_reduce(4, ranks)
    assert seconds == pytest.approx(2e-5 * math.ceil(math.log2(ranks)))


@pytest.mark.parametrize("ranks", [1, 7, 64])
def test_an_ideal_network_and_equal_ranks_cost_nothing(ranks: int) -> None:
    simulation = load("simulation")
    step = simulation.Step(1.0, 0.2, gradient_bytes=1e9, norms=53, norm_bytes=1e4)
    ideal = simulation.step_time(step, simulation.Link(), ranks, jitter=0.0, rng=rng())
    assert ideal.total == 1.0
    uneven = simulation.step_time(step, simulation.Link(), ranks, jitter=0.1, rng=rng())
    assert (uneven.total > 1) == (ranks > 1)


def test_the_slowest_of_many_log_normal_times_is_what_integration_gives() -> None:
    simulation = load("simulation")
    step, ranks, jitter = simulation.Step(1.0, 0.0, gradient_bytes=0.0), 16, 0.2
    found = simulation.step_time(step, simulation.Link(), ranks, jitter=jitter, rng=rng()).total
    z = np.linspace(-8, 8, 20_001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = np.cumsum(density) * (z[1] - z[0])
    largest = ranks * density * below ** (ranks - 1) * np.exp(jitter * z - jitter**2 / 2)
    assert found == pytest.approx(largest.sum() * (z[1] - z[0]), rel=0.01)


@pytest.mark.parametrize("sharing", ["turns", "blocks", "first free"])
@given(works=WORKS, speed=st.floats(0.5, 2))
def test_one_rank_takes_the_serial_time(sharing: str, works: list[float], speed: float) -> None:
    seconds = load("simulation").makespan(works, [speed], sharing)
    assert seconds == pytest.approx(sum(works) / speed)


@given(works=WORKS, ranks=st.integers(1, 9))
def test_no_sharing_beats_the_ideal_and_first_free_keeps_grahams_bound(
    works: list[float], ranks: int
) -> None:
    simulation = load("simulation")
    ideal = sum(works) / ranks
    for sharing in ("turns", "blocks", "first free"):
        assert simulation.makespan(works, [1.0] * ranks, sharing) >= ideal * (1 - 1e-9)
    first_free = simulation.makespan(works, [1.0] * ranks, "first free")
    assert first_free <= ideal + (1 - 1 / ranks) * max(works) + 1e-9


@pytest.mark.parametrize("sharing", ["turns", "blocks", "first free"])
def test_equal_chunks_that_divide_are_shared_ideally(sharing: str) -> None:
    assert load("simulation").makespan([2.0] * 24, [1.0] * 8, sharing) == 6.0


def test_a_slow_rank_holds_up_turns_and_not_first_free() -> None:
    makespan, speeds = load("simulation").makespan, [0.5, 1.0, 1.0, 1.0]
    works = [1.0] * 700
    assert makespan(works, speeds, "turns") == 175 / 0.5
    assert makespan(works, speeds, "first free") == pytest.approx(700 / 3.5, abs=2)


def test_without_failures_a_run_takes_its_work_and_its_checkpoints() -> None:
    run = load("simulation").run_seconds
    options = {"write": 3.0, "restart": 50.0, "between_failures": math.inf, "rng": rng()}
    assert run(1000.0, interval=100.0, **options) == 1000 + 10 * 3


def test_with_failures_a_run_takes_what_the_exponential_law_gives() -> None:
    run, write, restart, apart, interval = load("simulation").run_seconds, 5.0, 20.0, 300.0, 100.0
    options = {"write": write, "restart": restart, "between_failures": apart}
    found = run(2_000_000.0, interval=interval, rng=rng(), **options)
    expected = 20_000 * (apart + restart) * math.expm1((interval + write) / apart)
    assert found == pytest.approx(expected, rel=0.02)


def test_youngs_interval_loses_least() -> None:
    simulation, write, apart = load("simulation"), 4.0, 20_000.0
    best = simulation.best_interval(write, apart)
    options = {"write": write, "restart": 0.0, "between_failures": apart}
    lost = {
        factor: simulation.run_seconds(5e7, interval=factor * best, rng=rng(), **options) / 5e7 - 1
        for factor in (0.4, 1.0, 2.5)
    }
    assert lost[1.0] < min(lost[0.4], lost[2.5])
    assert lost[1.0] == pytest.approx(math.sqrt(2 * write / apart), rel=0.1)


def test_passes_of_dropped_images_add_up() -> None:
    options = {"robust": 0.3, "tries": 10.0, "classes": 50}
    chunks = load("simulation").chunk_passes(20_000, 27, 775, rng=rng(), **options)
    assert len(chunks) == math.ceil(20_000 / 27)
    assert sum(chunks) / 20_000 == pytest.approx(1 + 0.3 * 775 + 0.7 * 10, rel=0.1)


def test_networks_have_the_weights_that_are_known_of_them() -> None:
    scaling = load("scaling")
    assert scaling.resnet50().parameters == 25_557_032
    assert scaling.vit_large(0.4).parameters == 304_326_632
    assert scaling.resnet50().norms == 53
    assert scaling.resnet50().forward_flop == pytest.approx(2 * 4.09e9, rel=0.01)
    assert scaling.vit_large(0.4).forward_flop == pytest.approx(2 * 61.6e9, rel=0.01)


def test_the_page_has_the_figures_that_the_program_prints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scaling, page = load("scaling"), (BENCHMARKS.parent / "docs" / "scaling.md").read_text()
    printed: list[str] = []

    def note(_title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        printed.extend("| " + " | ".join(row) + " |" for row in (columns, *rows))

    monkeypatch.setattr(scaling, "print_table", note)
    scaling.main([])
    assert len(printed) > 30
    assert [line for line in printed if line not in page.splitlines()] == []


def test_the_ratio_to_ideal_is_that_of_each_round() -> None:
    ranks = load("ranks")
    setting = ranks.Setting(2, 1, "resnet8", "grid-3x1x3", repeats=2, port=0)
    one, shared, apart = ranks.rows_of(setting, [8.0, 5.0, 4.0, 8.0, 10.0, 16.0])
    assert (one.ratio_to_ideal, shared.ratio_to_ideal, apart.ratio_to_ideal) == (1.0, 0.8, 1.0)
    assert one.passes_per_second == pytest.approx(1024 * 10 / 12)


@pytest.mark.slow
def test_processes_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    load("ranks").main(["--repeats", "1", "--model", "resnet8x0.25", "--attack", "rnd"])
    assert "2, sharing the images" in capsys.readouterr().out
