"""What lies between images in [0, 1] and a network of others: one value that wraps any model.

Networks differ in how they take images (normalised, channels first or last) and in how they answer
(a background class first, probabilities). Which of these a network wants is no part of its weights,
so it has to be told, or read from what its makers wrote down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from upright.checks import (
    Model,
    check_probabilities,
    warn_if_mean_of_bytes,
    warn_if_probabilities,
)
from upright.identity import as_module
from upright.logits import logits_of
from upright.normalised import Normalised
from upright.sources.preprocess_configs import fields_of

__all__ = ["AS_IT_IS", "Channels", "Layout", "Preprocess"]

Layout = Literal["channels-first", "channels-last"]
"""The order of the axes of a batch: N x C x H x W or N x H x W x C."""

Channels = Literal["rgb", "bgr"]
"""The order of the colours: red first or blue first."""


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """How a network takes images and gives answers; what is None is not told.

    Two of them are joined by ``|``, in which the one on the right has the last word.

    >>> own = Preprocess(mean=(0.5,), std=(0.25,), center_crop=224)
    >>> own | Preprocess(center_crop=256)
    Preprocess(mean=(0.5,), std=(0.25,), center_crop=256)
    """

    mean: tuple[float, ...] | None = None
    """Of each channel, red first, or one for all, on the scale of images in [0, 1]."""
    std: tuple[float, ...] | None = None
    """The same, to divide by: bytes from 0 to 255 are a mean of 0 and a std of 1/255."""
    layout: Layout | None = None
    """In which order it takes the axes of a batch; if not told, N x C x H x W."""
    channels: Channels | None = None
    """In which order it takes the colours; if not told, red first."""
    offset: int | None = None
    """How many outputs come before those of the classes: 1 of 1001 that begin with background."""
    probabilities: bool | None = None
    """Whether it answers after the softmax: the logarithm then stands for logits."""
    resize: int | None = None
    """The shorter side of the images that it is usually shown, in pixels, before the crop."""
    center_crop: int | None = None
    """The side of the central square of them, in pixels."""

    def __post_init__(self) -> None:
        mean, std = _numbers("mean", self.mean), _numbers("std", self.std)
        if mean is not None and std is not None:  # one of them may be for all channels
            mean = mean * len(std) if len(mean) == 1 else mean
            std = std * len(mean) if len(std) == 1 else std
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)
        _check(self)

    @staticmethod
    def of(told: object) -> Preprocess:
        """Read what somebody wrote down.

        Args:
            told: the path of a JSON file, or its text or content: these fields, a
                ``preprocessor_config.json`` of Hugging Face, or a data configuration of timm
                (``config.json``). Or a processor of transformers, the transforms of torchvision's
                weights, ``imagenet`` (the usual mean and std) or ``inception`` (0.5 for both).

        >>> Preprocess.of({"mean": [0.5], "std": [0.5], "input_size": [3, 224, 224]})
        Preprocess(mean=(0.5,), std=(0.5,), resize=224, center_crop=224)
        """
        return told if isinstance(told, Preprocess) else _made(fields_of(told))

    def __or__(self, other: object) -> Preprocess:
        return self.but_for(**other.told) if isinstance(other, Preprocess) else NotImplemented

    def but_for(self, **fields: Any) -> Preprocess:
        """Give the same but for some fields; None is not told."""
        said = {name: value for name, value in fields.items() if value is not None}
        return Preprocess(**self.told | said)

    def __repr__(self) -> str:
        return f"Preprocess({', '.join(f'{name}={value!r}' for name, value in self.told.items())})"

    @property
    def told(self) -> dict[str, Any]:
        """All that is told, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def as_json(self) -> dict[str, Any]:
        """Give what a model's answers to an image depend on, as records hold it."""
        sizes = ("resize", "center_crop")  # which are asked for with the data
        plain = {name: value for name, value in self.told.items() if name not in sizes}
        return {name: [*value] if type(value) is tuple else value for name, value in plain.items()}

    def around(self, model: Model) -> Model:
        """Wrap a model into one from images in [0, 1], N x C x H x W, to logits.

        >>> model = Preprocess(mean=(0.5,), std=(0.5,), offset=1).around(nn.Flatten())
        >>> model(torch.ones(1, 3, 1, 1))
        tensor([[1., 1.]])
        """
        if self.layout == "channels-last":
            model = _ChannelsLast(model, "channels-last")
        if self.channels == "bgr":
            model = _BlueFirst(model, "bgr")
        if self.offset or self.probabilities:
            model = _Answers(model, self.offset or 0, probabilities=bool(self.probabilities))
        if self.mean is None or self.std is None:
            return model
        warn_if_mean_of_bytes(self.mean)
        return Normalised(model, self.mean, self.std)


class _Around(nn.Module):
    """Stands around a network; what it does enters the state, by which a model is known."""

    def __init__(self, network: Model, what: str) -> None:
        super().__init__()
        self.network, self.what = as_module(network), what
        # It has no mode of its own: around a network in evaluation mode nothing is in training.
        self.training = self.network.training

    def get_extra_state(self) -> str:
        return self.what

    def set_extra_state(self, state: str) -> None:
        if state != self.what:
            raise ValueError(f"this model has {self.what}, and the state {state}")

    def extra_repr(self) -> str:
        return self.what


class _ChannelsLast(_Around):
    def forward(self, images: Tensor) -> Tensor:
        return logits_of(self.network(images.permute(0, 2, 3, 1).contiguous()))


class _BlueFirst(_Around):
    def forward(self, images: Tensor) -> Tensor:
        return logits_of(self.network(images.flip(1)))


class _Answers(_Around):
    def __init__(self, network: Model, offset: int, *, probabilities: bool) -> None:
        super().__init__(network, f"offset {offset}" + " probabilities" * probabilities)
        self.offset, self.probabilities, self._looked = offset, probabilities, False

    def forward(self, images: Tensor) -> Tensor:
        answers = logits_of(self.network(images))
        if self.offset >= answers.shape[1]:
            raise ValueError(
                f"an offset of {self.offset} leaves none of the model's {answers.shape[1]} "
                "outputs; give a smaller one"
            )
        if not self._looked:  # at all of them: a part tells nothing
            (check_probabilities if self.probabilities else warn_if_probabilities)(answers)
            self._looked = True
        answers = answers[:, self.offset :]
        if not self.probabilities:
            return answers
        # The softmax of these is again what the network said, of the classes that are left.
        return answers.clamp_min(torch.finfo(answers.dtype).tiny).log()


def _made(fields: Mapping[str, Any]) -> Preprocess:
    known = asdict(Preprocess())
    if {"architectures", "model_type"} & fields.keys():
        raise ValueError(
            "this describes a network, and not its preprocessing; give the "
            "preprocessor_config.json that lies beside it"
        )
    if unknown := sorted(map(str, set(fields) - set(known))):
        more = ", …" * (len(unknown) > 3)
        raise ValueError(
            f"preprocessing has no {', '.join(unknown[:3])}{more}; it has {', '.join(known)}, and "
            "the fields of a preprocessor_config.json or of timm's data configuration are read too"
        )
    return Preprocess(**fields)


def _numbers(name: str, value: object) -> tuple[float, ...] | None:
    if value is None:
        return None
    if callable(as_list := getattr(value, "tolist", None)):  # of an array or a tensor
        value = as_list()
    values: list[Any] = [*value] if isinstance(value, tuple | list) else [value]
    if not values or not all(_is_number(each) for each in values):
        raise ValueError(f"{name} is {value!r}; give numbers, one for each channel or one for all")
    return tuple(float(each) for each in values)


def _is_number(value: object) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value)  # type: ignore[arg-type]


def _check(told: Preprocess) -> None:
    if (told.mean is None) != (told.std is None):
        raise ValueError("mean and std belong together: give both, or none")
    if told.mean is not None and told.std is not None:
        Normalised(nn.Identity(), told.mean, told.std)  # which looks at the numbers
    for name, words in (("layout", get_args(Layout)), ("channels", get_args(Channels))):
        if (value := getattr(told, name)) not in (None, *words):
            raise ValueError(f"{name} is {value!r}; give {' or '.join(words)}")
    for name, least in (("offset", 0), ("resize", 1), ("center_crop", 1)):
        value = getattr(told, name)
        if value is not None and (type(value) is not int or value < least):
            raise ValueError(f"{name} is {value!r}; give a whole number of at least {least}")
    if told.probabilities not in (None, True, False):
        raise ValueError(f"probabilities is {told.probabilities!r}; give true or false")


AS_IT_IS = Preprocess()
"""Nothing is done."""
