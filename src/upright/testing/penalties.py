"""What objectives rely on in a penalty."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from upright.penalties import Penalty, penalties_of
from upright.testing.rules import alike, keeps, noise

__all__ = ["check_penalty"]

_ROUNDING = 1e-9
_CLASSES = 5


def check_penalty(penalty: Penalty) -> None:
    """Try every rule of a penalty.

    >>> from upright.penalties import KL
    >>> check_penalty(KL())
    """
    if not isinstance(penalty, Penalty):
        raise ValueError(f"a penalty is an instance of Penalty, as KL() is, not {penalty!r}")
    rules = {
        "one value comes for each pair, and many copies of one original broadcast": _broadcasts,
        "a pair alone has the value that it has among others": _is_of_one_pair,
        "logits are left as they were": _writes_nothing,
        "the same logits give the same value": _is_certain,
        "no pair costs less than one of equal logits": _is_least_where_equal,
        "slopes are those of small differences": _slopes_agree,
        "values and slopes are finite where logits agree, and where they are sure": _is_finite,
    }
    keeps(str(penalty), {rule: partial(attempt, penalty) for rule, attempt in rules.items()})


def _logits(*shape: int, seed: int = 0) -> Tensor:
    """Others each time: a penalty that writes into them breaks one rule and not all."""
    return 6 * noise(*shape, _CLASSES, seed=seed) - 3


def _pairs() -> tuple[Tensor, Tensor]:
    return _logits(4), _logits(4, seed=1)


def _broadcasts(penalty: Penalty) -> None:
    copies = _logits(3, 4, seed=1)
    each = torch.stack([penalties_of(penalty, _logits(4), copy.clone()) for copy in copies])
    alike(penalties_of(penalty, _logits(4), copies), each, to=_ROUNDING)


def _is_of_one_pair(penalty: Penalty) -> None:
    pairs = zip(*(side.split(1) for side in _pairs()), strict=True)
    alone = torch.cat([penalties_of(penalty, *pair) for pair in pairs])
    alike(penalties_of(penalty, *_pairs()), alone, to=_ROUNDING)


def _writes_nothing(penalty: Penalty) -> None:
    given = _pairs()
    penalty(*given)
    for now, before in zip(given, _pairs(), strict=True):
        alike(now, before)


def _is_certain(penalty: Penalty) -> None:
    alike(penalty(*_pairs()), penalty(*_pairs()))


def _is_least_where_equal(penalty: Penalty) -> None:
    natural, _ = _pairs()
    equal = penalties_of(penalty, natural, natural.clone())
    for seed in range(1, 9):
        less = (equal - penalties_of(penalty, natural, _logits(4, seed=seed))).max()
        if less > _ROUNDING:
            raise AssertionError(
                f"one costs {float(less):.3g} less: what the penalty is to bring together, it "
                "would drive apart"
            )


def _slopes_agree(penalty: Penalty) -> None:
    """By what it is not detached from: to hold one side fast is a penalty's own choice."""
    natural, transformed = _pairs()
    given = natural.requires_grad_(), transformed.requires_grad_()
    value = penalty(*given).sum()
    if not value.requires_grad:
        raise AssertionError("its values do not depend on logits in a way that trains anything")
    slopes = torch.autograd.grad(value, given, allow_unused=True)
    free = [side for side, slope in zip(given, slopes, strict=True) if slope is not None]
    if not any(slope.any() for slope in slopes if slope is not None):
        raise AssertionError("they are zero for all logits, which trains nothing")

    def of_free(*sides: Tensor) -> Tensor:
        put = dict(zip(map(id, free), sides, strict=True))
        return penalty(*(put.get(id(side), side.detach()) for side in given))

    torch.autograd.gradcheck(of_free, tuple(free))


def _is_finite(penalty: Penalty) -> None:
    sure = torch.tensor([[1e3, 0.0, -1e3, 0.0, 0.0]])
    for natural, transformed in ((sure, sure), (sure, -sure), (0 * sure, 0 * sure)):
        given = natural.clone().requires_grad_(), transformed.clone().requires_grad_()
        value = penalty(*given)
        slopes = torch.autograd.grad(value.sum(), given, allow_unused=True)
        for found in (value, *(slope for slope in slopes if slope is not None)):
            if not found.isfinite().all():
                at = f"{natural[0].tolist()} and {transformed[0].tolist()}"
                raise AssertionError(f"at {at} there is {found.flatten().tolist()}")
