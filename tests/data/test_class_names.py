"""Classes by name: ImageNet's, those of files, and images of some of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from other_libraries import need
from upright.data import ClassNames, LabelledImages, imagenet_classes, read_classes


def of(*classes: str, labels: list[int] | None = None) -> LabelledImages:
    numbers = torch.tensor([*range(len(classes))] if labels is None else labels)
    images = torch.arange(len(numbers), dtype=torch.uint8).view(-1, 1, 1, 1)
    return LabelledImages(images, numbers, classes)


class TestImageNet:
    def test_the_order_is_that_of_sorted_wordnet_ids(self) -> None:
        ids = [name.rsplit(", ", 1)[1] for name in imagenet_classes().names]
        assert len(ids) == 1000
        assert ids == sorted(set(ids))

    @pytest.mark.parametrize(
        ("name", "number"),
        [  # as everybody's tables have them
            ("n01440764", 0),
            ("n01440764_tench", 0),
            ("tench", 0),
            ("Tinca_tinca", 0),
            ("tench, Tinca tinca", 0),
            ("goldfish", 1),
            ("tiger_cat", 282),
            ("Egyptian cat", 285),
            ("banana", 954),
            ("toilet tissue", 999),
            ("n02012849", 134),
            ("n03126707", 517),
            ("cat", None),
            ("n99999999", None),
        ],
    )
    def test_known_places(self, name: str, number: int | None) -> None:
        assert imagenet_classes().number(name) == number

    def test_a_word_of_two_classes_is_told(self) -> None:
        with pytest.raises(ValueError, match=r"'crane' may be class 134 .* or 517 .*; call it by"):
            imagenet_classes().number("crane")

    def test_shown_names_are_short_and_no_two_alike(self) -> None:
        shown = imagenet_classes().shown
        assert shown[0] == "tench"
        assert shown[134] == "crane, n02012849"
        assert len(set(shown)) == 1000

    def test_timm_has_the_same(self) -> None:
        info = need("timm").data.ImageNetInfo("imagenet-1k")
        for number, (name, words) in enumerate(
            zip(info.label_names(), info.label_descriptions(), strict=True)
        ):
            assert imagenet_classes().names[number] == f"{words}, {name}"


class TestLabel:
    NAMES = ClassNames(("ant", "bumble-bee, bee", "Cat"))

    def test_some_classes_in_another_order_get_the_numbers_of_all(self) -> None:
        data = of("cat", "Bumble Bee", labels=[1, 0, 0])
        found = self.NAMES.label(data)
        assert found.labels.tolist() == [1, 2, 2]
        assert found.classes == ("ant", "bumble-bee", "Cat")
        assert torch.equal(found.images, data.images)

    def test_classes_without_images_need_no_known_name(self) -> None:
        data = of("ant", "nobody", "cat", labels=[2, 0])
        assert self.NAMES.label(data).labels.tolist() == [2, 0]
        assert self.NAMES.unknown(data) == []

    def test_unknown_and_double_names_are_told(self) -> None:
        with pytest.raises(ValueError, match="no class of the model is called dog, fox"):
            self.NAMES.label(of("ant", "dog", "fox"))
        with pytest.raises(ValueError, match="bee and bumble bee are one class"):
            self.NAMES.label(of("bee", "bumble bee"))
        assert self.NAMES.nearest("ants") == "ant"


class TestFiles:
    NAMES = ("ant", "bee", "cat, Felis")

    @pytest.mark.parametrize(
        "text",
        [
            "ant\nbee\ncat, Felis\n",
            "\ufeffant\r\nbee\r\ncat, Felis\r\n\r\n",
            '["ant", "bee", ["cat", "Felis"]]',
            '{"0": "ant", "2": "cat, Felis", "1": "bee"}',
            '{"id2label": {"0": "ant", "1": "bee", "2": "cat, Felis"}, "other": 1}',
            '{"0": ["ant"], "1": ["bee"], "2": ["cat", "Felis"]}',
        ],
    )
    def test_one_a_line_or_json(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "names").write_text(text, encoding="utf-8", newline="")
        assert read_classes(tmp_path / "names").names == self.NAMES

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "a class has no name"),
            ("ant\n\nbee", "a class has no name"),
            ("{", "no names of classes"),
            ('{"0": "ant", "2": "bee"}', "no 1: they are numbered from 0, without gaps"),
            ('{"1": "ant", "2": "bee"}', "no 0: they are numbered from 0, without gaps"),
            ('{"a": "ant"}', "no names of classes"),
            ("[1, 2]", "no names of classes"),
            (json.dumps({"id2label": 3}), "no names of classes"),
        ],
    )
    def test_what_is_wrong_is_told(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "names").write_text(text)
        with pytest.raises(ValueError, match=message) as caught:
            read_classes(tmp_path / "names")
        assert "\n" not in str(caught.value)
        with pytest.raises(ValueError, match="no names of classes can be read"):
            read_classes(tmp_path / "nowhere")
