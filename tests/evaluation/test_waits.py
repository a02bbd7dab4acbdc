"""How often an evaluation waits for its device: a GPU has nothing to do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bar_images import bars
from far_device import FAR, FarDevice
from rigid_spaces import rigid
from upright import Evaluation, devices, evaluate
from upright.attacks.refine import Boxes
from upright.evaluation import stream
from upright.evaluation.examination import Examination
from upright.evaluation.state import Piece
from upright.evaluation.stream import Chunk
from upright.evaluation.survival import HardestFirst

IMAGES, _ = bars(40, seed=3)
WEIGHTS = torch.randn(
    IMAGES[0].numel(), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
)
LABELS = (IMAGES.flatten(1) @ WEIGHTS).argmax(1)
ATTACKS = ["grid-3x3x7", "wo-9", "refine-20", "s-pgd", "refine-20+s-pgd"]


def measure(weights: Tensor, *attacks: str, **options: Any) -> Evaluation:
    def model(images: Tensor) -> Tensor:
        return images.flatten(1) @ weights

    settings = {"space": rigid(1, 15), "batch_size": 30, "device": weights.device} | options
    return evaluate(model, (IMAGES, LABELS), attacks=attacks, **settings)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> FarDevice:
    monkeypatch.setattr(devices, "_IN_TURN", (FAR.type,))
    monkeypatch.setattr(stream, "_IMAGES_AT_MOST", 16)
    return FarDevice()


def waits_of_chunks(far: FarDevice, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Will have the waits of each chunk that is measured."""
    plain, counts = Examination.measure, list[int]()

    def counted(self: Examination, chunk: Chunk) -> Piece:
        before = len(far.waits)
        piece = plain(self, chunk)
        counts.append(len(far.waits) - before)
        return piece

    monkeypatch.setattr(Examination, "measure", counted)
    return counts


def calls_of(kind: type, method: str, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Will have one item for each call of a method."""
    plain, calls = getattr(kind, method), list[None]()

    def counted(*args: Any) -> Any:
        calls.append(None)
        return plain(*args)

    monkeypatch.setattr(kind, method, counted)
    return calls


@pytest.mark.parametrize("only_accuracy", [False, True])
@pytest.mark.parametrize("include_identity", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_far_away_all_is_the_same(
    far: FarDevice, attack: str, only_accuracy: bool, include_identity: bool
) -> None:
    options = {"only_accuracy": only_accuracy, "include_identity": include_identity}
    expected = measure(WEIGHTS, attack, **options)
    with far:
        found = measure(WEIGHTS.to(FAR), attack, **options)
    assert found.natural_loss.equal(expected.natural_loss)
    one, other = expected.attacks[attack], found.attacks[attack]
    assert other.correct.equal(one.correct)
    assert other.forward_passes == one.forward_passes
    assert only_accuracy or _same(other.worst_class, one.worst_class)
    assert one.worst_loss is None or _same(other.worst_loss, one.worst_loss)
    assert one.fooled is None or _same(other.fooled and other.fooled.bits, one.fooled.bits)


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.equal(other)


@pytest.mark.parametrize("attacks", [["grid-3x3x7"], ["wo-9"], ["grid-3x3x7", "wo-9"]], ids=str)
def test_a_list_of_poses_is_waited_for_once_and_once_for_its_check(
    far: FarDevice, monkeypatch: pytest.MonkeyPatch, attacks: list[str]
) -> None:
    waits = waits_of_chunks(far, monkeypatch)
    with far:
        measure(WEIGHTS.to(FAR), *attacks)
    assert waits == [2 + 2 * len(attacks)] * 3  # the natural pass is the first list


@pytest.mark.parametrize("attack", ["grid-3x3x7", "wo-9"])
def test_for_accuracy_alone_a_round_waits_once(
    far: FarDevice, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    rounds, waits = calls_of(HardestFirst, "learn", monkeypatch), waits_of_chunks(far, monkeypatch)
    with far:
        measure(WEIGHTS.to(FAR), attack, only_accuracy=True)
    assert len(rounds) > 3
    assert sum(waits) == len(rounds) + 2 * 3


def test_a_search_in_rounds_waits_once_in_each(
    far: FarDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, waits = calls_of(Boxes, "learn", monkeypatch), waits_of_chunks(far, monkeypatch)
    with far:
        measure(WEIGHTS.to(FAR), "refine-200")
    assert len(rounds) > 20
    # And for the natural pass, its check, two estimates by slopes, and what was found.
    assert sum(waits) == len(rounds) + 5 * 3
