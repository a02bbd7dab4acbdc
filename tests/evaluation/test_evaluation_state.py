"""Long evaluations: batches that do not fit, being stopped and continued, the progress bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bar_images import bars, trained_network
from rigid_spaces import rigid
from upright import (
    Attack,
    Evaluation,
    GridSearch,
    RandomSearch,
    RefiningSearch,
    SpatialPGD,
    evaluate,
)
from upright.evaluation import run
from upright.models import in_half_precision

SPACE = rigid(1, 15)
ATTACKS: list[Attack] = [
    GridSearch((2, 2, 3)),
    RandomSearch(3),
    SpatialPGD(steps=2),
    RefiningSearch(18, shifted=True),
]
PASSES = 1 + 12 + 3 + 3 + 18
MANY = bars(1100, seed=4)  # three chunks
FEW = MANY[0][:50], MANY[1][:50]


@dataclass
class Machine:
    """The trained network on a machine with room for few images, which may be switched off."""

    room: float = float("inf")
    calls_left: float = float("inf")
    error: Callable[[str], Exception] = torch.OutOfMemoryError
    sizes: list[int] = field(default_factory=list)

    def __call__(self, images: Tensor) -> Tensor:
        if len(images) > self.room:
            raise self.error("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        if self.calls_left <= 0:
            raise KeyboardInterrupt
        self.calls_left -= 1
        self.sizes.append(len(images))
        logits = trained_network()(images)
        assert isinstance(logits, Tensor)
        return logits


def measure(model: Any, data: Any = FEW, **options: Any) -> Evaluation:
    return evaluate(model, data, attacks=ATTACKS, space=SPACE, **options)


def assert_same(one: Evaluation, other: Evaluation) -> None:
    assert torch.equal(one.natural_correct, other.natural_correct)
    torch.testing.assert_close(one.natural_loss, other.natural_loss, rtol=0, atol=1e-12)
    for name, result in one.attacks.items():
        again = other.attacks[name]
        assert result.forward_passes == again.forward_passes
        assert torch.equal(result.correct, again.correct)
        assert (result.estimate is None) == (again.estimate is None)
        if result.estimate is not None and again.estimate is not None:
            for part in ("safe", "safe_early", "went_below"):
                assert getattr(result.estimate, part).equal(getattr(again.estimate, part))
        torch.testing.assert_close(result.worst_loss, again.worst_loss, rtol=0, atol=1e-12)
        for left, right in ((result.worst_pose, again.worst_pose), (result.fooled, again.fooled)):
            assert (left is None) == (right is None)
        if result.worst_pose is not None and again.worst_pose is not None:
            assert torch.equal(result.worst_pose.values, again.worst_pose.values)
        if result.fooled is not None and again.fooled is not None:
            assert torch.equal(result.fooled.bits, again.fooled.bits)
            assert torch.equal(result.fooled.poses.values, again.fooled.poses.values)


class TestMemory:
    @pytest.mark.parametrize(
        ("room", "error"),
        [(1, torch.OutOfMemoryError), (3, MemoryError), (17, RuntimeError), (60, MemoryError)],
    )
    def test_a_batch_that_does_not_fit_is_halved_and_tried_again(
        self, room: int, error: Callable[[str], Exception]
    ) -> None:
        machine, data = Machine(room=room, error=error), (FEW[0][:20], FEW[1][:20])
        assert_same(measure(machine, data), measure(trained_network(), data))
        assert max(machine.sizes) <= room

    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_what_fits_is_used_in_full(self, only_accuracy: bool) -> None:
        machine = Machine(room=40)
        measure(machine, only_accuracy=only_accuracy)
        assert 20 < max(machine.sizes) <= 40

    def test_a_model_that_never_fits_says_what_to_do(self) -> None:
        with pytest.raises(MemoryError, match="single image; use a smaller model, smaller images"):
            measure(Machine(room=0))

    def test_a_model_that_fits_once_and_never_again_says_what_to_do(self) -> None:
        machine = Machine()

        def shrinking(images: Tensor) -> Tensor:
            machine.room = 100 if len(machine.sizes) < 2 else 0
            return machine(images)

        with pytest.raises(MemoryError, match="single image; use a smaller model, smaller images"):
            measure(shrinking)

    def test_other_errors_of_the_model_are_passed_on(self) -> None:
        def broken(images: Tensor) -> Tensor:
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({len(images)})")

        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            measure(broken)

    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_batch_size_is_never_exceeded(self, only_accuracy: bool) -> None:
        machine = Machine()
        measure(machine, batch_size=7, only_accuracy=only_accuracy)
        assert max(machine.sizes) == 7

    @pytest.mark.parametrize("option", ["batch_size", "limit"])
    def test_numbers_below_1_are_refused(self, option: str) -> None:
        with pytest.raises(ValueError, match=f"{option} must be at least 1, but is -3"):
            measure(Machine(), **{option: -3})


class TestState:
    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_stopped_in_the_middle_and_continued_gives_the_same_with_fewer_calls(
        self, tmp_path: Path, only_accuracy: bool
    ) -> None:
        options: dict[str, Any] = {"only_accuracy": only_accuracy, "batch_size": 64}
        unbroken = Machine()
        expected = measure(unbroken, MANY, **options)
        path, total = tmp_path / "folder" / "state", len(unbroken.sizes)
        with pytest.raises(KeyboardInterrupt):
            measure(Machine(calls_left=0.7 * total), MANY, state=path, **options)
        continued = Machine()
        evaluation = measure(continued, MANY, state=path, **options)
        assert torch.equal(evaluation.labels, expected.labels)
        if only_accuracy:  # what fooled earlier images is learned anew: as right, not as fast
            for name, result in evaluation.attacks.items():
                assert torch.equal(result.correct, expected.attacks[name].correct)
        else:
            assert_same(evaluation, expected)
        assert len(continued.sizes) < 0.7 * total

    def test_stopped_again_and_again(self, tmp_path: Path) -> None:
        path = tmp_path / "state"
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                measure(Machine(calls_left=170), MANY, state=path, batch_size=64)
        evaluation = measure(Machine(), MANY, state=path, batch_size=64)
        assert_same(evaluation, measure(Machine(), MANY))

    def test_a_finished_evaluation_is_only_read(self, tmp_path: Path) -> None:
        path = tmp_path / "state"
        expected = measure(Machine(), state=path)
        before, machine = path.read_bytes(), Machine()
        evaluation = measure(machine, state=path)
        assert_same(evaluation, expected)
        assert evaluation.seconds == expected.seconds
        assert sum(machine.sizes) <= 50 + 16  # a look at whether it is the same model
        assert path.read_bytes() == before

    def test_batch_size_may_change_when_continued(self, tmp_path: Path) -> None:
        path = tmp_path / "state"
        with pytest.raises(KeyboardInterrupt):
            measure(Machine(calls_left=170), MANY, state=path, batch_size=64)
        evaluation = measure(Machine(), MANY, state=path, batch_size=50)
        assert_same(evaluation, measure(Machine(), MANY))

    def test_another_model_is_refused(self, tmp_path: Path) -> None:
        measure(Machine(), state=tmp_path / "state")
        with pytest.raises(ValueError, match="belongs to another model or other data; remove it"):
            measure(lambda images: Machine()(images).flip(1), state=tmp_path / "state")

    def test_another_precision_is_refused(self, tmp_path: Path) -> None:
        model = trained_network()
        measure(in_half_precision(model, "bfloat16"), state=tmp_path / "state")
        for other in (model, in_half_precision(model, "float16")):
            with pytest.raises(ValueError, match="belongs to another evaluation"):
                measure(other, state=tmp_path / "state")
        measure(in_half_precision(model, "bfloat16"), state=tmp_path / "state")

    @pytest.mark.parametrize("count", [10, 30, 49, 51, 800])
    def test_more_or_fewer_images_are_refused(self, tmp_path: Path, count: int) -> None:
        measure(Machine(), state=tmp_path / "state")
        with pytest.raises(ValueError, match=r"other data; remove it or name another file"):
            measure(Machine(), (MANY[0][:count], MANY[1][:count]), state=tmp_path / "state")

    @pytest.mark.parametrize("place", [0, 49])
    def test_another_image_is_refused(self, tmp_path: Path, place: int) -> None:
        measure(Machine(), state=tmp_path / "state")
        images = FEW[0].clone()
        images[place] = images[place].flip(-1)
        with pytest.raises(ValueError, match=r"other data; remove it or name another file"):
            measure(Machine(), (images, FEW[1]), state=tmp_path / "state")

    def test_other_labels_are_refused(self, tmp_path: Path) -> None:
        measure(Machine(), state=tmp_path / "state")
        with pytest.raises(ValueError, match=r"belongs to other data; remove it"):
            measure(Machine(), (FEW[0], 3 - FEW[1]), state=tmp_path / "state")

    def test_no_images_at_all_are_refused(self, tmp_path: Path) -> None:
        measure(Machine(), state=tmp_path / "state")
        with pytest.raises(ValueError, match=r"belongs to other data; remove it"):
            measure(Machine(), [], state=tmp_path / "state")

    @pytest.mark.parametrize(
        ("changed", "named"),
        [
            ({"attacks": ["wo-2"]}, "attacks"),
            ({"space": rigid(1, 20)}, "space"),
            ({"only_accuracy": True}, "only accuracy"),
            ({"fill": "border"}, "warp"),
            ({"interpolation": "nearest"}, "warp"),
            ({"canvas": 1}, "warp"),
            ({"limit": 20}, "limit"),
            ({"generator": torch.Generator().manual_seed(1)}, "seed"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_other_settings_are_refused_by_name(
        self, tmp_path: Path, changed: dict[str, Any], named: str
    ) -> None:
        path = tmp_path / "state"
        settings: dict[str, Any] = {"attacks": ["wo-3"], "space": SPACE, "state": path}
        evaluate(Machine(), FEW, **settings)
        with pytest.raises(ValueError, match=rf"another evaluation \(other {named}\); remove it"):
            evaluate(Machine(), FEW, **(settings | changed))

    @pytest.mark.parametrize("content", [b"", b"no state at all", b"\x10" * 64])
    def test_a_file_that_is_no_state_is_named(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "broken.state"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"broken\.state is not the state of .*; remove it"):
            measure(Machine(), state=path)
        assert path.read_bytes() == content

    def test_a_truncated_state_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.state"
        measure(Machine(), state=path)
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(ValueError, match=r"cut\.state is not the state of .*; remove it"):
            measure(Machine(), state=path)

    @pytest.mark.parametrize("place", range(9, 800, 79))
    def test_a_flipped_bit_anywhere_is_seen(self, tmp_path: Path, place: int) -> None:
        path = tmp_path / "flipped.state"
        measure(Machine(), state=path)
        content = bytearray(path.read_bytes())
        content[-place] ^= 1
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"flipped\.state (is not the state of|belongs to)"):
            measure(Machine(), state=path)

    def test_nothing_but_the_state_is_left_behind(self, tmp_path: Path) -> None:
        measure(Machine(), MANY, state=tmp_path / "state")
        assert [path.name for path in tmp_path.iterdir()] == ["state"]


class FakeBar:
    """Stands for the progress bar and adds up what it is told."""

    def __init__(self, *_: object, disable: bool, **__: object) -> None:
        self.disable, self.total, self.done = disable, None, 0
        bars_made.append(self)

    def __enter__(self) -> FakeBar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add_task(self, _: str, total: Any) -> int:
        self.total = total
        return 0

    def advance(self, _: int, passes: int) -> None:
        self.done += passes


bars_made: list[FakeBar] = []


class TestProgress:
    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_the_bar_ends_exactly_full(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_accuracy: bool
    ) -> None:
        monkeypatch.setattr(run, "Progress", FakeBar)
        options: dict[str, Any] = {"only_accuracy": only_accuracy, "batch_size": 64}
        with pytest.raises(KeyboardInterrupt):
            measure(Machine(calls_left=60), MANY, state=tmp_path / "state", **options)
        measure(Machine(room=30), MANY, state=tmp_path / "state", progress=True, **options)
        bar = bars_made[-1]
        assert not bar.disable
        assert bar.done == bar.total == PASSES * len(MANY[0])

    def test_it_shows_only_when_asked(self, capsys: pytest.CaptureFixture[str]) -> None:
        measure(Machine())
        assert capsys.readouterr().err == ""
        measure(Machine(), progress=True)
        shown = capsys.readouterr()
        assert "100%" in shown.err
        assert shown.out == ""  # results can be piped

    def test_it_works_for_data_of_unknown_length(self) -> None:
        assert len(measure(Machine(), iter([FEW]), progress=True)) == 50
