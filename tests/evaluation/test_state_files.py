"""The files of a state: written a few times each piece, whole whenever a process dies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bar_images import bars
from upright import RandomSearch, evaluate
from upright.evaluation import state as one_file
from upright.evaluation import state_files
from upright.evaluation.state import Piece, State
from upright.evaluation.state_files import StateFiles, UnwrittenState
from upright.evaluation.stream import Chunk
from upright.ranks import Ranks

QUESTION: dict[str, object] = {"attacks": {"wo-10": "RandomSearch(10)"}}


def chunk(number: int) -> Chunk:
    return Chunk(512 * number, torch.full((2, 1, 1, 1), float(number)), torch.tensor([0, 1]))


def piece(number: int) -> Piece:
    """With as many bytes as one chunk of an evaluation has."""
    made = Piece(512, totals={"seconds": float(number)})
    made.keep(labels=torch.full((512,), number), natural_loss=torch.rand(512))
    return made


def keep(
    files: StateFiles, state: State, numbers: range, *, constants: torch.Tensor | None = None
) -> State:
    state.once("first_logits", torch.ones(64, 10) if constants is None else constants)
    for number in numbers:
        state.pieces[512 * number] = piece(number)
        files.save(state, chunk(number))
    return state


def load(path: Path) -> State:
    return StateFiles(path).load(QUESTION, print)


def numbers_in(path: Path) -> list[int]:
    state = load(path)
    for start, found in state.pieces.items():
        assert torch.equal(found.arrays["labels"], torch.full((512,), start // 512))
    return sorted(start // 512 for start in state.pieces)


def test_each_piece_is_written_a_few_times_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, count, path = [0], 128, tmp_path / "state"

    def counted(path: Path, content: bytes) -> None:
        written[0] += len(content)
        path.write_bytes(content)

    monkeypatch.setattr(one_file, "write_whole", counted)
    files, state = StateFiles(path), load(path)
    for number in range(count):
        keep(files, state, range(number, number + 1))
        assert len(list(tmp_path.iterdir())) <= 1 + math.log2(number + 1)
    assert numbers_in(path) == [*range(count)]
    files.finish(state)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    assert numbers_in(path) == [*range(count)]
    assert written[0] < (2 + math.log2(count)) * path.stat().st_size


class Died(BaseException):
    """As a kill is: nothing after it is done."""


def test_a_kill_between_any_two_writes_costs_the_last_piece_at_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [math.inf]

    def or_die() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Died

    def write(path: Path, content: bytes) -> None:
        or_die()
        path.parent.mkdir(exist_ok=True)
        new = path.with_name("new")
        new.write_bytes(content)
        new.replace(path)

    unlink = Path.unlink

    def remove(path: Path, missing_ok: bool = False) -> None:
        or_die()
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(one_file, "write_whole", write)
    monkeypatch.setattr(state_files.Path, "unlink", remove)
    for steps in range(18):
        folder = tmp_path / str(steps)
        path, left[0] = folder / "state", steps
        state = load(path)
        with pytest.raises(Died):
            keep(StateFiles(path), state, range(20))
        found, tried = numbers_in(path), len(state.pieces)
        assert found in ([*range(tried - 1)], [*range(tried)])
        again, rest, left[0] = StateFiles(path), load(path), math.inf
        again.finish(keep(again, rest, range(len(found), 20)))
        assert numbers_in(path) == [*range(20)]
        assert [file.name for file in folder.iterdir()] == ["state"]


def test_what_is_left_beside_a_state_that_was_removed_does_not_count(tmp_path: Path) -> None:
    """A function is known by its answers alone: those of another must not come back with a file."""
    path = tmp_path / "state"
    keep(StateFiles(path), load(path), range(6))
    assert len(list(tmp_path.iterdir())) > 1
    path.unlink()
    assert numbers_in(path) == []
    other = torch.zeros(64, 10)
    keep(StateFiles(path), load(path), range(10, 11), constants=other)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    keep(StateFiles(tmp_path / "old"), load(tmp_path / "old"), range(3))
    (tmp_path / "old.more-1").rename(tmp_path / "state.more-1")
    assert numbers_in(path) == [10]


def test_files_of_all_ranks_are_read_and_become_one(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for rank in range(3):
        files = StateFiles(path, Ranks(rank, 3))
        keep(files, State(load(path).question), range(5 * rank, 5 * rank + 5))
    assert {file.name for file in tmp_path.iterdir()} >= {"state.rank-1", "state.rank-2.more-1"}
    assert numbers_in(path) == [*range(15)]
    StateFiles(path).finish(load(path))
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    assert numbers_in(path) == [*range(15)]


@pytest.mark.parametrize("place", [9, 99, 999])
def test_damage_to_any_of_the_files_is_named(tmp_path: Path, place: int) -> None:
    path = tmp_path / "state"
    keep(StateFiles(path), load(path), range(3))
    for file in (path, tmp_path / "state.more-1"):
        content = file.read_bytes()
        file.write_bytes(content[:-place] + bytes([content[-place] ^ 1]) + content[1 - place :])
        with pytest.raises(ValueError, match=rf"{file.name} is not the state of .*; remove it"):
            load(path)
        file.write_bytes(content)
    assert numbers_in(path) == [0, 1, 2]


def test_an_evaluation_that_is_stopped_continues_from_all_of_them(tmp_path: Path) -> None:
    images, labels = bars(2100, seed=6)  # five chunks
    asked, room = list[int](), [3600]  # in the fourth
    options: dict[str, Any] = {"attacks": [RandomSearch(1)], "state": tmp_path / "state"}

    def model(images: torch.Tensor) -> torch.Tensor:
        asked.append(len(images))
        if sum(asked) > room[0]:
            raise KeyboardInterrupt
        return images.mean((2, 3)) * torch.tensor([1.0, 2.0])

    with pytest.raises(KeyboardInterrupt):
        evaluate(model, (images, labels % 2), **options)
    assert (tmp_path / "state.more-1").exists()
    asked.clear()
    found = evaluate(model, (images, labels % 2), **options)
    assert sum(asked) < 100 + 2 * 600
    room = [10_000]
    expected = evaluate(model, (images, labels % 2), attacks=[RandomSearch(1)], batch_size=4000)
    assert torch.equal(found.natural_loss, expected.natural_loss)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_what_a_killed_process_left_half_written_goes_in_the_end(tmp_path: Path) -> None:
    """Whichever of the files it was to be: none may be written under that name again."""
    path, names = (
        tmp_path / "state",
        ("state", "state.more-1", "state.rank-2", "state.rank-2.more-3"),
    )
    for name in names:
        (tmp_path / f".{name}-abcdefgh.part").write_bytes(b"half")
    (tmp_path / ".other-abcdefgh.part").write_bytes(b"of something else")
    files = StateFiles(path)
    files.finish(keep(files, load(path), range(5)))
    assert {file.name for file in tmp_path.iterdir()} == {"state", ".other-abcdefgh.part"}


def test_a_disk_that_fills_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once; when there is room again, all that was measured meanwhile is kept."""
    full, written = [False], one_file.write_whole

    def write(path: Path, content: bytes) -> None:
        if full[0]:
            raise OSError(28, "No space left on device", str(path))
        written(path, content)

    monkeypatch.setattr(one_file, "write_whole", write)
    path = tmp_path / "state"
    files, state = StateFiles(path), load(path)
    keep(files, state, range(5))
    full[0] = True
    with pytest.warns(UnwrittenState, match=r"No space left on device.*goes on") as told:
        keep(files, state, range(5, 9))
    assert len(told) == 1
    assert numbers_in(path) == [*range(5)]
    full[0] = False
    keep(files, state, range(9, 10))
    assert numbers_in(path) == [*range(10)]
    full[0] = True
    files.finish(state)
    assert numbers_in(path) == [*range(10)]


def test_answers_that_lie_crosswise_in_memory_are_kept(tmp_path: Path) -> None:
    data = torch.rand(20, 3, 4, 4), torch.arange(20) % 10
    weights = torch.rand(48, 10)

    def model(images: torch.Tensor) -> torch.Tensor:
        return (weights.T @ images.flatten(1).T).T

    first = evaluate(model, data, attacks=["wo-2"], state=tmp_path / "state")
    again = evaluate(model, data, attacks=["wo-2"], state=tmp_path / "state")
    assert torch.equal(first.attacks["wo-2"].correct, again.attacks["wo-2"].correct)
