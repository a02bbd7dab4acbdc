"""Run directories: two checkpoints kept, damage seen, and other runs refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from rigid_spaces import rigid
from tiny_runs import names, tiny_recipe
from upright.records import Origin
from upright.train import Checkpoint, DamagedCheckpoint, RunDirectory, load_network

CLASSES = ("red", "green", "blue")


def begin(path: Path, *, resume: bool = False, **changes: object) -> RunDirectory:
    recipe = tiny_recipe(**{"steps": 10**9, **changes})
    return RunDirectory.create(path, recipe, classes=CLASSES, channels=3, resume=resume)


def state(step: int) -> dict[str, Tensor]:
    """Tensors of several kinds and layouts that differ from step to step."""
    generator = torch.Generator().manual_seed(step)
    kernel = torch.randn(4, 3, 2, 2, generator=generator).to(memory_format=torch.channels_last)
    return {"model/kernel": kernel, "model/count": torch.tensor(step), "momentum/kernel": -kernel}


def run_with(path: Path, *steps: int) -> RunDirectory:
    run = begin(path)
    for step in steps:
        run.save(Checkpoint(step, state(step)))
    return run


def is_state_of(checkpoint: Checkpoint | None, step: int) -> bool:
    assert checkpoint is not None
    expected = state(step)
    same = all(checkpoint.tensors[name].equal(tensor) for name, tensor in expected.items())
    return checkpoint.step == step and checkpoint.tensors.keys() == expected.keys() and same


def files_of(*steps: int) -> list[str]:
    return [f"{step:08d}.{kind}" for step in steps for kind in ("json", "safetensors")]


class TestSaving:
    def test_a_run_without_a_checkpoint_has_none(self, tmp_path: Path) -> None:
        assert begin(tmp_path).load() is None

    def test_the_newest_is_loaded_as_it_was_saved(self, tmp_path: Path) -> None:
        run_with(tmp_path, 5, 10)
        assert is_state_of(RunDirectory.open(tmp_path).load(), 10)

    def test_the_last_two_are_kept(self, tmp_path: Path) -> None:
        run_with(tmp_path, 1, 2, 30, 400)
        assert names(tmp_path) == files_of(30, 400)

    def test_steps_are_ordered_as_numbers_not_as_text(self, tmp_path: Path) -> None:
        run = run_with(tmp_path, 99_999_999, 100_000_000, 100_000_001)
        assert is_state_of(run.load(), 100_000_001)
        assert names(tmp_path) == sorted(files_of(100_000_000, 100_000_001))

    def test_weights_can_be_read_without_this_library(self, tmp_path: Path) -> None:
        run_with(tmp_path, 7)
        tensors = load_file(tmp_path / "checkpoints" / "00000007.safetensors")
        assert tensors["model/kernel"].equal(state(7)["model/kernel"])

    def test_what_a_killed_run_left_half_done_goes_with_the_next_checkpoint(
        self, tmp_path: Path
    ) -> None:
        run = run_with(tmp_path, 1, 2)
        folder = tmp_path / "checkpoints"
        (folder / "00000002.json").unlink()  # killed between the two files
        (folder / ".00000003.safetensors-x1y2z3").write_bytes(b"half")  # killed while writing
        run.save(Checkpoint(3, state(3)))
        assert names(tmp_path) == files_of(1, 3)

    def test_another_users_files_in_the_folder_of_the_run_stay(self, tmp_path: Path) -> None:
        run = begin(tmp_path)
        (tmp_path / "notes.txt").write_text("mine")
        for step in (1, 2, 3):
            run.save(Checkpoint(step, state(step)))
        assert (tmp_path / "notes.txt").read_text() == "mine"


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip_a_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGES = [cut, flip_a_bit, lambda _: b"", lambda _: b"\0" * 100, lambda _: b"[]", lambda _: b"0"]


class TestDamage:
    @pytest.mark.parametrize("kind", ["safetensors", "json"])
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_the_one_before_is_used_and_a_warning_says_so(
        self, tmp_path: Path, kind: str, damage: Callable[[bytes], bytes]
    ) -> None:
        run = run_with(tmp_path, 10, 20)
        file = tmp_path / "checkpoints" / f"00000020.{kind}"
        file.write_bytes(damage(file.read_bytes()))
        with pytest.warns(DamagedCheckpoint, match=r"step 20 in .* is damaged .* before is used"):
            assert is_state_of(run.load(), 10)

    @given(place=st.integers(0, 2**20), bit=st.integers(0, 7))
    def test_any_flipped_bit_of_the_weights_is_seen(
        self, tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
    ) -> None:
        path = tmp_path_factory.mktemp("run")
        run = run_with(path, 10, 20)
        file = path / "checkpoints" / "00000020.safetensors"
        content = bytearray(file.read_bytes())
        content[place % len(content)] ^= 1 << bit
        file.write_bytes(content)
        with pytest.warns(DamagedCheckpoint, match="digest does not fit"):
            assert is_state_of(run.load(), 10)

    def test_a_step_after_the_last_is_damage_or_the_run_would_never_end(
        self, tmp_path: Path
    ) -> None:
        run = begin(tmp_path, steps=12)
        for step in (12, 13):
            run.save(Checkpoint(step, state(step)))
        with pytest.warns(DamagedCheckpoint, match="a step that this run does not have"):
            assert is_state_of(run.load(), 12)

    def test_any_flipped_bit_of_what_is_noted_is_seen(self, tmp_path: Path) -> None:
        run = begin(tmp_path)
        run.save(Checkpoint(10, state(10)))
        origin = Origin(commit=None, versions={"torch": "2.13"}, hardware="an abacus")
        run.save(Checkpoint(20, state(20), 0.30000000000000004, 3, (origin,)))
        file = tmp_path / "checkpoints" / "00000020.json"
        whole = file.read_bytes()
        for place in range(8 * len(whole)):
            content = bytearray(whole)
            content[place // 8] ^= 1 << place % 8
            file.write_bytes(content)
            with pytest.warns(DamagedCheckpoint):
                assert is_state_of(run.load(), 10)

    def test_weights_that_cannot_be_read_now_are_not_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = run_with(tmp_path, 10, 20)
        monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=OSError(12, "no memory", "x")))
        with pytest.raises(OSError, match="no memory"):
            run.load()

    def test_weights_that_are_gone_are_damage_too(self, tmp_path: Path) -> None:
        run = run_with(tmp_path, 10, 20)
        (tmp_path / "checkpoints" / "00000020.safetensors").unlink()
        with pytest.warns(DamagedCheckpoint, match="step 20"):
            assert is_state_of(run.load(), 10)

    def test_a_checkpoint_whose_digest_was_not_yet_written_is_passed_over_silently(
        self, tmp_path: Path
    ) -> None:
        run = run_with(tmp_path, 10, 20)
        (tmp_path / "checkpoints" / "00000020.json").unlink()
        assert is_state_of(run.load(), 10)

    def test_a_first_checkpoint_whose_digest_was_not_yet_written_is_none(
        self, tmp_path: Path
    ) -> None:
        run = run_with(tmp_path, 10)
        (tmp_path / "checkpoints" / "00000010.json").unlink()
        assert run.load() is None

    def test_no_whole_checkpoint_at_all_is_an_error(self, tmp_path: Path) -> None:
        run = run_with(tmp_path, 10, 20)
        for file in (tmp_path / "checkpoints").glob("*.safetensors"):
            file.write_bytes(cut(file.read_bytes()))
        with (
            pytest.warns(DamagedCheckpoint) as warned,
            pytest.raises(ValueError, match=r"no checkpoint in .* is whole; begin the run again"),
        ):
            run.load()
        assert len(warned) == 2

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_damaged_recipe_is_named(
        self, tmp_path: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        begin(tmp_path)
        file = tmp_path / "run.json"
        file.write_bytes(damage(file.read_bytes()))
        for resume in (True, False):
            with pytest.raises(ValueError, match=r"run\.json is damaged .* another folder"):
                begin(tmp_path, resume=resume)

    def test_a_recipe_of_a_newer_program_names_the_field_that_is_not_known(
        self, tmp_path: Path
    ) -> None:
        begin(tmp_path)
        content = json.loads((tmp_path / "run.json").read_text())
        content["recipe"]["lookahead"] = 100
        (tmp_path / "run.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match="a recipe has no lookahead"):
            begin(tmp_path, resume=True)


class TestWhatTrained:
    ONE = Origin(commit="abc", versions={"torch": "2.13"}, hardware="an abacus")
    OTHER = Origin(commit="abc+dirty", versions={"torch": "2.13"}, hardware="an abacus")

    def test_it_is_loaded_as_it_was_saved(self, tmp_path: Path) -> None:
        run = begin(tmp_path)
        run.save(Checkpoint(10, state(10), 1.5, 4, (self.ONE, self.OTHER)))
        loaded = run.load()
        assert loaded is not None
        assert (loaded.seconds, loaded.beside) == (1.5, 4)
        assert loaded.trained_by == (self.ONE, self.OTHER)

    def test_a_checkpoint_of_an_older_program_does_not_know_it(self, tmp_path: Path) -> None:
        run = run_with(tmp_path, 10)
        weights = (tmp_path / "checkpoints" / "00000010.safetensors").read_bytes()
        digest = hashlib.sha256(weights + b"10 1.25").hexdigest()
        about = {"step": 10, "seconds": 1.25, "sha256": digest}
        (tmp_path / "checkpoints" / "00000010.json").write_text(json.dumps(about))
        loaded = run.load()
        assert is_state_of(loaded, 10)
        assert (loaded.seconds, loaded.beside, loaded.trained_by) == (1.25, None, ())
        assert loaded.continued_by(self.ONE) == ()

    def test_another_entry_is_for_something_else_alone(self) -> None:
        begun = Checkpoint(1, {}, trained_by=(self.ONE,))
        assert begun.continued_by(self.ONE) == (self.ONE,)
        again = replace(begun, trained_by=begun.continued_by(self.OTHER))
        assert again.trained_by == (self.ONE, self.OTHER)
        assert again.continued_by(self.ONE) == (self.ONE, self.OTHER, self.ONE)

    @pytest.mark.parametrize(
        "changes",
        [
            {"beside": "many"},
            {"beside": []},
            {"trained_by": 3},
            {"trained_by": ["x"]},
            {"trained_by": [{"commit": None}]},
            {"trained_by": [{"commit": 3, "versions": {}, "hardware": "x"}]},
        ],
    )
    def test_what_cannot_be_is_damage(
        self, tmp_path: Path, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = run_with(tmp_path, 10)
        about = Checkpoint(20, state(20)).about() | changes
        monkeypatch.setattr(Checkpoint, "about", lambda _self: about)
        run.save(Checkpoint(20, state(20)))
        with pytest.warns(DamagedCheckpoint):
            assert is_state_of(run.load(), 10)


class TestWhoseRunItIs:
    def test_the_same_recipe_is_continued_with_resume_alone(self, tmp_path: Path) -> None:
        first = begin(tmp_path)
        assert begin(tmp_path, resume=True) == first
        with pytest.raises(ValueError, match=r"holds this run already; .* --resume"):
            begin(tmp_path)

    @pytest.mark.parametrize("resume", [True, False])
    def test_another_recipe_is_refused_and_the_fields_are_named(
        self, tmp_path: Path, resume: bool
    ) -> None:
        run_with(tmp_path, 10)
        before = names(tmp_path)
        with pytest.raises(ValueError, match="belongs to another recipe") as caught:
            begin(tmp_path, resume=resume, seed=5, space=rigid(2, 30))
        assert "seed 5 instead of 0" in str(caught.value)
        assert "space" in str(caught.value)
        assert "steps" not in str(caught.value)
        assert names(tmp_path) == before

    def test_resume_begins_a_run_where_there_is_none(self, tmp_path: Path) -> None:
        assert begin(tmp_path / "new", resume=True).load() is None

    @pytest.mark.parametrize("resume", [True, False])
    def test_checkpoints_without_a_recipe_are_nobodys(self, tmp_path: Path, resume: bool) -> None:
        run_with(tmp_path, 10)
        (tmp_path / "run.json").unlink()
        with pytest.raises(ValueError, match=r"checkpoints but no run\.json"):
            begin(tmp_path, resume=resume)

    def test_a_folder_that_is_no_run_cannot_be_opened(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"is not a run directory: cannot read run\.json"):
            RunDirectory.open(tmp_path)

    def test_a_folder_of_runs_says_which_are_in_it(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            RunDirectory.create(
                tmp_path / name, tiny_recipe(), classes=("x", "y"), channels=3, resume=False
            )
        with pytest.raises(ValueError, match=f"in it are {tmp_path}/a, {tmp_path}/b: name one"):
            RunDirectory.open(tmp_path)

    def test_a_run_without_a_checkpoint_has_no_network(self, tmp_path: Path) -> None:
        begin(tmp_path)
        with pytest.raises(ValueError, match="has no checkpoint yet; train it first"):
            load_network(tmp_path)
