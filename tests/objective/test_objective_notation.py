"""The paper's notation: read in every spelling, written in one, and refused with the grammar."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upright.attacks import Attack, GridSearch, RandomSearch, RefiningSearch, SpatialPGD
from upright.objective import BatchType, Objective, Target, grammar
from upright.penalties import KL, L2, Penalty
from upright.registry import UnknownNameError

NAMES = ["AT", "L2", "KL", "ALP", "KL-C"]
TARGETS: tuple[Target, ...] = get_args(Target)
BATCHES: tuple[BatchType, ...] = get_args(BatchType)

numbers = st.floats(0, 1e30, allow_nan=False)
counts = st.integers(1, 40)
attacks: st.SearchStrategy[Attack] = st.one_of(
    counts.map(RandomSearch),
    st.tuples(counts, counts, counts).map(GridSearch),
    st.builds(RefiningSearch, counts, st.booleans()),
    st.builds(
        SpatialPGD,
        steps=st.integers(0, 30),
        step_size=st.tuples(numbers, numbers, numbers),
        restarts=counts,
    ),
)
penalties: st.SearchStrategy[Penalty] = st.one_of(
    numbers.map(L2), st.sampled_from([KL(), KL("transformed")])
)
penalised = st.builds(
    Objective,
    batch=st.sampled_from(BATCHES),
    attack=attacks,
    penalty=penalties,
    penalty_target=st.sampled_from(TARGETS),
    batch_target=st.sampled_from(TARGETS),
    weight=numbers,
    draws=counts,
)
without_penalty = st.builds(
    Objective, batch=st.sampled_from(BATCHES), attack=attacks, draws=counts
) | st.just(Objective(batch="nat"))


@settings(deadline=None)
@given(penalised | without_penalty)
def test_what_is_written_is_read_back(objective: Objective) -> None:
    assert Objective.parse(str(objective)) == objective


@pytest.mark.parametrize("definition", ["rnd", "Wo-2", "Wo-10", "S-PGD", "rnd×4", "grid-775"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", NAMES)
def test_the_papers_names_are_written_as_they_are_read(
    name: str, batch: str, definition: str
) -> None:
    text = f"{name}({batch}, {definition})"
    written = "std*" if text == "AT(rob, rnd)" else text
    assert str(Objective.parse(text)) == written


def test_each_name_stands_for_its_penalty_its_search_and_its_weight() -> None:
    wo, batch = RandomSearch(10), BATCHES[2]
    expected = {
        "std": Objective(batch="nat"),
        "std*": Objective(batch="rob", attack=RandomSearch(1)),
        "AT(mix, Wo-10)": Objective(batch=batch, attack=wo),
        "L2(mix, Wo-10)": Objective(batch=batch, attack=wo, penalty=L2(0.25)),
        "KL(mix, Wo-10)": Objective(batch=batch, attack=wo, penalty=KL("natural"), weight=8.0),
        "ALP(mix, Wo-10)": Objective(
            batch=batch, attack=wo, penalty=L2(0.25), penalty_target="cross-entropy"
        ),
        "KL-C(mix, Wo-10)": Objective(
            batch=batch, attack=wo, penalty=KL(), penalty_target="cross-entropy", weight=8.0
        ),
    }
    assert {text: Objective.parse(text) for text in expected} == expected


def test_only_kl_rob_shows_the_x_of_its_penalty_to_the_cross_entropy() -> None:
    sharing = {
        (name, batch)
        for name, batch in product(NAMES, BATCHES)
        if Objective.parse(f"{name}({batch}, S-PGD)").batch_target == "penalty"
    }
    assert sharing == {("KL", "rob")}


@pytest.mark.parametrize(
    "text",
    [
        "KL(rob,Wo-10;λ=2)",
        "KL(rob, wo-10; lambda=2)",
        "  KL ( rob , WO-10 ; λ = 2.0 )  ",
        "KL(rob, Wo-10; lambda=2e0,)",
        "KL(rob, Wo-10×1; λ=2)",
        "KL(rob, Wo-10*1; λ=1, λ=2)",
    ],
)
def test_spaces_case_of_the_attack_and_the_name_of_lambda_do_not_matter(text: str) -> None:
    assert Objective.parse(text) == Objective.parse("KL(rob, Wo-10)", weight=2)
    assert str(Objective.parse(text)) == "KL(rob, Wo-10; λ=2)"


def test_the_keyword_replaces_the_lambda_in_the_text() -> None:
    assert Objective.parse("L2(nat, rnd; λ=3)", weight=0.5).weight == 0.5
    assert Objective.parse("L2(nat, rnd; λ=3)").weight == 3


@pytest.mark.parametrize("definition", ["s-pgd", "S-PGD", "spgd", "SPGD"])
def test_spatial_pgd_has_several_spellings(definition: str) -> None:
    assert Objective.parse(f"AT(rob, {definition})").attack == SpatialPGD()


def test_worst_of_one_is_random_and_std_star_is_at_rob_rnd() -> None:
    assert str(Objective.parse("KL(nat, Wo-1)")) == "KL(nat, rnd)"
    assert Objective.parse("std*") == Objective.parse("AT(rob, rnd)")


def test_options_reach_the_penalty_and_the_attack() -> None:
    objective = Objective.parse(
        "L2(mix, S-PGD×2; scale=1, steps=3, restarts=4, step=1/2/10, search=penalty)"
    )
    assert objective == Objective(
        batch="mix",
        attack=SpatialPGD(steps=3, step_size=(1, 2, 10), restarts=4),
        penalty=L2(1),
        batch_target="penalty",
        draws=2,
    )
    assert Objective.parse("KL-C(nat, rnd; direction=transformed)").penalty == KL("transformed")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("KLC(rob, Wo-10)", "'KLC'"),
        ("kl(rob, Wo-10)", "'kl'"),
        ("KL(robust, Wo-10)", "'robust'"),
        ("KL(rob, Wo10)", "'Wo10'"),
        ("KL(rob, Wo-0)", "'Wo-0'"),
        ("KL(rob, rnd×0)", "'rnd×0'"),
        ("KL(rob, rnd×)", "'rnd×'"),
        ("KL(rob, rnd×1.5)", "'rnd×1.5'"),
        ("KL(rob)", "Reg(batch, def)"),
        ("KL(rob, Wo-10", "Reg(batch, def)"),
        ("", "Reg(batch, def)"),
        ("standard", "Reg(batch, def)"),
        ("KL(rob, Wo-10; mu=2)", "'mu=2'"),
        ("AT(rob, Wo-10; λ=3)", "'λ=3'"),
        ("KL(rob, Wo-10; λ)", "'λ'"),
        ("KL(rob, Wo-10; λ=eight)", "'λ=eight'"),
        ("KL(rob, Wo-10; λ=-1)", "'λ=-1'"),
        ("KL(rob, Wo-10; λ=nan)", "'λ=nan'"),
        ("KL(rob, Wo-10; λ=inf)", "'λ=inf'"),
        ("KL(rob, Wo-10; scale=2)", "'scale=2'"),
        ("L2(rob, Wo-10; direction=natural)", "'direction=natural'"),
        ("KL(rob, Wo-10; direction=back)", "'direction=back'"),
        ("AT(rob, Wo-10; scale=2)", "'scale=2'"),
        ("AT(rob, Wo-10; search=penalty)", "'search=penalty'"),
        ("KL(rob, Wo-10; search=both)", "'search=both'"),
        ("KL(rob, Wo-10; steps=3)", "'steps=3'"),
        ("KL(rob, S-PGD; steps=-1)", "'steps=-1'"),
        ("KL(rob, S-PGD; step=1/x)", "'step=1/x'"),
        ("KL(rob, S-PGD; step=)", "'step='"),
        ("L2(rob, Wo-10; scale=nan)", "'scale=nan'"),
    ],
)
def test_an_error_names_the_word_and_of_a_wrong_form_shows_the_grammar(
    text: str, named: str
) -> None:
    with pytest.raises(ValueError, match="cannot read the objective") as caught:
        Objective.parse(text)
    message, notes = str(caught.value), getattr(caught.value, "__notes__", [])
    assert named in message.replace(repr(text), "")
    assert notes == ([f"The grammar is\n{grammar()}"] if named == "Reg(batch, def)" else [])
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("KL(rob, Wo-10; λ=eight)", "'eight' is not of the kind float; options are λ, direction"),
        ("KL(rob, Wo-10; directon=natural)", "no option is called 'directon' (nearest: direction)"),
        ("KL(rob, Wo-10; direction=back)", "'back' is not of the kind Literal['natural', 'transf"),
        ("KL(rob, S-PGD; restarts=2.5)", "'2.5' is not of the kind int; options are λ"),
        ("KL(rob, Wo-10; search=both)", "target 'both' is not one of cross-entropy, penalty"),
        ("KL(robust, Wo-10)", "'robust' is not a batch type: nat, rob or mix"),
    ],
)
def test_an_error_tells_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="cannot read the objective") as caught:
        Objective.parse(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["Hinge(rob, Wo-10)", "KL(rob, hill-5)", "KLC(rob, Wo-10)"])
def test_a_name_that_is_not_known_here_is_told_from_other_errors(text: str) -> None:
    with pytest.raises(UnknownNameError, match="for one of your own, import the file that names"):
        Objective.parse(text)
    with pytest.raises(ValueError, match="cannot read") as caught:
        Objective.parse("KL(rob, Wo-10; width=3)")
    assert not isinstance(caught.value, UnknownNameError)


def test_every_example_of_the_grammar_can_be_read() -> None:
    examples = grammar().rpartition("as in ")[2].replace("), ", ")|").split("|")
    assert len(examples) == 3
    for example in examples:
        assert str(Objective.parse(example)) == example


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": "all"}, "batch 'all' is not one of nat, rob, mix"),
        ({"attack": None}, "need an attack"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"weight": -0.5}, "not negative"),
        ({"weight": float("inf")}, "finite"),
        ({"penalty_target": "accuracy"}, "target 'accuracy' is not one of"),
        ({"penalty": None, "batch_target": "penalty"}, "without a penalty"),
    ],
)
def test_points_that_make_no_sense_are_refused(change: dict[str, Any], message: str) -> None:
    sensible = Objective(batch="mix", attack=RandomSearch(2), penalty=KL())
    with pytest.raises(ValueError, match=message):
        replace(sensible, **change)


def test_a_negative_weight_is_refused_as_a_keyword_too() -> None:
    with pytest.raises(ValueError, match="not negative"):
        Objective.parse("KL(rob, rnd)", weight=-1)
