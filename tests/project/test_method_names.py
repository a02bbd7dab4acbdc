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

ALLOWED = {
    "a number gets a real minus sign": {
        "text.replace('-', '−')",
        "text.removeprefix('-')",
        "f'{value:+.1f}'.replace('-', '−')",
        "f', {cell.difference.in_stderr:+.1f} s.e.'.replace('-', '−')",
    },
    "a title, which may break after a comma": {"title.replace(',', ', ')"},
    "the field of a record, in words": {"name.replace('_', ' ')"},
    "a time": {
        "re.sub('\\\\D', '', record.finished)",
        "record.finished[:16].replace('T', ' ')",
    },
    "the name of a data set": {
        "dataset.lower().replace('-', '')",
        "data_name.startswith('npz:')",
        "re.sub('[^\\\\w.-]+', '-', record.dataset)",
    },
    "the name of a network": {
        "re.compile('(stn|stn-affine|etn)\\\\d.*')",
        "re.compile('^(enlarged\\\\d+:)+')",
    },
    "the name of a tensor": {
        "name.removeprefix(_PREFIX)",
        "name.rpartition('.')",
        "str(key).removeprefix('module.')",
    },
    "where a model or its weights are": {
        "name.startswith('zoo:')",
        "name.removeprefix('zoo:')",
        "re.compile(f'{_PART}/{_PART}')",
        "name.startswith(_PREFIX)",
        "file.name.partition('.')",
        "re.fullmatch('[0-9]{8,12}', name)",
        "re.split('[:,]', source)",
    },
    "the id of a record": {"record.startswith(f'{recipe_hash}-')"},
    "the name of a module": {
        "type(family).__module__.startswith('upright.families.')",
        "each.__module__.startswith('upright.')",
    },
    "a message": {
        "str(error).partition('; ')",
        "str(error).partition('\\n')",
        "str(error).partition('\\n')[0].partition('. ')",
        "str(error).partition(' The grammar is\\n')",
        "re.compile('Unsupported global: GLOBAL (\\\\S+)')",
        "re.compile('\\\\x1b\\\\[[0-9;]*m')",
    },
    "the lines of a file": {"line.endswith(b'\\n')", "content.removesuffix(b'\\n')"},
    "an address, a thread": {
        "address.removeprefix('ray://')",
        "address.removeprefix('ray://').rpartition(':')",
        "threading.current_thread().name.startswith('ray_')",
    },
    "Markdown, LaTeX, HTML and SVG": {
        "re.compile('(<!-- reproduce: ([\\\\w-]+) -->\\\\n)(.*?)(<!-- end -->)', re.DOTALL)",
        "re.sub('([\\\\\\\\`*_|<>\\\\[\\\\]])', '\\\\\\\\\\\\1', text)",
        "re.sub('-(?=-)', '-{}', escaped)",
        "drawing.svg[drawing.svg.index('<svg'):].replace('fill: #ffffff', 'fill: none')",
        "json.dumps(value, allow_nan=False).replace('<', '\\\\u003c')",
        "text.replace(colour, f'var(--{name})')",
        "text.replace(colour, f'var(--series-{number})')",
    },
}
"""What texts are looked into, by what they are: none is the name of a method."""


def cuts() -> Iterator[tuple[str, str]]:
    """Every regular expression, and every method of strings that cuts one up."""
    source = Path(upright.__file__).parent
    for room in ROOMS:
        assert (source / room).exists()
        for file in sorted((source / room).rglob("*.py")) or [source / room]:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    of = ast.unparse(node.func.value)
                    if of == "re" or (node.func.attr in CUTS and of != "dataclasses"):
                        yield file.name, ast.unparse(node)


def test_no_name_of_a_method_is_cut_up_outside_the_notation() -> None:
    allowed = {call for calls in ALLOWED.values() for call in calls}
    found = list(cuts())
    assert [cut for cut in found if cut[1] not in allowed] == []
    assert allowed <= {call for _, call in found}  # nothing is allowed that nobody does


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
