"""Any kind of data gives the same evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from bar_images import bars, trained_network
from upright import (
    Attack,
    Evaluation,
    GridSearch,
    RandomSearch,
    SpatialPGD,
    SuspiciousInput,
    evaluate,
)

# More images than are measured at once, and one over.
COUNT = 513
IMAGES, LABELS = bars(COUNT, seed=3)
BYTES = (IMAGES.clamp(0, 1) * 255).byte()
ATTACKS: list[Attack] = [GridSearch((2, 1, 2)), RandomSearch(2), SpatialPGD(steps=1)]


class Items(Dataset[tuple[Tensor, int]]):
    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.labels[index])


class Stream(IterableDataset[tuple[Tensor, int]]):
    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.items = Items(images, labels)

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        for index in range(len(self.items)):
            yield self.items[index]


class Duck:
    """A data set that inherits nothing and, asked beyond its end, starts again."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index % len(self)], int(self.labels[index % len(self)])


def samples(images: Tensor, labels: Tensor) -> list[tuple[Tensor, int]]:
    return list(zip(images, labels.tolist(), strict=True))


def named(images: Tensor, labels: Tensor) -> Iterator[dict[str, Any]]:
    """Samples as dicts, with more in them than is asked for."""
    for index, (image, label) in enumerate(samples(images, labels)):
        yield {"id": index, "image": image.numpy(), "label": label}


def uneven_batches(images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    sizes = [1, 7, 0, 20, 300, 2, len(images) - 330]
    return zip(images.split(sizes), labels.split(sizes), strict=True)


KINDS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "uint8 pair": lambda images, labels: (images, labels),
    "float pair": lambda images, labels: (images.float() / 255, labels),
    "list of two tensors": lambda images, labels: [images, labels],
    "list of labels": lambda images, labels: (images, labels.tolist()),
    "arrays that run backwards": lambda images, labels: (
        images.flip(3).numpy()[..., ::-1],
        labels.numpy(),
    ),
    "list of images": lambda images, labels: (list(images), labels),
    "lists of arrays and labels": lambda images, labels: [list(images.numpy()), labels.tolist()],
    "tuples of tensors": lambda images, labels: (tuple(images), tuple(labels)),
    "dict": lambda images, labels: {"images": images, "targets": labels},
    "list of samples": samples,
    "samples whose labels have an axis": lambda images, labels: list(
        zip(images, labels[:, None], strict=True)
    ),
    "generator of samples": lambda images, labels: iter(samples(images, labels)),
    "duck-typed dataset": Duck,
    "generator of dicts": named,
    "list of dicts": lambda images, labels: list(named(images, labels)),
    "loader of dicts": lambda images, labels: DataLoader(list(named(images, labels)), 50),
    "batches of lists": lambda images, labels: (
        (list(few), some.tolist()) for few, some in uneven_batches(images, labels) if len(few)
    ),
    "labels that are a column": lambda images, labels: (
        images,
        torch.stack((labels, labels), 1)[:, 1],
    ),
    "int32 labels": lambda images, labels: (images, labels.int()),
    "dataset": Items,
    "tensor dataset": TensorDataset,
    "iterable dataset": Stream,
    "loader": lambda images, labels: DataLoader(Items(images, labels), batch_size=33),
    "generator of batches": uneven_batches,
    "list of batches": lambda images, labels: list(uneven_batches(images, labels)),
}


def measure(data: Any, **options: Any) -> Evaluation:
    network = trained_network()
    options = {"attacks": ATTACKS} | options
    return evaluate(lambda images: network(images.double()), data, **options)


@cache
def expected() -> Evaluation:
    return measure((BYTES.float() / 255, LABELS))


def assert_begins_as_expected(evaluation: Evaluation, count: int) -> None:
    assert len(evaluation) == count
    assert torch.equal(evaluation.labels.long(), LABELS[:count])
    assert torch.equal(evaluation.natural_correct, expected().natural_correct[:count])
    for name, result in evaluation.attacks.items():
        other = expected().attacks[name]
        assert torch.equal(result.correct, other.correct[:count])
        assert result.worst_pose is not None
        assert other.worst_pose is not None
        assert torch.equal(result.worst_pose.values, other.worst_pose.values[:count])
        assert (result.fooled is None) == (other.fooled is None)
        if result.fooled is not None and other.fooled is not None:
            assert torch.equal(result.fooled.unpack(), other.fooled.unpack()[:count])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_the_same_result(kind: str) -> None:
    assert_begins_as_expected(measure(KINDS[kind](BYTES, LABELS)), COUNT)


@pytest.mark.parametrize("label", [LABELS[0], LABELS[:1]], ids=["number", "in an axis"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sample", [None, 1])
def test_one_image_and_its_label_are_data(label: Tensor, channels: int, sample: int | None) -> None:
    image = torch.rand(channels, 8, 8)
    found = evaluate(lambda some: some.flatten(1)[:, :8], (image, label), sample=sample)
    whole = evaluate(lambda some: some.flatten(1)[:, :8], (image[None], LABELS[:1]), sample=sample)
    assert repr(found) == repr(whole)
    assert torch.equal(found.natural_loss, whole.natural_loss)


@pytest.mark.parametrize("kind", ["uint8 pair", "iterable dataset", "generator of batches"])
@pytest.mark.parametrize("limit", [1, 20, 512])
def test_a_limit_gives_the_first_images_what_all_images_give_them(kind: str, limit: int) -> None:
    assert_begins_as_expected(measure(KINDS[kind](BYTES, LABELS), limit=limit), limit)


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_that_leaves_one_class_of_sorted_data_warns(kind: str) -> None:
    data = KINDS[kind](BYTES, (torch.arange(COUNT) >= 400).long())
    with pytest.warns(SuspiciousInput, match="first 20 images are all of class 0: .*shuffle them"):
        measure(data, limit=20, attacks=[])


@pytest.mark.parametrize("ones", [0, 1])
def test_all_images_up_to_the_limit_are_looked_at(ones: int) -> None:
    """More than are measured at once, of which the last may be of the other class."""
    labels = (torch.arange(2 * COUNT) >= COUNT - ones).long()
    data = torch.cat((BYTES, BYTES)), labels
    expect = nullcontext() if ones else pytest.warns(SuspiciousInput, match=f"first {COUNT} images")
    with expect:
        measure(data, limit=COUNT, attacks=[])


@pytest.mark.parametrize("limit", [None, COUNT, 1])
def test_data_of_one_class_that_are_not_cut_do_not_warn(limit: int | None) -> None:
    data = BYTES, torch.zeros(COUNT).long()
    result = measure(data, limit=limit, attacks=[])
    assert len(result) == (limit or COUNT)


def test_a_limit_above_the_number_of_images_is_no_limit() -> None:
    assert_begins_as_expected(measure((BYTES, LABELS), limit=10_000), COUNT)


def test_no_more_batches_are_read_than_the_limit_needs() -> None:
    batches = uneven_batches(BYTES, LABELS)
    measure(batches, limit=25)
    assert len(next(batches)[0]) == 300  # the batch after 1 + 7 + 0 + 20 images


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_images(dtype: torch.dtype) -> None:
    evaluation = measure((IMAGES[:40].clamp(0, 1).to(dtype), LABELS[:40]))
    assert evaluation.natural_accuracy > 0.8
