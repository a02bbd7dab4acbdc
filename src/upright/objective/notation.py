"""The paper's notation for objectives: ``Reg(batch, def)``, read and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

from upright.attacks import ATTACKS, Attack, parse_attack
from upright.objective.options import (
    alike,
    number,
    read_option,
    read_value,
    with_values,
    without_options,
    write_option,
)
from upright.objective.product import BatchType, Objective, Target
from upright.penalties import KL, L2, Penalty
from upright.registry import Registry, UnknownNameError, similar_names

__all__ = ["REGULARIZERS", "canonical", "grammar", "name_penalty", "parse", "usual_weight", "write"]


@dataclass(frozen=True)
class _Regularizer:
    """What a name before the bracket stands for."""

    penalty: Penalty | None
    penalty_target: Target
    weight: float


REGULARIZERS: Registry[_Regularizer] = Registry(
    "regularizer", alphabetical=False, code_of=lambda known: type(known.penalty)
)
"""What stands before the bracket: each penalty with what its x' maximises and its usual weight."""

REGULARIZERS.register("AT")(_Regularizer(None, "penalty", 1.0))
REGULARIZERS.register("L2")(_Regularizer(L2(), "penalty", 1.0))
REGULARIZERS.register("KL")(_Regularizer(KL(), "penalty", 8.0))
REGULARIZERS.register("ALP")(_Regularizer(L2(), "cross-entropy", 1.0))
REGULARIZERS.register("KL-C")(_Regularizer(KL(), "cross-entropy", 8.0))
_OURS = frozenset(REGULARIZERS)


def grammar() -> str:
    """Say what ``Objective.parse`` understands, as the note of an error shows it."""
    attacks = [entry.form.replace(",", "").split()[0] for entry in ATTACKS.entries]
    return f"""\
  std | std* | Reg(batch, def) | Reg(batch, def; option=value, ...) | LocNet(fill)
  Reg:    {", ".join(REGULARIZERS)}
  batch:  nat, rob, mix
  def:    {", ".join(attacks)} (as in Wo-10, refine-20+rnd), in any case;
          with ×m for m draws
  option: λ (or lambda): weight of the penalty
          scale: of L2; direction: of KL, natural or transformed; of a penalty of your own, its
          fields, as in width=0.5
          steps, restarts, step: of S-PGD, the last as in 0.03/0.03/0.3 (px, px, degrees)
          search: what the x' of the cross-entropy maximises, cross-entropy or penalty
  fill:   black, reflection, border or a colour as in #7f7f7f; LocNet regresses the pose of moved
          images, for stn-plus
as in KL(rob, Wo-10), KL-C(mix, S-PGD), L2(nat, rnd×4; λ=0.5, scale=1)"""


def name_penalty(
    name: str, penalty: Penalty, *, weight: float = 1.0, target: Target = "penalty"
) -> None:
    """Teach the notation a penalty: afterwards ``NAME(batch, def)`` is an objective with it.

    The fields of a dataclass become options: ``NAME(batch, def; FIELD=VALUE)``. ``weight`` is the λ
    that it has unless told, ``target`` what its x' maximises. The same class may be named again,
    as where a cell of a notebook is run twice.
    """
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{name!r} is not a word, as names of penalties are: L2, KL-C")
    if name in _OURS:
        raise ValueError(f"{name} is a name of the paper's: choose another name")
    if isinstance(penalty, type):
        raise ValueError(f"{penalty.__name__} is a class: give an instance: {penalty.__name__}()")
    if taken := {"λ", "lambda", "search"} & {*penalty.options()}:
        raise ValueError(
            f"every objective has an option {taken.pop()}: call that field of {penalty} otherwise"
        )
    REGULARIZERS.register(name)(_Regularizer(penalty, target, weight))


_CALL = re.compile(r"([\w-]+)\s*\(\s*(\w+)\s*,([^;()]+)(?:;([^()]*))?\)")


def parse(text: str, *, weight: float | None = None) -> Objective:
    """Read an objective; ``weight`` replaces the λ in it."""
    if text.strip() == "std":
        return Objective(batch="nat")
    match = _CALL.fullmatch("AT(rob, rnd)" if text.strip() == "std*" else text.strip())
    if match is None:
        if text.strip().startswith("LocNet"):
            raise _error(text, "a LocNet is no classifier's; a Recipe and `upright train` take it")
        error = _error(text, "it is not of the form Reg(batch, def)")
        error.add_note(f"The grammar is\n{grammar()}")
        raise error
    name, batch, definition, options = match.groups()
    if options is None and re.search(r",\s*[λ\w]+\s*=", definition):
        raise _error(text, "options come after a semicolon, as in KL(rob, Wo-10; λ=2)")
    if name not in REGULARIZERS:
        raise _unknown(text, REGULARIZERS.unknown(name))
    if batch not in ("nat", "rob", "mix"):
        raise _error(text, f"{batch!r} is not a batch type: nat, rob or mix")
    attack, draws = _attack(text, definition.strip())
    objective = _preset(name, cast(BatchType, batch), attack, draws)
    for option in filter(None, (part.strip() for part in (options or "").split(","))):
        key, _, value = (part.strip() for part in option.partition("="))
        try:
            objective = _option(objective, key).read(objective, value)
        except (ValueError, TypeError) as error:
            names = ", ".join(each.name for each in _options(objective))
            reason = f"{option!r} does not fit here, {error}; options are {names}"
            raise _error(text, reason) from error
    if weight is None or objective.penalty is None:
        return objective
    return replace(objective, weight=weight)


def _in_the_paper(attack: Attack) -> str:
    return str(attack).replace("wo-", "Wo-").replace("s-pgd", "S-PGD")


def write(objective: Objective, *, spell: Callable[[Attack], str] = _in_the_paper) -> str:
    """Write an objective, so that ``parse`` gives it back; ``spell`` names an attack otherwise."""
    if objective.attack is None:
        return "std"
    name, attack = _name(objective), without_options(objective.attack)
    preset = _preset(name, objective.batch, attack, objective.draws)
    definition = spell(attack) + (f"×{objective.draws}" if objective.draws > 1 else "")
    told = [each for each in _options(objective) if each.get(objective) != each.get(preset)]
    options = [f"{each.name}={each.write(objective)}" for each in told]
    for each in told:
        _option(objective, each.name)  # or it would be read as another's
    after = f"; {', '.join(options)}" if options else ""
    text = f"{name}({objective.batch}, {definition}{after})"
    return "std*" if text == "AT(rob, rnd)" else text


def canonical(objective: Objective) -> Objective:
    """Of the objectives that train alike, take the one whose name comes first."""
    name = _first_name(objective.penalty) if objective.single_try else None
    if name is None or objective.attack is None:
        return objective
    preset = _preset(name, objective.batch, objective.attack, objective.draws)
    targets = {each: getattr(preset, each) for each in ("penalty_target", "batch_target")}
    return replace(objective, **targets)


def usual_weight(objective: Objective) -> float:
    """The λ that its name stands for."""
    return REGULARIZERS[_name(objective)].weight


def _preset(name: str, batch: BatchType, attack: Attack, draws: int) -> Objective:
    known = REGULARIZERS[name]
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
    penalty = objective.penalty
    if penalty is None:
        return "AT"  # without a penalty its target means nothing
    names = [
        name
        for name, known in REGULARIZERS.items()
        if type(known.penalty) is type(penalty) and known.penalty_target == objective.penalty_target
    ]
    if not names:
        raise ValueError(f"the notation has no name for {penalty}; give it one with name_penalty")
    name = min(names, key=partial(_distance, objective))  # of equals the first
    _check_options(penalty, REGULARIZERS[name].penalty)
    return name


def _distance(objective: Objective, name: str) -> int:
    """How far what a name stands for is from an objective; ours, which all can read, go first."""
    known = REGULARIZERS[name]
    if name in _OURS:
        return 0
    if not alike(known.penalty, objective.penalty):
        return 3
    return 1 if known.weight == objective.weight else 2


def _first_name(penalty: Penalty | None) -> str | None:
    """The first name that a penalty has, whatever its x' maximises."""
    names = (name for name, known in REGULARIZERS.items() if type(known.penalty) is type(penalty))
    return None if penalty is None else next(names, None)


def _check_options(penalty: Penalty, named: Penalty | None) -> None:
    """Check that options are all in which a penalty differs from the one that has its name."""
    assert named is not None
    options = {field: getattr(penalty, field) for field in penalty.options().values()}
    if not alike(with_values(named, options), penalty):
        raise ValueError(
            f"the notation cannot tell {penalty} from {named}: make its class a dataclass, whose "
            "fields are its options"
        )


def _attack(text: str, definition: str) -> tuple[Attack, int]:
    base, times, draws = definition.replace("*", "×").partition("×")
    try:
        attack = parse_attack(base)
    except UnknownNameError as error:
        raise _unknown(text, error) from error
    except ValueError as error:
        raise _error(text, f"{definition!r} is not a way to search, {error}") from error
    try:
        count = int(draws) if times else 1
    except ValueError:
        count = 0
    if count < 1:
        raise _error(text, f"{definition!r} has no whole number of draws, as rnd×4 has")
    return attack, count


@dataclass(frozen=True)
class _Option:
    """What may stand after the semicolon, of one objective."""

    name: str
    read: Callable[[Objective, str], Objective]
    write: Callable[[Objective], str]
    get: Callable[[Objective], object]


def _options(objective: Objective) -> Iterator[_Option]:
    """All that an objective has, in the order in which they are written."""
    if objective.penalty is not None:
        yield _WEIGHT
        yield from (_part_option("penalty", *each) for each in objective.penalty.options().items())
    if objective.attack is not None:
        yield from (_part_option("attack", *each) for each in objective.attack.options().items())
    yield _SEARCH


def _option(objective: Objective, name: str) -> _Option:
    name = "λ" if name == "lambda" else name
    found = [each for each in _options(objective) if each.name == name]
    if not found:
        near = similar_names(name, (each.name for each in _options(objective)))
        hint = f" (nearest: {near[0]})" if near else ""
        raise ValueError(f"no option is called {name!r}{hint}")
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} options of {objective.penalty} and {objective.attack} are called "
            f"{name}; give each a name of its own"
        )
    return found[0]


def _part_option(owner: Literal["penalty", "attack"], name: str, field: str) -> _Option:
    """An option that is a field of the objective's penalty or attack."""

    def part(objective: Objective) -> Any:
        return getattr(objective, owner)

    return _Option(
        name,
        lambda objective, text: replace(
            objective, **{owner: read_option(part(objective), name, text)}
        ),
        lambda objective: write_option(part(objective), name),
        lambda objective: getattr(part(objective), field),
    )


_WEIGHT = _Option(
    "λ",
    lambda objective, text: replace(objective, weight=read_value(float, text)),
    lambda objective: number(objective.weight),
    lambda objective: objective.weight,
)
_SEARCH = _Option(
    "search",
    lambda objective, text: replace(objective, batch_target=cast(Target, text)),
    lambda objective: objective.batch_target,
    lambda objective: objective.batch_target,
)


def _error(text: str, reason: str) -> ValueError:
    return ValueError(f"cannot read the objective {text!r}: {reason}")


def _unknown(text: str, error: UnknownNameError) -> UnknownNameError:
    return UnknownNameError(
        f"cannot read the objective {text!r}: {error}; for one of your own, import the file "
        "that names it"
    )
