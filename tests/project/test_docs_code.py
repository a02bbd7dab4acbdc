"""What the pages and docstrings show works: code runs and prints what is said, commands parse."""

from __future__ import annotations

import doctest
import importlib
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import upright
from cheap_compiler import compiled_cheaply
from markdown_code import PAGES, ROOT, blocks, commands, run_code, run_page, same_output
from upright import RegularizedLoss
from upright.attacks import ATTACKS, parse_attack
from upright.cli import _COMMANDS, _app
from upright.cli.evaluate import Evaluate
from upright.cli.train import Train
from upright.data.glyphs import glyphs
from upright.data.registry import DATA_SETS
from upright.families import FAMILIES
from upright.models import NETWORKS, build_network, network_forms
from upright.objective.notation import REGULARIZERS
from upright.sources.registry import SOURCES
from upright.train import Recipe

EXTEND = ROOT / "examples" / "extend"


@pytest.fixture(autouse=True)
def _own_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """What a page registers, imports, draws and writes is gone after it."""
    network_forms()  # once all networks are known: those first met later would be lost again
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))
    monkeypatch.setattr(NETWORKS, "_entries", dict(NETWORKS._entries))
    monkeypatch.setattr(DATA_SETS, "_entries", dict(DATA_SETS._entries))
    monkeypatch.setattr(REGULARIZERS, "_entries", dict(REGULARIZERS._entries))
    monkeypatch.setattr(SOURCES, "_entries", dict(SOURCES._entries))
    monkeypatch.setattr(FAMILIES, "_entries", dict(FAMILIES._entries))
    monkeypatch.syspath_prepend(str(EXTEND))
    monkeypatch.chdir(tmp_path)
    # What a page compiles takes no time: ``Compiled`` has tests of its own.
    with torch.random.fork_rng(), compiled_cheaply():
        yield
    for file in EXTEND.glob("*.py"):
        sys.modules.pop(file.stem, None)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_of_a_page_runs_and_prints_what_is_said(page: Path) -> None:
    with warnings.catch_warnings():
        if page.name == "integrations.md":  # Lightning warns of itself; of our input nobody may
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", upright.SuspiciousInput)
        run_page(page, readers_own() if page.name == "README.md" else None)


def readers_own() -> dict[str, object]:
    """Stand-ins for the model and the data that the front page speaks of."""
    data = glyphs(8)
    model = build_network("convnet").eval()
    return {"model": model, "images": data.images, "labels": data.labels}


def test_the_loop_of_the_front_page_learns() -> None:
    """Five seconds of a core: a loop that learns has to train."""
    (loop,) = [block for block in blocks(ROOT / "README.md") if "RegularizedLoss(" in block.code]
    printed = run_code(loop.code)
    before, after = (list(map(int, re.findall(r"(\d+)%", line))) for line in printed.splitlines())
    assert after[0] >= max(85, before[0] + 50)
    assert after[1] >= max(35, before[1] + 25)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_of_a_page_can_be_given(page: Path) -> None:
    for line in commands(page):
        command = _app(_COMMANDS).cli(prog="upright", args=shlex.split(line)[1:])
        if isinstance(command, Train):
            assert command._recipes(), line
        if isinstance(command, Evaluate):
            assert all(parse_attack(name) for name in command.attack), line


PACKAGE = Path(upright.__file__).parent
WITH_EXAMPLES = [
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert not found.failed


def test_extensions_work_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (
        "train 'COS(rob, hill-2)' --data arrows --model blurnet-4 --steps 2 --batch 8 "
        "--train-images 16 --no-flips --out run",
        "evaluate run --data arrows --limit 8 --attack corners --attack hill-3",
        "evaluate run --data arrows --limit 8 --attack hill-2 --space 'squeeze(1.1) vignette(0.3)'",
    ):
        monkeypatch.setattr(sys, "argv", ["my_upright.py", *shlex.split(line)])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(EXTEND / "my_upright.py"), run_name="__main__")
        assert stop.value.code == 0
    printed = capsys.readouterr().out
    known = ("COS(rob, hill-2)", "corners", "hill-3", "squeeze by", "vignette by 0 to 0.3")
    assert all(name in printed for name in known)


def test_the_script_of_a_penalty_knows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "add" / "penalty.md"
    (script,) = [each for each in blocks(page) if "cosine_upright.py" in each.options]
    Path("cosine_upright.py").write_text(script.code)
    for line in (
        "train 'COS(rob, Wo-2)' --data glyphs --model convnet --steps 2 --batch 8 "
        "--train-images 16 --out run",
        "evaluate run --data glyphs --limit 8 --attack rnd",
    ):
        monkeypatch.setattr(sys, "argv", ["cosine_upright.py", *shlex.split(line)])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path("cosine_upright.py", run_name="__main__")
        assert stop.value.code == 0
    assert "COS(rob, Wo-2)" in capsys.readouterr().out


def test_every_extension_is_on_a_page_and_in_the_script() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    script = (EXTEND / "my_upright.py").read_text()
    for file in EXTEND.glob("*.py"):
        assert f'--8<-- "examples/extend/{file.name}"' in pages
        # The command is of one paper: another is handed to functions.
        apart = file.stem in ("my_upright", "turned_glyphs")
        assert apart or f"import {file.stem} " in script


class Counting(nn.Module):
    """Counts the images that it sees, in the search and in the training pass."""

    def __init__(self) -> None:
        super().__init__()
        self.weights, self.seen = nn.Linear(3 * 8 * 8, 3), {True: 0, False: 0}

    def forward(self, images: Tensor) -> Tensor:
        self.seen[self.training] += len(images)
        answer: Tensor = self.weights(images.flatten(1))
        return answer


def costs() -> list[tuple[str, int, int]]:
    """The objectives of the page's table of costs, with their passes for one image."""
    table = (ROOT / "docs" / "train.md").read_text().partition("| objective | search |")[2]
    rows = [row.split("|")[1:4] for row in table.partition("\n\n")[0].splitlines()[2:]]
    return [
        (name, *(int(re.findall(r"\d+", f"{each} 1")[0]) for each in passes))
        for names, *passes in rows
        for name in re.findall("`([^`]+)`", names)
    ]


@pytest.mark.parametrize(("name", "search", "training"), costs())
def test_costs_that_the_page_tells_are_those_of_a_step(
    name: str, search: int, training: int
) -> None:
    model, images = Counting(), torch.rand(5, 3, 8, 8)
    RegularizedLoss(name)(model, images, torch.arange(5) % 3)
    assert model.seen == {False: 5 * search, True: 5 * training}


def test_output_that_differs_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    said = '```python\nprint(1 + 1)\n```\n\n```text title="prints"\n{}\n```\n'
    page.write_text(said.format(2))
    run_page(page)
    page.write_text(said.format(3))
    with pytest.raises(AssertionError, match="prints\n2"):
        run_page(page)
    assert same_output("a ... c\n", "a b c\n")


def test_code_that_is_not_run_is_compiled(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: needs a GPU -->\n```python\nraise OSError\n```\n")
    run_page(page)
    page.write_text("<!-- not run: needs a GPU -->\n```python\nraise OSError(\n```\n")
    with pytest.raises(SyntaxError):
        run_page(page)


def test_defaults_that_the_pages_tell_are_those_of_a_recipe() -> None:
    recipe = Recipe()
    assert (recipe.model, recipe.steps, recipe.batch) == ("resnet32", 80_000, 64)
    assert (recipe.momentum, recipe.learning_rate, recipe.drops) == (0.9, 0.1, (0.5, 0.75))
