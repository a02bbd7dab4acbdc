"""A method is an object: nobody but the notation looks into the text of its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import upright
from upright.objective import Objective, known_objective

ROOMS = ("report", "paper", "workers", "measure", "zoo", "train", "demo.py", "record_files.py")
CUTS = {
    *("replace", "translate", "partition", "rpartition"),
    *("startswith", "endswith", "removeprefix", "removesuffix"),
}

METHODS = {"method", "methods", "objective", "objectives"}


def cuts(source: str) -> Iterator[str]:
    """Every regular expression, and every cut, of the name of a method."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        of = ast.unparse(node.func.value)
        named = {getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node)}
        if (of == "re" or (node.func.attr in CUTS and of != "dataclasses")) and named & METHODS:
            yield ast.unparse(node)


def test_no_name_of_a_method_is_cut_up_outside_the_notation() -> None:
    source = Path(upright.__file__).parent
    for room in ROOMS:
        assert (source / room).exists()
        for file in sorted((source / room).rglob("*.py")) or [source / room]:
            assert [*cuts(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "code",
    [
        "record.method.startswith('KL')",
        "re.sub(' ', '', objective)",
        "str(recipe.objective).partition('(')[0]",
        "[each.removesuffix(')') for each in methods if re.match('AT', each.method)]",
    ],
)
def test_a_cut_is_seen(code: str) -> None:
    assert [*cuts(code)]


def test_other_texts_may_be_cut() -> None:
    assert not [*cuts("dataclasses.replace(recipe, objective=objective); name.partition(':')")]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "my network",
        "STN+(LocNet(black), std*)",
        "LocNet(black)",
        "timm:resnet18",
        "KL(rob, Wo-10; λ=x)",
        f"AT(rob, Wo-{'9' * 5000})",
        f"AT(rob,{' ' * 5000}",
        f"AT(rob, {'(' * 5000}",
    ],
)
def test_a_name_of_anybody_may_be_no_objective(name: str) -> None:
    assert known_objective(name) is None


def test_a_name_that_is_an_objective_is_read() -> None:
    assert known_objective("KL(rob,Wo-10)") == Objective.parse("KL(rob, Wo-10)")
