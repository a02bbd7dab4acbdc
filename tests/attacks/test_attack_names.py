"""The names that attacks go by."""

from __future__ import annotations

import pytest
import torch

from upright import (
    PAPER,
    Attack,
    CandidateSearch,
    GridSearch,
    Pose,
    RandomSearch,
    RefiningClimb,
    RefiningSearch,
    Space,
    SpatialPGD,
    parse_attack,
)
from upright.attacks import ATTACKS, attack_name

NAMES: dict[str, Attack] = {
    "grid-775": GridSearch((5, 5, 31)),
    "grid-7500": GridSearch((10, 10, 75)),
    "grid-3x4x5": GridSearch((3, 4, 5)),
    "grid-9": GridSearch((9,)),
    "grid-3x3x5x2": GridSearch((3, 3, 5, 2)),
    "rnd": RandomSearch(1),
    "wo-10": RandomSearch(10),
    "wo-20": RandomSearch(20),
    "s-pgd": SpatialPGD(),
    "refine-1000": RefiningSearch(1000),
    "refine-20+rnd": RefiningSearch(20, shifted=True),
    "refine-20+s-pgd": RefiningClimb(20),
    "refine-20+rnd+s-pgd": RefiningClimb(20, shifted=True),
}


@pytest.mark.parametrize("name", NAMES)
def test_name_and_attack_give_each_other(name: str) -> None:
    assert parse_attack(name) == NAMES[name]
    assert str(NAMES[name]) == name


@pytest.mark.parametrize("name", NAMES)
def test_any_case_and_surrounding_space(name: str) -> None:
    assert parse_attack(f" {name.upper()}\n") == NAMES[name]
    assert parse_attack(name.title()) == NAMES[name]


@pytest.mark.parametrize(
    ("name", "canonical"),
    [("grid-5x5x31", "grid-775"), ("wo-1", "rnd"), ("spgd", "s-pgd")],
)
def test_other_spellings(name: str, canonical: str) -> None:
    assert parse_attack(name) == parse_attack(canonical)
    assert str(parse_attack(name)) == canonical


@pytest.mark.parametrize(
    "name",
    [
        "",
        "grid",
        "grid-",
        "grid-5x",
        "grid-5x5 x3",
        "wo-",
        "wo10x",
        "pgd",
        "refine",
        "refine-9+",
        "refine-9+s-pgd+rnd",
    ],
)
def test_an_unknown_name_lists_the_right_ones(name: str) -> None:
    with pytest.raises(ValueError, match="no attack is called") as error:
        parse_attack(name)
    message = str(error.value)
    assert repr(name) in message
    for known in ("grid-775", "grid-7500", "grid-5x5x31", "rnd", "wo-10", "s-pgd", "refine-1000"):
        assert known in message


@pytest.mark.parametrize("name", ["wo-0", "grid-0x5x5", "refine-0"])
def test_a_name_with_impossible_numbers_says_which(name: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        parse_attack(name)


@pytest.mark.parametrize(("name", "counts"), [("grid-776", (776,)), ("grid-5x5", (5, 5))])
def test_grids_of_other_numbers_of_axes_are_for_spaces_that_have_as_many(
    name: str, counts: tuple[int, ...]
) -> None:
    attack = parse_attack(name)
    assert attack == GridSearch(counts)
    assert str(attack) == name
    with pytest.raises(ValueError, match=r"needs a count .* \(dx, dy, angle\), as in grid-5x5x31"):
        attack.search(lambda pose: pose.dx, PAPER, 1, generator=torch.Generator())
    fitting = Space.of(" ".join(("rotate", "zoom")[: len(counts)]))
    attack.search(lambda pose: pose.angle, fitting, 1, generator=torch.Generator())


def test_attacks_with_other_settings_have_other_names() -> None:
    attacks = [SpatialPGD(), SpatialPGD(steps=6), SpatialPGD(restarts=2), *NAMES.values()]
    assert len({str(attack) for attack in attacks}) == len(set(attacks))


def test_a_new_attack_has_its_name_from_one_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Corners(CandidateSearch):
        passes_per_image = 8
        shared = True

        def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
            del count, generator
            return space.grid((2, 2, 2))[:, None]

    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))
    attack_name("corners", "corners")(Corners)
    assert isinstance(parse_attack("corners"), Corners)
    with pytest.raises(ValueError, match=r"corners.*refine"):
        parse_attack("edges")
