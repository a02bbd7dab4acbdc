"""How a model that is measured lies in memory: channels last on a CPU, where it can be asked so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from upright import evaluate
from upright.data import LabelledImages
from upright.evaluation import Question
from upright.measure import Loaded, measure
from upright.models import lay_as_usual, lay_channels_last

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


def own(kind: type[Watched], seed: int = 0) -> Watched:
    torch.manual_seed(seed)
    return kind()


@pytest.mark.parametrize(
    ("kind", "last"), [(Watched, True), (Viewed, False), (ViewedByPlane, False)]
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


def test_only_what_was_turned_is_turned_back():
    model = own(Watched)
    model.first.to(memory_format=torch.channels_last)
    assert lay_channels_last(model) == [model.second]
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
