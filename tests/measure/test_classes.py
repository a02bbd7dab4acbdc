"""Which output is which class: by name, by ImageNet's names, by order; and what cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from upright.data import ClassNames, LabelledImages, imagenet_classes
from upright.evaluation import Question
from upright.measure.classes import first_image, in_model_order, logits_as_asked

PETS = ClassNames(("ant", "bee", "cat"))


def of(*classes: str, labels: list[int] | None = None) -> LabelledImages:
    numbers = torch.tensor([*range(len(classes))] if labels is None else labels)
    return LabelledImages(torch.zeros(len(numbers), 3, 8, 8, dtype=torch.uint8), numbers, classes)


def labels(data: LabelledImages, names: ClassNames | None, outputs: int, **how: bool) -> list[int]:
    return in_model_order(data, names, outputs, **how).labels.tolist()


class TestNames:
    @pytest.mark.parametrize("told", [True, False])
    def test_those_of_the_model_decide(self, told: bool) -> None:
        assert labels(of("bee", "cat"), PETS, 3, told=told) == [1, 2]
        assert labels(of("cat", "ant", "bee"), PETS, 3, told=told) == [2, 0, 1]

    def test_the_same_classes_are_left_as_they_are(self) -> None:
        data = of("ant", "bee", "cat")
        assert in_model_order(data, PETS, 3) is data

    def test_of_a_thousand_outputs_imagenets_are_known(self) -> None:
        folder = of("n01443537", "n07753592")
        assert labels(folder, None, 1000) == [1, 954]
        short = ClassNames(imagenet_classes().shown)  # as torchvision has them, without the ids
        assert labels(folder, short, 1000) == [1, 954]
        assert labels(of("banana", "goldfish"), None, 1000) == [954, 1]

    def test_of_other_counts_they_are_not(self) -> None:
        """As of a network for ten of them, in their order."""
        ten = of(*(f"n0144{number:04}" for number in range(10)))
        assert labels(ten, None, 10) == [*range(10)]

    def test_without_known_names_the_order_decides_if_there_are_as_many(self) -> None:
        assert labels(of("x", "y", "z"), None, 3) == [0, 1, 2]
        assert labels(of("x", "y", "z"), PETS, 3) == [0, 1, 2]

    def test_empty_folders_do_not_matter(self) -> None:
        assert labels(of("bee", "new", "cat", labels=[2, 0]), PETS, 3) == [2, 1]


class TestBackground:
    NAMES = ("tench", "goldfish", *(f"class {number}" for number in range(998)))

    @pytest.mark.parametrize("first", ["background", "Background"])
    def test_imagenets_come_after_it(self, first: str) -> None:
        names = ClassNames((first, *self.NAMES))
        assert labels(of("n01443537", "n07753592"), names, 1001) == [2, 955]
        assert labels(of("goldfish"), names, 1001) == [2]

    def test_without_its_name_the_offset_is_advised(self) -> None:
        names = ClassNames(("nothing", *self.NAMES))
        with pytest.raises(ValueError, match=r"is called n01443537.* give --offset 1"):
            in_model_order(of("n01443537", "n07753592"), names, 1001)


class TestNumbers:
    TWELVE = tuple(sorted(map(str, range(12))))
    """As folders have them: 0, 1, 10, 11, 2."""

    def test_in_the_order_of_letters_they_are_refused_unless_told(self) -> None:
        with pytest.raises(ValueError, match=r"another order \(0, 1, 10, 11, …\).*--classes FILE"):
            in_model_order(of(*self.TWELVE), None, 12)
        told = ClassNames(tuple(map(str, range(12))))
        assert labels(of(*self.TWELVE), told, 12, told=True) == [int(name) for name in self.TWELVE]

    def test_filled_up_with_zeros_they_are_in_order(self) -> None:
        names = [f"{number:02}" for number in range(12)]
        assert labels(of(*names), None, 12) == [*range(12)]

    def test_a_model_that_was_trained_on_them_knows_their_order(self) -> None:
        data = of(*self.TWELVE)
        assert in_model_order(data, ClassNames(self.TWELVE), 12) is data

    def test_they_are_those_of_the_outputs(self) -> None:
        data = of("0", "1", "2")
        for names, outputs in ((None, 3), (None, 1000), (PETS, 3), (None, 1001)):
            assert in_model_order(data, names, outputs) is data

    def test_they_are_names_where_outputs_are_called_by_numbers_too(self) -> None:
        assert labels(of("0", "1", "2"), ClassNames(self.TWELVE), 12) == [0, 1, 4]
        assert labels(of("0", "1", "2"), ClassNames(("2", "1", "0")), 3) == [2, 1, 0]

    def test_names_that_are_told_name_them(self) -> None:
        found = in_model_order(of("0", "1"), PETS, 3, told=True)
        assert (found.classes, found.labels.tolist()) == (PETS.names, [0, 1])

    def test_names_that_are_numbers_are_names_where_they_are_told(self) -> None:
        assert labels(of("0", "1"), ClassNames(("1", "0")), 2, told=True) == [1, 0]


class TestTrouble:
    @pytest.mark.parametrize(
        ("data", "names", "outputs", "told", "message"),
        [
            (of("x", "y"), None, 10, False, r"2 classes \(x, y\), but .* 10 outputs.*--classes"),
            (of("bee", "dogs"), PETS, 3, False, "no output of the model is called dogs;"),
            (of("129", "22"), None, 1000, False, "129, 22; if .* --classes FILE with 0 to 999,"),
            (of("bee", "cats"), PETS, 3, False, r"is called cats \(nearest: cat\); call the fol"),
            (of("x", "y", "z"), PETS, 3, True, "no output of the model is called x, y, z"),
            (of("bee"), PETS, 4, True, r"3 names of classes, but .* 4 outputs; .*--offset 1"),
            (of("bee"), PETS, 9, True, "name each output, in the model's order$"),
            (of("n01443537", "n07753592"), None, 1001, False, "give --offset 1;"),
            (of("a", "b"), None, 3, False, "give --offset 1;"),
            (of("goldfish", "nonesuch"), None, 1000, False, "is called nonesuch"),
            (of("crane"), None, 1000, False, "'crane' may be class"),
        ],
    )
    def test_it_is_told_with_what_to_do(
        self,
        data: LabelledImages,
        names: ClassNames | None,
        outputs: int,
        told: bool,
        message: str,
    ) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            in_model_order(data, names, outputs, told=told)
        assert "\n" not in str(caught.value)


def test_a_model_is_first_asked_about_what_it_will_see() -> None:
    shown: list[Tensor] = []

    class Model(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            shown.append(images)
            return images.new_zeros(len(images), 7)

    question = Question(canvas=2, view=6)
    image = first_image(of("x", "y"), question, torch.device("cpu"))
    assert logits_as_asked(Model(), question, image).shape == (1, 7)
    assert [each.shape for each in shown] == [(1, 3, 6, 6)]


def test_the_shipped_names_are_in_the_package() -> None:
    import upright.data

    assert (Path(upright.data.__file__).parent / "imagenet.txt").is_file()
