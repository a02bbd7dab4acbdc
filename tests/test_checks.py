"""Bad input: every case says what is wrong and what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rigid_spaces import rigid_box
from upright import Evaluation, GridSearch, SuspiciousInput, evaluate

IMAGES = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def means(images: Tensor) -> Tensor:
    """A model of three classes: is red, green or blue the strongest?"""
    return 10 * images.mean((2, 3))


def measure(
    model: Callable[[Tensor], Any] = means, data: Any = (IMAGES, LABELS), **options: Any
) -> Evaluation:
    return evaluate(model, data, **{"attacks": ["grid-2x2x2"]} | options)


def test_good_input_passes_without_a_warning() -> None:
    assert len(measure()) == 6


class TestLabels:
    def test_labels_that_start_at_1(self) -> None:
        with pytest.raises(
            ValueError,
            match=r"from 1 to 3, but the model has 3 outputs: labels must lie in 0\.\.2; check",
        ):
            measure(data=(IMAGES, LABELS + 1))

    def test_negative_labels(self) -> None:
        with pytest.raises(ValueError, match=r"labels reach from -1 to 1, .* must lie in 0\.\.2"):
            measure(data=(IMAGES, LABELS - 1))

    def test_labels_out_of_range_in_a_later_batch(self) -> None:
        many = torch.cat([IMAGES] * 100), torch.cat([LABELS] * 99 + [LABELS + 4])
        with pytest.raises(ValueError, match=r"labels reach from 0 to 6, .* must lie in 0\.\.2"):
            measure(data=many, attacks=[])

    def test_labels_that_are_not_numbers_of_classes(self) -> None:
        with pytest.raises(ValueError, match=r"must be class numbers \(int64\), .*torch\.float32"):
            measure(data=(IMAGES, LABELS.float()))

    def test_one_hot_labels(self) -> None:
        with pytest.raises(ValueError, match=r"6 images need 6 labels in one axis, .*\(6, 3\)"):
            measure(data=(IMAGES, torch.eye(3)[LABELS]))

    def test_fewer_labels_than_images(self) -> None:
        with pytest.raises(ValueError, match="6 images, but 5 labels: they must be as many"):
            measure(data=(IMAGES, LABELS[:5]))


class TestOutputs:
    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_nan_logits(self, value: float) -> None:
        with pytest.raises(
            ValueError, match=r"logits for image 0, .* as it is; check its weights, and try"
        ):
            measure(lambda images: means(images) + value)

    @pytest.mark.parametrize("attack", ["grid-3x3x3", "wo-5", "refine-20", "s-pgd"])
    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_nan_logits_under_some_pose_only(self, attack: str, only_accuracy: bool) -> None:
        def fragile(images: Tensor) -> Tensor:
            unmoved = (images > 0).flatten(1).all(1)
            return torch.where(unmoved[:, None], means(images), torch.nan)

        with pytest.raises(ValueError, match=r"image \d, counted from 0, at dx .*; check its"):
            measure(fragile, attacks=[attack], only_accuracy=only_accuracy)

    @pytest.mark.parametrize("only_accuracy", [False, True])
    def test_nan_names_the_image_and_the_pose(self, only_accuracy: bool) -> None:
        """One of 600 images in two chunks, under the one pose that brings a pixel to a place."""
        images = 0.5 * torch.ones(600, 3, 8, 8)
        images[555, :, 2, 3] = 0.9
        labels = torch.zeros(600).long()
        labels[520] = 1  # wrong as it is, so that those behind it move up

        def fragile(images: Tensor) -> Tensor:
            hit = images[:, 0, 1, 5] > 0.89
            return torch.where(hit[:, None], torch.nan, means(images))

        named = r"image 555, counted from 0, at dx 2 px, dy -1 px, angle 0 degrees; check its"
        attacks = [GridSearch((5, 3, 1))]
        space = rigid_box(max_dx=2, max_dy=1, max_angle=0)
        with pytest.raises(ValueError, match=named):
            measure(
                fragile,
                (images, labels),
                attacks=attacks,
                space=space,
                only_accuracy=only_accuracy,
            )

    @pytest.mark.parametrize(
        ("model", "returned"),
        [
            (lambda images: means(images)[:, 0], r"\(6,\)"),
            (lambda images: images, r"\(6, 3, 5, 5\)"),
            (lambda images: means(images)[:2], r"\(2, 3\)"),
            (lambda images: means(images).T, r"\(3, 6\)"),
        ],
        ids=["vector", "images", "too few", "transposed"],
    )
    def test_an_output_that_is_not_images_by_classes(
        self, model: Callable[[Tensor], Any], returned: str
    ) -> None:
        with pytest.raises(
            ValueError,
            match=rf"shape \[6, classes\] for 6 images, but returned {returned}; wrap it",
        ):
            measure(model)

    def test_outputs_that_look_like_probabilities(self) -> None:
        with pytest.warns(SuspiciousInput, match=r"look like probabilities; return logits, before"):
            measure(lambda images: means(images).softmax(1))

    def test_a_single_output_is_always_right(self) -> None:
        with pytest.raises(
            ValueError,
            match=r"one output, .* torch\.cat\(\(torch\.zeros_like\(logits\), logits\), 1",
        ):
            measure(lambda images: torch.ones(len(images), 1), (IMAGES, 0 * LABELS))

    def test_a_model_that_answers_differently_when_asked_twice(self) -> None:
        generator = torch.Generator().manual_seed(0)

        def fickle(images: Tensor) -> Tensor:
            return means(images) + torch.randn(len(images), 3, generator=generator)

        with pytest.warns(
            SuspiciousInput,
            match=r"differently when asked twice, .*switch off dropout and sampling",
        ):
            measure(fickle)

    def test_half_precision_may_round_differently_when_asked_twice(self) -> None:
        asked = iter(range(10_000))

        def rounded(images: Tensor) -> Tensor:
            return (means(images) + 0.01 * (next(asked) % 2)).bfloat16()

        with warnings.catch_warnings():
            warnings.simplefilter("error", SuspiciousInput)
            measure(rounded)

    def test_a_model_in_training_mode(self) -> None:
        network = nn.Sequential(nn.Flatten(), nn.Linear(75, 3))
        with pytest.warns(SuspiciousInput, match=r"training mode: .* call model\.eval\(\) first"):
            measure(network.train())
        measure(network.eval())


class TestImages:
    @pytest.mark.parametrize(
        ("images", "reach", "advice"),
        [
            (IMAGES * 255, r"\S+ to 25\d", "divide by 255"),
            (IMAGES - 0.5, r"-0\.\d+ to 0\.\d+", "move the normalisation"),
            (IMAGES * 4, r"\S+ to [34]\S*", "move the normalisation"),
        ],
        ids=["0 to 255", "normalised", "by a deviation alone"],
    )
    def test_images_outside_0_to_1(self, images: Tensor, reach: str, advice: str) -> None:
        with pytest.warns(
            SuspiciousInput,
            match=rf"images reach from {reach}, but should lie in \[0, 1\]: {advice}",
        ):
            measure(data=(images, LABELS))

    def test_names_are_neither_models_nor_data(self) -> None:
        with pytest.raises(ValueError, match=r"this is the name 'timm:x'; upright\.load_model"):
            evaluate("timm:x", (IMAGES, LABELS), attacks=["rnd"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"this is of list; upright\.load_model"):
            evaluate([], (IMAGES, LABELS), attacks=["rnd"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"load them first, by upright\.data\.load_data"):
            measure(data="glyphs")

    @pytest.mark.parametrize("attack", ["wo-1000000000", "grid-100000x100000x1000"])
    def test_more_poses_than_can_be_listed(self, attack: str) -> None:
        with pytest.raises(ValueError, match=rf"{attack} has 1.* poses: at most 10,000,000 can"):
            measure(attacks=[attack])

    def test_images_that_are_nan(self) -> None:
        with pytest.raises(ValueError, match="images contain NaN or infinite values; check what"):
            measure(
                lambda images: means(images.nan_to_num()), (IMAGES * torch.nan, LABELS), attacks=[]
            )

    def test_integer_images_other_than_bytes(self) -> None:
        with pytest.raises(
            ValueError, match=r"must be float, .* torch\.int64 of shape .*float\(\) / 255"
        ):
            measure(data=((255 * IMAGES).long(), LABELS))

    def test_images_without_channels(self) -> None:
        with pytest.raises(ValueError, match=r"N x C x H x W, but are .*\(6, 5, 5\)"):
            measure(data=(IMAGES[:, 0], LABELS))

    def test_images_of_different_sizes(self) -> None:
        batches = [(IMAGES, LABELS), (IMAGES[..., :4], LABELS)]
        with pytest.raises(
            ValueError, match=r"\(3, 5, 5\) and \(3, 5, 4\) .* crop them to one size"
        ):
            measure(data=batches)


class TestData:
    @pytest.mark.parametrize(
        "data",
        [
            (IMAGES[:0], LABELS[:0]),
            [],
            iter([]),
            [(IMAGES[:0], LABELS[:0])],
            torch.utils.data.TensorDataset(IMAGES[:0], LABELS[:0]),
        ],
        ids=["pair", "list", "iterator", "empty batch", "dataset"],
    )
    def test_an_empty_data_set(self, data: Any) -> None:
        with pytest.raises(ValueError, match="data set is empty: there is nothing to evaluate"):
            measure(data=data)

    @pytest.mark.parametrize(
        ("batch", "kind"),
        [
            (frozenset(), "frozenset"),
            (IMAGES, "Tensor"),
            ((IMAGES, LABELS, LABELS), "tuple"),
        ],
        ids=["set", "images alone", "triple"],
    )
    def test_a_batch_that_is_not_a_pair(self, batch: Any, kind: str) -> None:
        with pytest.raises(
            ValueError, match=rf"must be a pair \(images, labels\), but one is .*{kind}.*; map the"
        ):
            measure(data=[batch])

    def test_a_batch_with_fewer_labels_than_images(self) -> None:
        with pytest.raises(ValueError, match="a batch has 6 images, but 5 labels"):
            measure(data=[(IMAGES, LABELS[:5])])
