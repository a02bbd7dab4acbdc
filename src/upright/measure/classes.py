"""Which output of a model is which class of the data: by their names, or by their order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.checks import Model, few
from upright.data import ClassNames, LabelledImages, imagenet_classes
from upright.evaluation import Question
from upright.evaluation.oracle import move_for
from upright.evaluation.score import Predictor, WorstLoss, logits_themselves
from upright.tiles import Room
from upright.window import Window

__all__ = ["IMAGENET", "are_in_order", "first_image", "in_model_order", "logits_as_asked"]

IMAGENET = 1000
"""Outputs of a model of its classes."""


def first_image(data: LabelledImages, question: Question, device: torch.device) -> Tensor:
    """Give one image as the model will see it."""
    image = F.pad(data.head(1).as_float().to(device), [question.canvas] * 4)
    return Window.of(image, question.view).cut(image)


def logits_as_asked(model: Model, question: Question, images: Tensor) -> Tensor:
    """Ask a model about images unmoved, as an evaluation of the question will ask."""
    count = len(images)
    score = WorstLoss(
        Predictor(model, Room(count)),
        images,
        torch.zeros(count, dtype=torch.int64, device=images.device),
        move_for(model, question.resampling),
        logits_themselves,
    )
    with torch.no_grad():
        return score.ask(question.space.zeros(1, 1))[0]


def in_model_order(
    data: LabelledImages, names: ClassNames | None, outputs: int, *, told: bool = False
) -> LabelledImages:
    """Give each image the number that its class has in the model.

    Names decide: those of the model's outputs, or ImageNet's, by WordNet id or by word, of a model
    with 1000. Classes of which no name is known are the model's in its order, if they are as many;
    classes that are called by their numbers are those of the model.

    Args:
        data: with labels by the order of their own classes.
        names: of the outputs, where they are known.
        outputs: how many the model has.
        told: whether these names were given by hand, and have to fit.
    """
    if told and names is not None and len(names) != outputs:
        raise ValueError(
            f"there are {len(names)} names of classes, but the model has {outputs} outputs; name "
            f"each output, in the model's order{_offset(outputs, len(names))}"
        )
    if names is not None and data.classes in (names.names, names.shown):
        return data
    numbered = _are_numbers(data.classes)
    if numbered and not (told or _knows_all(names, data)):
        return data
    tables = _tables(names, outputs, told=told)
    nearest = min(tables, key=lambda table: len(table.unknown(data)), default=None)
    unknown = [] if nearest is None else nearest.unknown(data)
    if nearest is not None and not unknown:
        return nearest.label(data)
    if numbered and nearest is not None:
        return _named(data, nearest)
    none_known = nearest is None or len(unknown) == len(data.labels.unique())
    if none_known and len(data.classes) == outputs and not told:
        _check_numeric_order(data.classes)
        return data
    raise ValueError(_trouble(data, outputs, nearest, unknown))


def _knows_all(names: ClassNames | None, data: LabelledImages) -> bool:
    """Whether outputs are called by numbers, too, among which are all of the data's."""
    if names is None or not all(name.isdecimal() for name in names.names):
        return False
    return not names.unknown(data)


def are_in_order(data: LabelledImages, labelled: LabelledImages, names: ClassNames | None) -> bool:
    """Whether the order alone said which class is which output, where ``data`` are ``labelled``."""
    return names is None and labelled is data and not _are_numbers(data.classes)


def _tables(names: ClassNames | None, outputs: int, *, told: bool) -> list[ClassNames]:
    """Whose names may be those of the outputs; of equals, the first counts."""
    own = [names] if names is not None and len(names) == outputs else []
    if told:
        return own
    if outputs == IMAGENET + 1 and own and own[0].number("background") == 0:
        return [*own, ClassNames(("background", *imagenet_classes().names))]
    return [*own, imagenet_classes()] if outputs == IMAGENET else own


def _named(data: LabelledImages, names: ClassNames) -> LabelledImages:
    """Call classes that have numbers only by the names of these."""
    fits = int(data.labels.max()) < len(names)
    return data.relabelled(data.labels, names.shown) if fits else data


def _trouble(
    data: LabelledImages, outputs: int, table: ClassNames | None, unknown: Sequence[str]
) -> str:
    if table is None:
        return (
            f"the data have {_classes(data)} ({few(data.classes)}), but the model has "
            f"{outputs} outputs, of which no names are known"
            f"{_offset(outputs, len(data.classes), data)}; name them by --classes FILE, one a line "
            "in the model's order, and the folders of the data like them"
        )
    if all(name.isdecimal() for name in unknown):
        return (
            f"no output of the model is called {few(unknown)}; if these are numbers of outputs, "
            f"give --classes FILE with 0 to {outputs - 1}, one a line"
        )
    near = table.nearest(unknown[0])
    all_unknown = len(unknown) == len(data.labels.unique())
    return (
        f"no output of the model is called {few(unknown)}"
        + (f" (nearest: {near})" if near else "")
        + (_offset(outputs, len(data.classes), data) if all_unknown else "")
        + "; call the folders of the data as the model's outputs are called, those of ImageNet by "
        "WordNet id or name, or name the outputs by --classes FILE, one a line"
    )


def _classes(data: LabelledImages) -> str:
    return "1 class" if len(data.classes) == 1 else f"{len(data.classes)} classes"


def _offset(outputs: int, classes: int, data: LabelledImages | None = None) -> str:
    """Advice for models whose first output is a background class."""
    one_more = outputs == classes + 1
    if data is not None and outputs == IMAGENET + 1:
        one_more |= not imagenet_classes().unknown(data)
    if not one_more:
        return ""
    return "; if the first output is a background class, give --offset 1"


def _are_numbers(classes: Sequence[str]) -> bool:
    return [*classes] == [str(number) for number in range(len(classes))]


def _check_numeric_order(classes: Sequence[str]) -> None:
    """Refuse numbers in the order of their letters, as folders have it: 1, 10, 2."""
    if all(name.isdecimal() for name in classes) and sorted(classes, key=int) != [*classes]:
        raise ValueError(
            f"the classes of the data are numbers in another order ({', '.join(classes[:4])}, …), "
            "so it is not known which output is which; name the outputs by --classes FILE, one a "
            "line in the model's order: these numbers, if they are its own"
        )
