"""An evaluation that is stopped among the poses of its images goes on there, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bar_images import bars, trained_network
from rigid_spaces import rigid
from upright import Evaluation, GridSearch, RandomSearch, RefiningSearch, SpatialPGD, evaluate
from upright.evaluation import journal
from upright.evaluation.state import Piece, State, save_state
from upright.evaluation.state_files import StateFiles
from upright.ranks import Ranks

ATTACKS = [GridSearch((2, 2, 9)), RandomSearch(3), SpatialPGD(steps=2), RefiningSearch(18)]
DATA = bars(24, seed=4)  # a part of one chunk


class Killed(BaseException):
    """What nobody is told of before it happens."""


class Machine:
    """The trained network, which takes a second for each call, and may be switched off."""

    def __init__(
        self, seconds_left: float = float("inf"), end: type[BaseException] = KeyboardInterrupt
    ) -> None:
        self.seconds, self.seconds_left, self.end = 0.0, seconds_left, end

    def __call__(self, images: Tensor) -> Tensor:
        if self.seconds >= self.seconds_left:
            raise self.end
        self.seconds += 1
        logits = trained_network()(images)
        assert isinstance(logits, Tensor)
        return logits


def measure(machine: Machine, data: Any = DATA, **options: Any) -> Evaluation:
    settings: dict[str, Any] = {"attacks": ATTACKS, "space": rigid(1, 15), "batch_size": 5}
    return evaluate(machine, data, **settings | options)


def arrays(evaluation: Evaluation) -> dict[str, Any]:
    """All that was measured but the time."""
    found: dict[str, Any] = {"natural": evaluation.natural_loss}
    for name, result in evaluation.attacks.items():
        pose, fooled = result.worst_pose, result.fooled
        found |= {
            f"{name}/passes": torch.tensor(result.forward_passes),
            f"{name}/correct": result.correct,
            f"{name}/loss": result.worst_loss,
            f"{name}/class": result.worst_class,
            f"{name}/pose": None if pose is None else pose.values,
            f"{name}/bits": None if fooled is None else fooled.bits,
        }
    return {name: array for name, array in found.items() if array is not None}


def assert_equal(one: Evaluation, other: Evaluation) -> None:
    left, right = arrays(one), arrays(other)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.fixture
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "EVERY_SECONDS", 0.0)


@pytest.mark.usefixtures("written_at_once")
@pytest.mark.parametrize("part", [0.1, 0.4, 0.7, 0.97])
@pytest.mark.parametrize("only_accuracy", [False, True])
def test_stopped_inside_a_chunk_and_continued_is_never_stopped(
    tmp_path: Path, part: float, only_accuracy: bool
) -> None:
    unbroken, path = Machine(), tmp_path / "state"
    expected = measure(unbroken, only_accuracy=only_accuracy)
    stopped, continued = Machine(part * unbroken.seconds), Machine()
    with pytest.raises(KeyboardInterrupt):
        measure(stopped, only_accuracy=only_accuracy, state=path)
    assert not path.exists()  # no chunk is done
    found = measure(continued, only_accuracy=only_accuracy, state=path)
    assert_equal(found, expected)
    looks = 5 + 4  # at the model, before all
    assert stopped.seconds + continued.seconds <= unbroken.seconds + looks
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


@pytest.mark.usefixtures("written_at_once")
def test_stopped_again_and_again_it_ends(tmp_path: Path) -> None:
    expected, times = measure(Machine()), 0
    while True:
        try:
            found = measure(Machine(40), state=tmp_path / "state")
        except KeyboardInterrupt:
            times += 1
            continue
        break
    assert times > 3
    assert_equal(found, expected)


@pytest.mark.usefixtures("written_at_once")
@pytest.mark.parametrize("name", ["s-pgd", "refine-20+s-pgd"])
def test_a_climb_goes_on_wherever_it_was_stopped(tmp_path: Path, name: str) -> None:
    """Also inside a step, of which some slopes are remembered and others are not."""
    options: dict[str, Any] = {"attacks": [name], "batch_size": 16}
    unbroken = Machine()
    expected = measure(unbroken, **options)
    for seconds in range(4, int(unbroken.seconds)):
        state = tmp_path / f"{seconds}"
        with pytest.raises(KeyboardInterrupt):
            measure(Machine(seconds), state=state, **options)
        assert_equal(measure(Machine(), state=state, **options), expected)


def test_an_interrupt_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    stopped, unbroken, continued = Machine(60), Machine(), Machine()
    with pytest.raises(KeyboardInterrupt):
        measure(stopped, state=tmp_path / "state")
    assert_equal(measure(continued, state=tmp_path / "state"), measure(unbroken))
    looks = 5 + 4
    assert continued.seconds <= unbroken.seconds - 60 + 2 * looks


def test_of_a_minute_at_least_half_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, unbroken, continued = Machine(60, Killed), Machine(), Machine()
    monkeypatch.setattr(journal.time, "monotonic", lambda: stopped.seconds)
    with pytest.raises(Killed):
        measure(stopped, state=tmp_path / "state")
    expected = measure(unbroken)
    assert_equal(measure(continued, state=tmp_path / "state"), expected)
    looks = 5 + 4
    assert continued.seconds - looks <= unbroken.seconds - 30


@pytest.mark.usefixtures("written_at_once")
@pytest.mark.parametrize("only_accuracy", [False, True])
def test_batches_of_another_size_find_the_same(tmp_path: Path, only_accuracy: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure(Machine(60), only_accuracy=only_accuracy, state=tmp_path / "state")
    other: dict[str, Any] = {"only_accuracy": only_accuracy, "batch_size": 7}
    found = measure(Machine(), state=tmp_path / "state", **other)
    for name, result in measure(Machine(), **other).attacks.items():
        assert torch.equal(result.correct, found.attacks[name].correct)


@pytest.mark.usefixtures("written_at_once")
def test_the_time_that_answers_took_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = [Machine(100), Machine()]
    monkeypatch.setattr(
        journal.time, "perf_counter", lambda: sum(machine.seconds for machine in machines)
    )
    with pytest.raises(KeyboardInterrupt):
        measure(machines[0], state=tmp_path / "state")
    found = measure(machines[1], state=tmp_path / "state")
    asked = sum(machine.seconds for machine in machines) - 2 * (5 + 4)
    assert found.seconds == pytest.approx(asked, abs=3)


@pytest.mark.usefixtures("written_at_once")
def test_answers_about_other_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure(Machine(60), state=tmp_path / "state")
    images, labels = DATA[0].clone(), DATA[1]
    images[20] = images[20].flip(-1)
    with pytest.raises(ValueError, match="other data; remove it"):
        measure(Machine(), (images, labels), state=tmp_path / "state")


@pytest.mark.usefixtures("written_at_once")
@pytest.mark.parametrize("place", [9, 99, 999])
def test_damage_to_answers_is_named(tmp_path: Path, place: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure(Machine(60), state=tmp_path / "state")
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-place] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"state\.begun-0 is not the state of .*; remove it"):
        measure(Machine(), state=tmp_path / "state")


def begun(answers: int) -> journal.Begun:
    values = torch.full((1, 9), torch.nan, dtype=torch.float64)
    values[:, :answers] = answers
    return journal.Begun(7, {"ab": journal.Asked(values)}, {"wo-10": torch.ones(2, 10)})


def test_of_several_processes_each_chunk_has_most_of_its_answers(tmp_path: Path) -> None:
    question: dict[str, object] = {"attacks": {}}
    asked = StateFiles(tmp_path / "state").load(question, print).question
    known = ({0: begun(3), 512: begun(5)}, {512: begun(2), 1024: begun(4)})
    for rank, each in enumerate(known):
        files = StateFiles(tmp_path / "state", Ranks(rank, 2))
        files.save_begun(State(asked, {}, {"first_logits": torch.ones(1, 2)}, begun=each))
    found = StateFiles(tmp_path / "state").load(question, print)
    assert {start: each.answers for start, each in found.begun.items()} == {0: 3, 512: 5, 1024: 4}
    assert torch.equal(found.begun[0].hardest["wo-10"], torch.ones(2, 10))
    StateFiles(tmp_path / "state").finish(found)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_a_chunk_that_is_done_is_not_under_way(tmp_path: Path) -> None:
    """A process may be killed between its two files."""
    question: dict[str, object] = {"attacks": {}}
    files = StateFiles(tmp_path / "state")
    state = files.load(question, print)
    state.once("first_logits", torch.ones(1, 2))
    state.begun[0] = begun(3)
    files.save_begun(state)
    state.pieces[0] = Piece(9, 7)
    state.pieces[0].keep(labels=torch.ones(9))
    save_state(tmp_path / "state", state.part([0]))
    assert StateFiles(tmp_path / "state").load(question, print).begun == {}
