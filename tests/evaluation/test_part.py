"""A random part of the data: a sample, or what is done when the time is up."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from bar_images import bars, trained_network
from rigid_spaces import rigid
from upright import Attack, Evaluation, Score, Space, WorstCase, evaluate
from upright.attacks import worse_of
from upright.evaluation import Question, examine, stream, time_limit
from upright.evaluation.time_limit import TimeLimit
from upright.intervals import wilson_interval

DATA = bars(300, seed=5)
ATTACKS = ["grid-3x3x5", "wo-3"]


def measure(model: Any = None, data: Any = DATA, **options: Any) -> Evaluation:
    settings: dict[str, Any] = {"attacks": ATTACKS, "space": rigid(1, 15)}
    return evaluate(model or trained_network(), data, **settings | options)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten images, whatever is asked."""
    monkeypatch.setattr(stream, "_IMAGES_AT_MOST", 10)


class Wanders(Attack):
    """Draws once more after it has seen scores, tries first and images second."""

    passes_per_image = 3

    def __str__(self) -> str:
        return "wanders"

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        poses = space.sample(count, generator=generator)
        worst = WorstCase(poses, score(poses), count)
        more = space.sample(count, 2, generator=generator)
        for each in (more[:, 0], more[:, 1]):
            worst = worse_of(worst, WorstCase(each, score(each), count))
        return worst


class Clock:
    """A model that takes a minute for each call, and the clock that shows it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.minutes = 0.0
        monkeypatch.setattr(time_limit.time, "monotonic", lambda: 60 * self.minutes)

    def __call__(self, images: Tensor) -> Tensor:
        self.minutes += 1
        logits = trained_network()(images)
        assert isinstance(logits, Tensor)
        return logits


class TestSample:
    def test_its_images_are_those_of_a_run_over_all(self) -> None:
        whole, part = measure(attacks=["grid-3x3x5"]), measure(attacks=["grid-3x3x5"], sample=40)
        assert (len(part), part.of_images, len(whole)) == (40, 300, 300)
        places = part.places
        assert places is not None
        assert places.equal(places.unique())  # none twice, in the order of the data
        assert part.labels.equal(DATA[1][places])
        found, of_all = part.attacks["grid-3x3x5"], whole.attacks["grid-3x3x5"]
        assert found.correct.equal(of_all.correct[places])
        assert found.worst_pose is not None
        assert of_all.worst_pose is not None
        assert found.worst_pose.values.equal(of_all.worst_pose.values[places])
        assert found.fooled is not None
        assert of_all.fooled is not None
        assert found.fooled.bits.equal(of_all.fooled.bits[places])

    @pytest.mark.usefixtures("small_chunks")
    def test_a_smaller_one_is_the_first_of_a_larger_one(self) -> None:
        few, many = measure(sample=25), measure(sample=80)
        assert few.places is not None
        assert many.places is not None
        assert set(few.places.tolist()) < set(many.places.tolist())
        rows = torch.isin(many.places, few.places)
        for name in ATTACKS:  # also what is drawn for each image
            assert few.attacks[name].correct.equal(many.attacks[name].correct[rows])
            pose, of_many = few.attacks[name].worst_pose, many.attacks[name].worst_pose
            assert pose is not None
            assert of_many is not None
            assert pose.values.equal(of_many.values[rows])

    @pytest.mark.usefixtures("small_chunks")
    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_what_is_drawn_for_an_image_depends_on_its_place_alone(
        self, only_accuracy: bool
    ) -> None:
        """Neither on which images are visited, nor on what else is asked, nor on the sizes of
        chunks, which follow from both."""
        drawing = ["wo-3", "rnd", "s-pgd", "refine-12+rnd", "refine-20+rnd+s-pgd", Wanders()]
        options = {"only_accuracy": only_accuracy, "data": bars(65, seed=5)}
        whole = measure(attacks=drawing, **options)
        for asked in ([drawing[0]], [*drawing, "grid-5x5x3"]):
            part = measure(attacks=asked, sample=33, **options)
            assert part.places is not None
            for name in map(str, asked[: len(drawing)]):
                found, of_all = part.attacks[name], whole.attacks[name]
                assert found.correct.equal(of_all.correct[part.places])
                assert not found.correct.all()
                if found.worst_pose is not None and of_all.worst_pose is not None:
                    poses = of_all.worst_pose.values[part.places]
                    assert torch.allclose(found.worst_pose.values, poses)

    def test_the_seed_decides_and_all_images_are_as_likely(self) -> None:
        counts = torch.zeros(12)
        data = (DATA[0][:12], DATA[1][:12])
        for seed in range(60):
            generator = torch.Generator().manual_seed(seed)
            part = measure(data=data, sample=4, attacks=[], generator=generator)
            assert part.places is not None
            counts[part.places] += 1
        assert counts.sum() == 240
        # 20 of 60 each; six standard deviations either way.
        assert ((counts - 20).abs() < 6 * (60 / 3 * 2 / 3) ** 0.5).all()

    @pytest.mark.parametrize(
        "data",
        [
            TensorDataset(*DATA),
            {"images": DATA[0], "labels": DATA[1]},
            [(image, int(label)) for image, label in zip(*DATA, strict=True)],
        ],
        ids=["a Dataset", "a dict", "a list"],
    )
    def test_however_data_come_it_is_the_same(self, data: Any) -> None:
        assert measure(data=data, sample=20).natural_loss.equal(measure(sample=20).natural_loss)

    @pytest.mark.parametrize("data", [DataLoader(TensorDataset(*DATA)), iter([DATA]), [DATA, DATA]])
    def test_data_without_numbers_are_refused(self, data: Any) -> None:
        with pytest.raises(ValueError, match=r"a random part needs data .*give arrays"):
            measure(data=data, sample=20)

    def test_within_a_limit_it_is_of_those(self) -> None:
        part = measure(sample=20, limit=30)
        assert part.places is not None
        assert int(part.places.max()) < 30
        assert part.of_images == 30

    @pytest.mark.parametrize("sample", [0, -3, 2.5, 1e3])
    def test_what_is_no_number_of_images_is_refused(self, sample: Any) -> None:
        with pytest.raises(ValueError, match=r"sample must be (at least 1|a whole number), but is"):
            measure(sample=sample)

    def test_more_than_there_are_is_all(self) -> None:
        assert len(measure(sample=1000)) == 300
        assert measure(sample=1000).images_in_words == "300 images"

    def test_what_has_to_be_said_is_said(self) -> None:
        part = measure(sample=20)
        assert repr(part).startswith("Evaluation(20 of 300 images, drawn at random: natural ")
        assert part.notes[0].startswith("20 of 300 images, drawn at random: the intervals")
        assert part.summary()["of_images"] == 300
        low, high = part.attacks["wo-3"].interval.low, part.attacks["wo-3"].interval.high
        right = wilson_interval(int(part.attacks["wo-3"].correct.sum()), 20)
        assert (low, high) == (right.low, right.high)

    def test_the_image_of_an_error_is_named_by_its_place_in_the_data(self) -> None:
        def broken(images: Tensor) -> Tensor:
            return (0.5 - images.mean((2, 3)).repeat(1, 2)).sqrt()

        images = torch.zeros(50, 1, 8, 8)
        images[31] = 1.0
        with pytest.raises(ValueError, match="image 31, counted from 0"):
            evaluate(broken, (images, torch.zeros(50).long()), attacks=["rnd"], sample=50)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("first", [0, 7, 20, 35])
def test_a_piece_of_the_data_is_examined_as_among_all(first: int) -> None:
    question = Question.of(["wo-3", Wanders()], space=rigid(1, 15))
    network, (images, labels) = trained_network(), bars(40, seed=5)
    whole, piece = examine(network, (images, labels), question), (images[first:], labels[first:])
    part = examine(network, piece, question, first=first)
    for name, found in part.attacks.items():
        expected = whole.attacks[name].worst_pose
        assert found.worst_pose is not None
        assert expected is not None
        assert torch.allclose(found.worst_pose.values, expected.values[first:])


@pytest.mark.usefixtures("small_chunks")
class TestMinutes:
    def test_what_is_done_is_a_sample_of_as_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch)
        part = measure(clock, minutes=40)
        assert 0 < len(part) < 300
        assert len(part) % 10 == 0
        assert part.of_images == 300
        assert clock.minutes <= 40 + 9
        again = measure(sample=len(part))
        assert again.natural_loss.equal(part.natural_loss)
        for name, result in again.attacks.items():
            assert result.correct.equal(part.attacks[name].correct)

    def test_time_enough_is_all(self) -> None:
        part = measure(minutes=60)
        assert len(part) == 300
        assert part.notes == measure().notes

    def test_the_first_images_are_done_in_any_case(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert len(measure(Clock(monkeypatch), minutes=0.5)) == 10

    def test_with_a_state_it_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clock, counts = Clock(monkeypatch), list[int]()
        while not counts or counts[-1] < 300:
            part = measure(clock, minutes=40, state=tmp_path / "state")
            counts.append(len(part))
            assert len(counts) < 30
        assert counts == sorted(set(counts))
        assert len(counts) > 2
        whole = measure(minutes=1000)
        assert part.natural_loss.equal(whole.natural_loss)
        for name, result in whole.attacks.items():
            assert result.correct.equal(part.attacks[name].correct)
            assert result.forward_passes == part.attacks[name].forward_passes

    def test_a_state_of_minutes_says_how_to_go_on(self, tmp_path: Path) -> None:
        whole = measure(minutes=1000, state=tmp_path / "state")
        with pytest.raises(ValueError, match=rf"go on with --minutes, .* --sample {len(whole)}"):
            measure(state=tmp_path / "state")
        assert len(measure(sample=len(whole), state=tmp_path / "state")) == len(whole)

    @pytest.mark.parametrize("minutes", [0, -1.0, float("nan"), float("inf")])
    def test_no_time_at_all_and_all_time_are_refused(self, minutes: float) -> None:
        with pytest.raises(ValueError, match="minutes must be a number above 0"):
            measure(minutes=minutes)


def test_what_a_time_limit_leaves_is_not_biased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that take ten times as long are right: half of all. Dropping what is under way would
    count too few of them; a limit that stops by the past alone does not."""
    now, generator = [0.0], torch.Generator().manual_seed(0)
    monkeypatch.setattr(time_limit.time, "monotonic", lambda: now[0])
    right = done = 0.0
    for _ in range(3000):
        limit = TimeLimit(60.0)
        for unit in itertools.count():
            if not limit.allows_more:
                break
            slow = bool(torch.rand((), generator=generator) < 0.5)
            with limit.at_work():
                now[0] += 10.0 if slow else 1.0
            right, done = right + slow, done + 1
            assert unit < 61
    assert right / done == pytest.approx(0.5, abs=0.02)


def test_chunks_of_a_part_have_a_bounded_number_of_passes() -> None:
    photographs, small = torch.zeros(1, 3, 224, 224), torch.zeros(1, 3, 32, 32)
    assert stream.chunk_size(photographs) == 27
    assert stream.chunk_size(photographs, passes=776) == 1
    assert stream.chunk_size(photographs, passes=11) == 27
    assert stream.chunk_size(photographs, passes=10**6) == 1
    assert stream.chunk_size(small, passes=776) == 84
