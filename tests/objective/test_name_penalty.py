"""A penalty of one's own joins the notation by one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from upright import Objective, Penalty, RegularizedLoss, name_penalty
from upright.attacks import ATTACKS, CandidateSearch, RandomSearch, attack_name
from upright.objective.notation import REGULARIZERS
from upright.penalties import KL, L2
from upright.pose import Pose
from upright.space import Space
from upright.train import Recipe


@dataclass(frozen=True)
class Widest(Penalty):
    """The largest difference of two logits."""

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        return (natural - transformed).abs().amax(-1)


@dataclass(frozen=True)
class Margin(Penalty):
    """With options of every kind that the notation can write."""

    width: float = 1.0
    norm: Literal["l1", "l2"] | None = "l2"
    classes: int | None = None
    strict: bool = False
    sides: tuple[float, ...] = (1.0,)
    pair: tuple[int, bool] = (1, True)
    word: str = "plain"

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        return ((natural - transformed).abs().amax(-1) - self.width).clamp(min=0)


class Plain(Penalty):
    """Of a class without fields and ``==``, which the notation cannot look into."""

    def __init__(self, width: float = 1.0) -> None:
        self.width = width

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        return self.width * (natural - transformed).abs().amax(-1)


@dataclass(frozen=True)
class Jumps(RandomSearch):
    """An attack whose name leaves out an option."""

    size: float = 0.5

    @classmethod
    def options(cls) -> Mapping[str, str]:
        return {"jump": "size"}

    def __str__(self) -> str:
        return f"jumps-{self.tries}"


class Silent(CandidateSearch):
    """An attack without ``==`` and a hash, whose name leaves out what it holds."""

    passes_per_image = 1
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, size: float = 1.0) -> None:
        self.size = size

    def __str__(self) -> str:
        return "silent"

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        return space.sample(1, count, generator=generator)


@dataclass(frozen=True)
class Clashing(Penalty):
    """An option by the name of one of S-PGD."""

    steps: int = 1

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        return (natural - transformed).abs().sum(-1)


@dataclass(frozen=True)
class Reserved(Clashing):
    """An option by a name that every objective has."""

    search: str = "wide"


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGULARIZERS, "_entries", dict(REGULARIZERS._entries))
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))
    attack_name("jumps-K", r"jumps-(\d+)")(lambda tries: Jumps(int(tries)))


def test_named_penalty_is_read_written_and_trained_with() -> None:
    name_penalty("MAX", Widest(), weight=3.0)
    objective = Objective.parse("MAX(nat, Wo-2)")
    assert (objective.penalty, objective.weight) == (Widest(), 3.0)
    assert str(objective) == "MAX(nat, Wo-2)"
    assert Objective.parse(str(replace(objective, weight=0.5))).weight == 0.5
    images, labels = torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 0])
    weights = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))
    terms = RegularizedLoss(objective)(lambda x: x.flatten(1) @ weights, images, labels)
    assert terms.penalty is not None
    assert terms.natural_loss is not None
    assert terms.total.item() == pytest.approx(float(terms.natural_loss + 3 * terms.penalty))


def test_penalty_without_a_name_is_not_written_as_another() -> None:
    objective = replace(Objective.parse("KL(nat, rnd)"), penalty=Widest())
    with pytest.raises(ValueError, match="name_penalty"):
        str(objective)


@pytest.mark.parametrize("name", ["KL", "two words", ""])
def test_name_that_is_taken_or_no_word_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"choose another name|not a word"):
        name_penalty(name, Widest())


def test_a_penalty_is_named_again_but_another_is_not() -> None:
    name_penalty("Margin", Margin())
    name_penalty("Wide", Margin(3.0), weight=0.01)
    order = list(REGULARIZERS)
    name_penalty("Margin", Margin(2.0), weight=5.0)  # a cell of a notebook, changed and run again
    objective = Objective.parse("Margin(nat, Wo-2)")
    assert (objective.penalty, objective.weight) == (Margin(2.0), 5.0)
    assert list(REGULARIZERS) == order
    with pytest.raises(ValueError, match="another regularizer is called 'Margin': choose another"):
        name_penalty("Margin", Widest())


@pytest.mark.parametrize(("name", "penalty"), [("L2", L2(1.0)), ("KL-C", KL()), ("AT", L2())])
def test_the_names_of_the_paper_keep_their_meaning(name: str, penalty: Penalty) -> None:
    before = REGULARIZERS[name]
    with pytest.raises(ValueError, match="choose another name"):
        name_penalty(name, penalty)
    assert REGULARIZERS[name] is before


def test_a_class_is_no_penalty() -> None:
    with pytest.raises(ValueError, match=r"give an instance: Widest\(\)"):
        name_penalty("MAX", Widest)  # type: ignore[arg-type]


def test_of_several_names_the_one_that_agrees_is_written() -> None:
    name_penalty("Margin", Margin())
    name_penalty("M3", Margin(3.0), weight=0.01)
    for text in (
        "M3(nat, Wo-2)",
        "M3(nat, Wo-2; λ=0.5)",
        "Margin(nat, Wo-2)",
        "Margin(nat, Wo-2; λ=0.01)",
        "Margin(nat, Wo-2; λ=0.01, width=2)",
    ):
        assert str(Objective.parse(text)) == text
        assert Recipe(objective=text).method == text
    assert str(Objective.parse("Margin(nat, Wo-2; λ=0.01, width=3)")) == "M3(nat, Wo-2)"
    name_penalty("P1", Plain(1.0))
    name_penalty("P2", Plain(2.0))
    assert str(with_penalty(Plain(2.0))) == "P2(rob, Wo-10)"


def test_a_name_of_ones_own_for_a_penalty_of_the_paper_changes_no_recipe() -> None:
    text = "KL(rob, Wo-10; λ=1)"
    before = Recipe(objective=text).hash
    name_penalty("KL1", KL(), weight=1.0)
    assert Recipe(objective=text).hash == before
    assert str(Objective.parse("KL1(nat, Wo-10)")) == "KL(nat, Wo-10; λ=1)"


@dataclass(frozen=True)
class Unsummed(Penalty):
    """One that forgets to sum over the classes, or sums over the images, too."""

    over_all: bool = False

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        differences = (natural - transformed).square()
        return differences.sum() if self.over_all else differences


@pytest.mark.parametrize("penalty", [Unsummed(), Unsummed(over_all=True)])
@pytest.mark.parametrize("attack", ["rnd", "Wo-2", "S-PGD", "rnd×2"])
def test_a_penalty_of_another_shape_is_named(penalty: Penalty, attack: str) -> None:
    objective = replace(Objective.parse(f"L2(nat, {attack})"), penalty=penalty)
    images, labels = torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match="one value for each pair: sum over the last axis") as told:
        RegularizedLoss(objective)(lambda x: x.flatten(1)[:, :2], images, labels)
    assert str(told.value).startswith(f"{penalty} gave (")


def with_penalty(penalty: Penalty, **changes: Any) -> Objective:
    return replace(Objective.parse("L2(rob, Wo-10)"), penalty=penalty, **changes)


def test_the_options_of_a_named_penalty_are_written_and_read() -> None:
    name_penalty("Margin", Margin())
    objective = with_penalty(Margin(0.5))
    assert str(objective) == "Margin(rob, Wo-10; width=0.5)"
    assert Objective.parse(str(objective)) == objective
    assert str(with_penalty(Margin())) == "Margin(rob, Wo-10)"


def test_recipes_with_other_options_are_other_recipes() -> None:
    name_penalty("Margin", Margin())
    half, whole = (Recipe(objective=with_penalty(Margin(width))) for width in (0.5, 1.0))
    assert half != whole
    assert half.hash != whole.hash
    assert Recipe.from_json(half.as_json()) == half
    assert Recipe(objective="Margin(rob, Wo-10; width=0.5)") == half


numbers = st.floats(allow_nan=False)
margins = st.builds(
    Margin,
    width=numbers,
    norm=st.sampled_from(["l1", "l2", None]),
    classes=st.none() | st.integers(),
    strict=st.booleans(),
    sides=st.lists(numbers, min_size=1).map(tuple),
    pair=st.tuples(st.integers(), st.booleans()),
    word=st.from_regex(r"[\w.:;/=-]+", fullmatch=True),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(margins, margins, st.integers(1, 40), numbers)
def test_any_option_of_a_penalty_and_of_an_attack_is_read_back(
    named: Margin, penalty: Margin, tries: int, size: float
) -> None:
    REGULARIZERS._entries.pop("Margin", None)
    name_penalty("Margin", named)
    objective = with_penalty(penalty, attack=Jumps(tries, size))
    assert Objective.parse(str(objective)) == objective
    assert Recipe(objective=objective).objective == objective


@pytest.mark.parametrize(
    "options",
    [
        {"word": "two, words"},
        {"word": " "},
        {"word": "f(x)"},
        {"sides": ()},
        {"width": float("nan")},
        {"width": "wide"},
        {"pair": (1, True, 2)},
    ],
)
def test_an_option_that_has_no_text_is_not_written_as_another(options: dict[str, Any]) -> None:
    name_penalty("Margin", Margin())
    with pytest.raises(ValueError, match=f"cannot write {next(iter(options))}="):
        str(with_penalty(Margin(**options)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("strict=maybe", "'maybe' is not of the kind bool"),
        ("norm=l3", "'l3' is not of the kind"),
        ("classes=1.5", "'1.5' is not of the kind int | None"),
        ("pair=1", "'1' is not of the kind tuple[int, bool]"),
        ("widht=2", "no option is called 'widht' (nearest: width)"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_with_the_reason(text: str, reason: str) -> None:
    name_penalty("Margin", Margin())
    with pytest.raises(ValueError, match="cannot read the objective") as caught:
        Objective.parse(f"Margin(rob, Wo-10; {text})")
    assert f"{text!r} does not fit here, {reason}" in str(caught.value)
    assert "; options are λ, width, norm" in str(caught.value)


def test_of_a_penalty_that_is_no_dataclass_one_can_be_named() -> None:
    name_penalty("Plain", Plain())
    assert str(with_penalty(Plain())) == "Plain(rob, Wo-10)"
    assert Recipe(objective=with_penalty(Plain())) == Recipe(objective="Plain(rob, Wo-10)")
    with pytest.raises(ValueError, match="make its class a dataclass"):
        str(with_penalty(Plain(2.0)))


def test_an_attack_whose_name_does_not_tell_all_of_it_makes_no_recipe() -> None:
    attack_name("silent", "silent")(Silent)
    text = "AT(rob, silent)"
    assert Recipe(objective=text) == Recipe(objective=text)
    assert len({Recipe(objective=text), Recipe(objective=text)}) == 1
    with pytest.raises(ValueError, match=r"AT\(rob, silent\) does not tell"):
        Recipe(objective=Objective(batch="rob", attack=Silent(2.0)))


def test_an_option_of_an_attack_has_a_default() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Bare(Jumps):
        depth: int

        @classmethod
        def options(cls) -> Mapping[str, str]:
            return {"depth": "depth"}

    with pytest.raises(ValueError, match="options of Bare must be fields with a default"):
        str(Objective(batch="rob", attack=Bare(depth=1)))


def test_options_of_one_name_are_told_apart_or_refused() -> None:
    name_penalty("Clash", Clashing())
    assert str(with_penalty(Clashing(2))) == "Clash(rob, Wo-10; steps=2)"
    climbing = replace(Objective.parse("Clash(rob, S-PGD)"), penalty=Clashing(2))
    with pytest.raises(ValueError, match="are called steps; give each a name of its own"):
        str(climbing)
    with pytest.raises(ValueError, match=r"does not fit here, 2 options of .* are called steps"):
        Objective.parse("Clash(rob, S-PGD; steps=2)")
    with pytest.raises(ValueError, match="every objective has an option search"):
        name_penalty("Reserved", Reserved())
