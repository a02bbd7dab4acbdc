"""How a model that is measured lies in memory: channels last on a CPU, where it can be asked so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from upright import evaluate
from upright.data import LabelledImages
from upright.ensemble import ensemble
from upright.evaluation import Oracle, Question
from upright.measure import Loaded, measure
from upright.measure.as_asked import as_asked
from upright.models import laid_as_usual, lay_as_usual, lay_channels_last
from upright.space import PAPER
from upright.train.two_stage import RunLocator

GRID = "grid-3x3x3"


class Watched(nn.Module):
    """Two convolutions; how images came is written down."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 3)
        self.head = nn.Linear(6 * 4 * 4, classes)
        self.came_last = list[bool]()

    def forward(self, images: Tensor) -> Tensor:
        last = images.is_contiguous(memory_format=torch.channels_last)
        self.came_last.append(last and not images.is_contiguous())
        return self.head(self.as_rows(self.second(self.first(images).relu())))

    def as_rows(self, features: Tensor) -> Tensor:
        return features.flatten(1)


class Viewed(Watched):
    """Looks at what convolutions give as at rows of numbers, as many tutorials do."""

    def as_rows(self, features: Tensor) -> Tensor:
        return features.view(-1, 6 * 4 * 4)


class ViewedByPlane(Watched):
    """Does so with planes, those of one image among which lie in a row either way."""

    def as_rows(self, features: Tensor) -> Tensor:
        count, planes, *_ = features.shape
        return features.view(count * planes, 16).relu().view(count, -1)


class ViewedAsItCame(Watched):
    """Looks at the images themselves so."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.view(len(images), -1).view(images.shape))


class Asserting(Watched):
    """Refuses by an error of its own."""

    def as_rows(self, features: Tensor) -> Tensor:
        assert features.is_contiguous()
        return features.flatten(1)


class Strided(Watched):
    """Reads other numbers, and says nothing."""

    def as_rows(self, features: Tensor) -> Tensor:
        return features.as_strided((len(features), 6 * 4 * 4), (6 * 4 * 4, 1))


def on_noise(model: nn.Module) -> Loaded:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (12, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return Loaded(
        model=model.eval(),
        subject=None,
        data=LabelledImages(images, torch.arange(12) % 4, tuple("abcd")),
        data_name="noise",
        question=Question.of([GRID]),
        device=torch.device("cpu"),
    )


def own(kind: type[Watched], classes: int = 4) -> Watched:
    torch.manual_seed(0)
    return kind(classes)


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        (Watched, True),
        (Viewed, False),
        (ViewedByPlane, False),
        (ViewedAsItCame, False),
        (Asserting, False),
        (Strided, False),
    ],
)
def test_weights_lie_channels_last_where_the_model_can_be_asked_so(kind, last):
    model = own(kind)
    loaded = on_noise(model)
    found = measure(loaded).evaluation
    assert model.first.weight.is_contiguous() is not last
    assert model.came_last[-1] is last
    data = (loaded.data.as_float(), loaded.data.labels)
    expected = evaluate(own(kind).eval(), data, attacks=[GRID])
    ours, theirs = found.attacks[GRID], expected.attacks[GRID]
    assert torch.equal(ours.correct, theirs.correct)
    assert torch.equal(ours.worst_pose.values, theirs.worst_pose.values)
    torch.testing.assert_close(ours.worst_loss, theirs.worst_loss)


def test_a_locator_is_asked_too():
    """An oracle's classifier alone would take it."""
    locator = RunLocator(own(Viewed, classes=3), PAPER, "black")
    loaded = on_noise(Oracle(locator, own(Watched)))
    data = (loaded.data.as_float(), loaded.data.labels)
    expected = evaluate(loaded.model, data, attacks=[GRID])
    found = measure(loaded).evaluation
    assert locator.network.first.weight.is_contiguous()
    torch.testing.assert_close(found.attacks[GRID].worst_loss, expected.attacks[GRID].worst_loss)


@pytest.mark.parametrize("training", [True, False])
def test_to_lay_weights_out_changes_nothing_else(training):
    model = own(Watched)
    loaded = on_noise(ensemble(model, own(Watched)))
    loaded.model.train(training)
    as_asked(loaded.model, loaded.question, loaded.data, loaded.device)
    assert laid_as_usual(model) == []
    assert {each.training for each in loaded.model.modules()} == {training}


def test_only_what_was_turned_is_turned_back():
    model = own(Watched)
    model.first.to(memory_format=torch.channels_last)
    assert laid_as_usual(model) == [model.second]
    lay_channels_last(model)
    assert laid_as_usual(model) == []
    lay_as_usual([model.second])
    assert model.second.weight.is_contiguous()
    assert not model.first.weight.is_contiguous()


def test_an_error_of_the_models_own_is_told_as_before():
    class Broken(Watched):
        def as_rows(self, features: Tensor) -> Tensor:
            raise RuntimeError(f"no rows of {tuple(features.shape)}")

    model = Broken()
    with pytest.raises(RuntimeError, match="no rows of"):
        measure(on_noise(model))
    assert model.first.weight.is_contiguous()
