"""The paper's notation for objectives: ``Reg(batch, def)``, read and written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from upright.attacks import Attack, SpatialPGD, parse_attack
from upright.objective.product import Batch, Objective, Target
from upright.penalties import KL, L2, Penalty

__all__ = ["GRAMMAR", "name_penalty", "parse", "write"]

GRAMMAR = """\
  std | std* | Reg(batch, def) | Reg(batch, def; option=value, ...) | LocNet(fill)
  Reg:    AT, L2, KL, ALP, KL-C
  batch:  nat, rob, mix
  def:    rnd, Wo-k for any k, S-PGD, or another attack such as grid-3x3x7 or refine-20+rnd;
          with ×m for m draws
  option: λ (or lambda): weight of the penalty
          scale: of L2; direction: of KL, natural or transformed
          steps, restarts, step: of S-PGD, the last as in 0.03/0.03/0.3 (px, px, degrees)
          search: what the x' of the cross-entropy maximises, cross-entropy or penalty
  fill:   black, reflection, border or a colour as in #7f7f7f; LocNet regresses the pose of moved
          images, for stn-plus
as in KL(rob, Wo-10), KL-C(mix, S-PGD), L2(nat, rnd×4; λ=0.5)"""
"""What ``Objective.parse`` understands, as error messages show it."""


@dataclass(frozen=True)
class _Regularizer:
    """What a name before the bracket stands for."""

    penalty: Penalty | None
    penalty_target: Target
    weight: float


_REGULARIZERS = {
    "AT": _Regularizer(None, "penalty", 1.0),
    "L2": _Regularizer(L2(), "penalty", 1.0),
    "KL": _Regularizer(KL(), "penalty", 8.0),
    "ALP": _Regularizer(L2(), "cross-entropy", 1.0),
    "KL-C": _Regularizer(KL(), "cross-entropy", 8.0),
}


def name_penalty(
    name: str, penalty: Penalty, *, weight: float = 1.0, target: Target = "penalty"
) -> None:
    """Teach the notation a penalty: afterwards ``NAME(batch, def)`` is an objective with it.

    ``weight`` is the λ that it has unless told, ``target`` what its x' maximises.
    """
    if not re.fullmatch(r"[\w-]+", name) or name in _REGULARIZERS:
        raise ValueError(
            f"{name!r} is taken or not a word: the names are {', '.join(_REGULARIZERS)}"
        )
    _REGULARIZERS[name] = _Regularizer(penalty, target, weight)


_CALL = re.compile(r"([\w-]+)\s*\(\s*(\w+)\s*,\s*([^;()]+?)\s*(?:;([^()]*))?\)")


def parse(text: str, *, weight: float | None = None) -> Objective:
    """Read an objective; ``weight`` replaces the λ in it."""
    if text.strip() == "std":
        return Objective(batch="nat")
    match = _CALL.fullmatch("AT(rob, rnd)" if text.strip() == "std*" else text.strip())
    if match is None:
        raise _error(text, "it is not of the form Reg(batch, def)")
    name, batch, definition, options = match.groups()
    if name not in _REGULARIZERS:
        raise _error(text, f"{name!r} is not a regularizer")
    if batch not in ("nat", "rob", "mix"):
        raise _error(text, f"{batch!r} is not a batch type")
    attack, draws = _attack(text, definition)
    objective = _preset(name, cast(Batch, batch), attack, draws)
    for option in filter(None, (part.strip() for part in (options or "").split(","))):
        key, _, value = (part.strip() for part in option.partition("="))
        if key not in _OPTIONS:
            raise _error(text, f"{key!r} is not an option")
        try:
            objective = _OPTIONS[key].put(objective, value)
        except (ValueError, TypeError) as error:
            raise _error(text, f"{option!r} does not fit here") from error
    if weight is None or objective.penalty is None:
        return objective
    return replace(objective, weight=weight)


def write(objective: Objective) -> str:
    """Write an objective, so that ``parse`` gives it back."""
    if objective.attack is None:
        return "std"
    attack = SpatialPGD() if isinstance(objective.attack, SpatialPGD) else objective.attack
    name = _name(objective)
    preset = _preset(name, objective.batch, attack, objective.draws)
    definition = str(attack).replace("wo-", "Wo-").replace("s-pgd", "S-PGD")
    definition += f"×{objective.draws}" if objective.draws > 1 else ""
    if (name, objective.batch, definition) == ("AT", "rob", "rnd"):
        return "std*"
    options = [
        f"{key}={option.get(objective)}"
        for key, option in _OPTIONS.items()
        if key != "lambda" and option.get(objective) != option.get(preset)
    ]
    after = f"; {', '.join(options)}" if options else ""
    return f"{name}({objective.batch}, {definition}{after})"


def _preset(name: str, batch: Batch, attack: Attack, draws: int) -> Objective:
    known = _REGULARIZERS[name]
    # As the authors' program has it: KL(rob, .) searches once, L2(rob, .) and KL(mix, .) twice.
    shares_penalty_search = (name, batch) == ("KL", "rob")
    return Objective(
        batch=batch,
        attack=attack,
        penalty=known.penalty,
        penalty_target=known.penalty_target,
        batch_target="penalty" if shares_penalty_search else "cross-entropy",
        weight=known.weight,
        draws=draws,
    )


def _name(objective: Objective) -> str:
    for name, known in _REGULARIZERS.items():
        same_penalty = type(known.penalty) is type(objective.penalty)
        if same_penalty and known.penalty_target == objective.penalty_target:
            return name
    if objective.penalty is None:
        return "AT"  # without a penalty its target means nothing
    raise ValueError(
        f"the notation has no name for {objective.penalty}; give it one with name_penalty"
    )


def _attack(text: str, definition: str) -> tuple[Attack, int]:
    base, times, draws = definition.replace("*", "×").partition("×")
    try:
        attack, count = parse_attack(base), int(draws) if times else 1
    except ValueError as error:
        raise _error(text, f"{definition!r} is not a way to search") from error
    if count < 1:
        raise _error(text, f"{definition!r} has less than one draw")
    return attack, count


@dataclass(frozen=True)
class _Option:
    put: Callable[[Objective, str], Objective]
    get: Callable[[Objective], str]


def _number(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _part_option(
    owner: str, field: str, read: Callable[[str], Any], show: Callable[[Any], str]
) -> _Option:
    """An option that is a field of the objective's penalty or attack, if that has it."""

    def put(objective: Objective, value: str) -> Objective:
        part = getattr(objective, owner)
        return replace(objective, **{owner: replace(part, **{field: read(value)})})

    def get(objective: Objective) -> str:
        part = vars(getattr(objective, owner) or object).get(field)
        return "" if part is None else show(part)

    return _Option(put, get)


def _triple(text: str) -> tuple[float, float, float]:
    dx, dy, angle = (float(part) for part in text.split("/"))
    return dx, dy, angle


def _put_weight(objective: Objective, value: str) -> Objective:
    if objective.penalty is None:
        raise ValueError("there is no penalty that could have a weight")
    return replace(objective, weight=float(value))


_WEIGHT = _Option(
    _put_weight,
    lambda objective: "" if objective.penalty is None else _number(objective.weight),
)
_OPTIONS = {
    "λ": _WEIGHT,
    "lambda": _WEIGHT,
    "scale": _part_option("penalty", "scale", float, _number),
    "direction": _part_option("penalty", "direction", str, str),
    "steps": _part_option("attack", "steps", int, str),
    "restarts": _part_option("attack", "restarts", int, str),
    "step": _part_option("attack", "step_size", _triple, lambda size: "/".join(map(_number, size))),
    "search": _Option(
        lambda objective, value: replace(objective, batch_target=cast(Target, value)),
        lambda objective: objective.batch_target,
    ),
}


def _error(text: str, reason: str) -> ValueError:
    return ValueError(f"cannot read the objective {text!r}: {reason}. The grammar is\n{GRAMMAR}")
