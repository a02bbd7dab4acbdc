"""Models answer in many ways: with a tensor, a tuple, a mapping, an object that has logits."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from upright.logits import ask, logits_of

LOGITS = torch.arange(6.0).reshape(2, 3)


@dataclass
class _Output:
    """As Hugging Face's ModelOutput without labels: the loss is None."""

    loss: Tensor | None
    logits: Tensor


class _Aux(NamedTuple):
    """As torchvision's outputs with auxiliary heads, but with the logits not in front."""

    aux_logits: Tensor
    logits: Tensor


@pytest.mark.parametrize(
    "answer",
    [
        LOGITS,
        (LOGITS,),
        [LOGITS, torch.zeros(2, 64)],
        {"features": torch.zeros(2, 64), "logits": LOGITS},
        OrderedDict(loss=None, logits=LOGITS),
        _Output(None, LOGITS),
        _Aux(torch.zeros(2, 3), LOGITS),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_logits_are_found(answer: object) -> None:
    assert logits_of(answer) is LOGITS


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (None, "NoneType"),
        (LOGITS.numpy(), "ndarray"),
        ((), "tuple"),
        (("a", "b"), "tuple"),
        ({"out": LOGITS, "aux": LOGITS}, "a dict with out, aux"),
    ],
    ids=["nothing", "array", "empty", "texts", "other names"],
)
def test_what_has_no_logits_is_named(answer: object, named: str) -> None:
    with pytest.raises(ValueError, match=f"must return logits .*, but returned {named}; wrap it"):
        logits_of(answer)


def test_logits_must_be_one_row_an_image() -> None:
    with pytest.raises(ValueError, match=r"logits of shape \[5, classes\]"):
        ask(lambda _: LOGITS, torch.zeros(5, 3, 8, 8))


@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 3, 1), (0, 3, 1, 1)])
def test_logits_of_a_network_of_convolutions_alone(shape: tuple[int, ...]) -> None:
    answer = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    assert logits_of(answer).equal(answer.flatten(1))
    assert logits_of({"logits": answer}).shape == shape[:2]


def test_a_map_of_logits_is_none_for_an_image() -> None:
    with pytest.raises(ValueError, match=r"but returned \(2, 3, 4, 4\)"):
        ask(lambda images: torch.zeros(len(images), 3, 4, 4), torch.zeros(2, 1, 8, 8))
