"""Checks of what users bring: a model, images and labels. Each says what is wrong and what to do.

What cannot be right raises ``ValueError``; what is only suspicious warns with ``SuspiciousInput``.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import SupportsIndex

import torch
from torch import Tensor

from upright.callers import warn_caller

__all__ = [
    "Model",
    "SuspiciousInput",
    "as_numbers",
    "check_at_least_1",
    "check_callable",
    "check_class_weights",
    "check_float_images",
    "check_label_form",
    "check_label_range",
    "check_labels",
    "check_layout",
    "check_logits",
    "check_numbers",
    "check_pixels",
    "check_probabilities",
    "check_soft_label_classes",
    "check_soft_label_form",
    "check_top",
    "explain_channels",
    "few",
    "is_training",
    "warn_if_below_a_pixel",
    "warn_if_masks",
    "warn_if_mean_of_bytes",
    "warn_if_no_probabilities",
    "warn_if_normalised",
    "warn_if_one_class",
    "warn_if_probabilities",
    "warn_if_repeating",
    "warn_if_training",
    "warn_of_other_answers",
    "warn_that_export_trains",
    "warn_that_poses_start_anew",
    "warn_that_transparent_is_white",
]

Model = Callable[[Tensor], Tensor]
"""Any callable from float images in [0, 1], N x C x H x W, to logits, N x classes."""


_HANDFUL = 8
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Whole numbers that PyTorch holds, but does not compute with."""


class SuspiciousInput(UserWarning):
    """The input is possible, but probably not what was meant."""


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names of some, for a message."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def check_at_least_1(**numbers: int | None) -> None:
    """Check options that are counts, or None where they are left open."""
    for name, number in numbers.items():
        if number is not None and not isinstance(number, SupportsIndex):  # as 1e3, or 0.1
            raise ValueError(f"{name} must be a whole number, but is {number}")
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, but is {number}")


def check_layout(images: Tensor) -> None:
    """Check that the axes of images are N x C x H x W, and not in another usual order."""
    shape = tuple(images.shape)
    if images.ndim == 4 and shape[3] <= 4 < min(shape[1:3]):
        raise ValueError(
            f"images of shape {shape} look like N x H x W x C, but must be N x C x H x W; give "
            "images.permute(0, 3, 1, 2)"
        )


_OTHER_CHANNELS = re.compile(r"to have (\d+) channels, but got (\d+) channels")


def explain_channels(images: Tensor, error: Exception) -> None:
    """Raise what to do, where a model's error says that images have too many or few channels."""
    found = _OTHER_CHANNELS.search(str(error))
    if found is None or int(found[2]) != images.shape[1]:
        return
    to_grey, to_colour = "images.mean(1, keepdim=True)", "images.expand(-1, 3, -1, -1)"
    wrapped = {"1": to_grey, "3": to_colour if found[2] == "1" else "images[:, :3]"}.get(found[1])
    advice = f"wrap it, as in lambda images: model({wrapped})" if wrapped else "give such data"
    raise ValueError(
        f"the model takes images of {found[1]} channel{'s' * (found[1] != '1')}, but these have "
        f"{found[2]}; {advice}"
    ) from error


def check_top(top: int, classes: int) -> None:
    """Check among how many of the largest logits the true class is to be."""
    if classes == 1:
        raise ValueError(
            "the model has one output, so that every answer would be right; give one with an "
            "output for each class, as in torch.cat((torch.zeros_like(logits), logits), 1) for two"
        )
    if top >= classes:
        raise ValueError(
            f"top must be below the {classes} outputs of the model, but is {top}: every answer "
            "would be right"
        )


def check_float_images(images: Tensor) -> None:
    """Check the shape and the dtype of images."""
    if images.ndim == 4 and images.is_floating_point():
        return
    advice = "give them these four dimensions"
    if not images.is_floating_point():
        advice = "for whole numbers up to 255 use images.float() / 255"
    elif images.ndim == 3:
        advice = "give one image as images[None], grey images as images[:, None]"
    raise ValueError(
        f"images must be float, N x C x H x W, but are {images.dtype} of shape "
        f"{tuple(images.shape)}; {advice}"
    )


def check_pixels(images: Tensor) -> None:
    """Check that values are numbers; warn where they were normalised already, or reach to 255."""
    low, high = images.min().item(), images.max().item()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(
            "images contain NaN or infinite values; check what reads and transforms them"
        )
    if low >= 0 and 64 < high <= 255:
        _warn(f"images reach from {low:.3g} to {high:.3g}, but should lie in [0, 1]: divide by 255")
    elif low < -1e-6 or high > 1 + 1e-6:
        _warn(
            f"images reach from {low:.3g} to {high:.3g}, but should lie in [0, 1]: "
            "move the normalisation into the model, since black (0) fills what a pose uncovers; "
            "take model = upright.Normalised(model, mean, std) and give it model.undo(images)"
        )


def warn_if_masks(images: Tensor) -> None:
    """Warn where whole numbers, of which 255 is white, are nearly black: as 0 and 1 are."""
    if images.numel() and images.max() == 1:
        _warn(
            "uint8 images reach from 0 to 1, where 255 is white: nearly black; give masks of 0 and "
            "1 as float"
        )


def warn_if_repeating(names: Sequence[str]) -> None:
    """Warn of axes of a grid whose values repeat within their limits."""
    if names:
        _warn(
            f"{' and '.join(names)} goes over more than a whole turn, so that a grid has fewer "
            "poses than it seems; 180 degrees to either side are all there is"
        )


def check_labels(labels: Tensor, count: int, classes: int) -> None:
    """Check the labels of a batch of ``count`` images against the number of logits."""
    check_label_form(labels, count)
    check_label_range(labels, classes)


def check_label_form(labels: Tensor, count: int) -> None:
    """Check that there is a class number for each of ``count`` images."""
    if labels.shape != (count,):
        raise ValueError(
            f"{count} images need {count} labels in one axis, but have shape {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.dtype in (torch.bool, *UNSIGNED):
        raise ValueError(f"labels must be class numbers (int64), but are {labels.dtype}")


def check_label_range(labels: Tensor, classes: int, *, ignored: int | None = None) -> None:
    """Check class numbers, but for one that stands for none, against the number of logits."""
    if ignored is not None:
        labels = labels[labels != ignored]
    if not len(labels):
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"labels reach from {low} to {high}, but the model has {classes} outputs: labels must "
            f"lie in 0..{classes - 1}; check that they start at 0 and belong to this model"
        )


def check_class_weights(weight: Tensor, classes: int) -> None:
    """Check the weights that a criterion gives to classes against the number of logits."""
    if weight.shape != (classes,):
        raise ValueError(
            f"the criterion's weight has shape {tuple(weight.shape)}, but the model has {classes} "
            f"outputs: give one number for each class, {classes} in one axis"
        )


def check_soft_label_form(labels: Tensor, count: int) -> None:
    """Check that there is a row of probabilities for each of ``count`` images."""
    if labels.ndim != 2 or len(labels) != count or not labels.is_floating_point():
        if labels.ndim > 2:
            advice = "labels of pixels are not understood"
        elif labels.shape[1] == 1:
            advice = "take labels[:, 0]"
        elif len(labels) == 1 < count:
            advice = "take labels[0]"
        else:
            advice = "of one-hot rows take labels.argmax(1)"
        raise ValueError(
            f"{count} images need {count} class numbers, or {count} rows of float probabilities, "
            f"but the labels are {labels.dtype} of shape {tuple(labels.shape)}; {advice}"
        )


def check_soft_label_classes(labels: Tensor, classes: int) -> None:
    """Check rows of probabilities against the number of logits."""
    if labels.shape[1] != classes:
        raise ValueError(
            f"soft labels have {labels.shape[1]} classes, but the model has {classes} outputs: "
            "both must be as many"
        )


def warn_if_no_probabilities(labels: Tensor) -> None:
    """Warn where soft labels are negative, or do not add up to 1."""
    rows = labels.detach().float()
    if not (rows.min() >= 0 and (rows.sum(1) - 1).abs().max() < 1e-3):
        _warn(
            "soft labels should be probabilities, but some are negative or do not add up to 1 in a "
            "row; divide each row by its sum"
        )


def check_logits(logits: Tensor, count: int) -> None:
    """Check what a model answered to ``count`` images."""
    if logits.ndim != 2 or len(logits) != count:
        raise ValueError(
            f"the model must return logits of shape [{count}, classes] for {count} images, "
            f"but returned {tuple(logits.shape)}; wrap it in a function that does"
        )


def as_numbers(logits: Tensor) -> Tensor:
    """Give logits, with NaN in place of infinity: no class is infinitely more likely than others.

    Minus infinity stays. It is a class that is left out, of probability 0.
    """
    if not logits.is_floating_point():
        return logits  # as of votes, which are counted
    return logits.masked_fill(logits == math.inf, math.nan)


def check_numbers(
    answers: Tensor,
    name: Callable[[tuple[int, ...]], str] | None = None,
    *,
    with_gradient: bool = False,
) -> None:
    """Check a model's logits, ``as_numbers``, or their losses.

    ``name`` says what was asked, of the first answer that is wrong, by where it lies;
    ``with_gradient``, that an answer is none either where its gradient is none.
    """
    wrong = answers.isnan()
    if wrong.any():
        asked = f" for {name(tuple(wrong.nonzero()[0].tolist()))}" if name is not None else ""
        what, otherwise = "logits", ""
        if with_gradient:
            what = "logits, or such a gradient,"
            otherwise = "; attacks such as grid-775 and wo-10 need no gradient"
        raise ValueError(
            f"the model returned NaN or infinite {what}{asked}; check its weights, and try float32 "
            f"if it runs in half precision{otherwise}"
        )


def warn_if_probabilities(logits: Tensor) -> None:
    """Warn where outputs look like softmax outputs: the cross-entropy would apply it again."""
    rows = logits.detach().float()
    if logits.shape[1] > 1 and rows.min() >= 0 and (rows.sum(1) - 1).abs().max() < 1e-3:
        _warn(
            "the model's outputs look like probabilities; return logits, before the softmax, or "
            "tell it: --probabilities, in Python Preprocess(probabilities=True).around(model)"
        )


def check_probabilities(answers: Tensor) -> None:
    """Check that outputs are what comes after a softmax: of others a logarithm makes nonsense.

    Networks with weights of 8 bits round, so that a row need not add up to 1 exactly.
    """
    rows = answers.detach().float()
    if rows.isnan().any():
        return  # which others tell
    if rows.min() < 0 or (rows.sum(1) - 1).abs().max() > 0.1:
        raise ValueError(
            "the model's outputs are no probabilities: some are negative, or do not add up to 1 in "
            "a row; leave out --probabilities, in Python probabilities=True"
        )


def _takes_anything(function: Callable[..., object]) -> bool:
    """Whether a function has a place for images."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    own = inspect.signature(function, follow_wrapped=False).parameters.values()
    return any(each.kind not in kinds for each in own)


def check_callable(model: object) -> None:
    """Refuse what cannot be asked, such as the name of a model, or what makes one."""
    if isinstance(model, type) or (inspect.isfunction(model) and not _takes_anything(model)):
        raise ValueError(
            f"a model takes images and gives logits, but {model.__name__} makes one; call it first"
        )
    if not callable(model):
        name = f"the name {model!r}" if isinstance(model, str) else f"of {type(model).__name__}"
        raise ValueError(
            f"a model takes images and gives logits, but this is {name}; upright.load_model(NAME) "
            "loads one by its name"
        )


def is_training(model: object) -> bool:
    """Whether a module, or a part of it, was left in training mode."""
    return isinstance(model, torch.nn.Module) and any(part.training for part in model.modules())


def warn_if_training(model: object) -> None:
    """Warn where a module was left in training mode."""
    if is_training(model):
        _warn(
            "the model, or a part of it, is in training mode: dropout is on, batch norm depends "
            "on the batch and learns from the test data; call model.eval() first"
        )


def warn_if_one_class(classes: Set[int], images: int) -> None:
    """Warn where the first so many images of data with more classes are all of one.

    A handful may be so by chance, and measures nothing anyway.
    """
    if len(classes) == 1 and images >= _HANDFUL:
        _warn(
            f"the first {images} images are all of class {min(classes)}: the data seem to be "
            "sorted by class; shuffle them, or raise the limit or leave it out"
        )


def warn_that_transparent_is_white() -> None:
    """Warn of pictures with transparent parts, once some were met."""
    _warn(
        "pictures have transparent parts, which are shown on white; lay them on a background of "
        "your choice and save them without transparency if that is not what the model should see"
    )


def warn_if_normalised(images: Tensor) -> None:
    """Warn where pixels lie outside [0, 1], to which families that change them clamp."""
    if bool(((images < 0) | (images > 1)).any()):
        _warn(
            "images have pixels outside [0, 1], which families such as brightness cut off; "
            "transform images before they are normalised"
        )


def warn_if_below_a_pixel(limit_px: float) -> None:
    """Warn where a part of the image's size seems to be meant."""
    if 0 < limit_px < 1:
        _warn(
            f"a translation of {limit_px:g} is {limit_px:g} px, less than one pixel; if "
            f"{100 * limit_px:g} % of the image's size is meant, write {100 * limit_px:g}%"
        )


def warn_if_mean_of_bytes(mean: Sequence[float]) -> None:
    """Warn where a mean lies outside of images in [0, 1]."""
    if (largest := max(mean, key=abs)) and abs(largest) > 1:
        _warn(
            f"a mean of {largest:g} is outside of images in [0, 1]; if it is of bytes, write "
            f"{largest:g}/255, and the std in the same way"
        )


def warn_of_other_answers(*, chance: bool) -> None:
    """Warn that a model answers the same question in two ways: by chance, or by its company."""
    if chance:
        _warn(
            "the model answers differently when asked twice, so its worst case depends on chance; "
            "switch off dropout and sampling"
        )
    else:
        _warn(
            "what the model answers to an image depends on the others of its batch, so its worst "
            "case does, too; put it into evaluation mode: model.eval(), and norms that keep "
            "running statistics"
        )


def warn_that_export_trains(path: Path) -> None:
    """Warn of a saved program that does as in training, and cannot be told otherwise."""
    _warn(
        f"{path} was exported in training mode: its norms or dropouts look at each batch; "
        "export model.eval()"
    )


def warn_that_poses_start_anew(reason: str) -> None:
    """Warn where a loss cannot take up the draws of the state that it is given."""
    _warn(f"poses do not continue those of the saved run: {reason}")


def _warn(message: str) -> None:
    warn_caller(message, SuspiciousInput)
