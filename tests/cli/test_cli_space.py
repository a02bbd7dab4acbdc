"""``--space``, ``upright families``, and families of one's own by their file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_runs import Call, colours, register_tiny, save_as_npz
from upright import Space, evaluate
from upright.cli.options import _families_in
from upright.families import FAMILIES, Axis
from upright.record_files import read
from upright.report.asked import unlike_the_paper
from upright.sources import load_model
from upright.train import Recipe, RunDirectory

WAVE = '''
import torch
from upright.families import Axis, OfPixels, family

print("wave.py runs")


@family
class Wave(OfPixels):
    """Adds stripes of light."""

    name = "wave"
    axes = (Axis("wave", "", -0.3, 0.3),)

    def apply(self, images, values):
        stripes = torch.sin(torch.arange(images.shape[-1], device=images.device))
        return (images + values[..., 0] * stripes).clamp(0, 1)
'''
MODEL = "def make():\n    return lambda images: 9 * images.mean((2, 3))\n"
TRAIN = ("train", "AT(rob, Wo-2)", "--model", "tiny", "--batch", 8, "--steps", 3, "--out", "run")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test makes known is forgotten after it."""
    register_tiny(monkeypatch)
    monkeypatch.setattr(FAMILIES, "_entries", dict(FAMILIES._entries))
    yield
    _families_in.cache_clear()


@pytest.fixture
def upright(upright: Call, tmp_path: Path) -> Call:
    save_as_npz(colours(count=36), tmp_path / "others.npz")
    (tmp_path / "wave.py").write_text(WAVE)
    (tmp_path / "models.py").write_text(MODEL)
    return upright


def evaluated(upright: Call, *options: object) -> tuple[int, str, str]:
    """Evaluate the models file; the last line of the answer is the JSON."""
    command = ("evaluate", "models.py:make", "--data", "npz:others.npz", "--json", "result.json")
    return upright(*command, *options)


def result() -> dict[str, object]:
    found: dict[str, object] = json.loads(Path("result.json").read_text())
    return found


# --- the option ----------------------------------------------------------------------------------


def test_the_short_forms_are_the_papers_space_with_other_limits(upright: Call) -> None:
    pairs = [
        ([], "shift(3px) rotate(30)"),
        (["--max-translation", "2"], "shift(2px) rotate(30)"),
        (["--max-translation", "10%", "--max-rotation", "5"], "shift(10%) rotate(5)"),
        (["--max-rotation", "0"], "shift(3px) rotate(0)"),
    ]
    for short, text in pairs:
        found = []
        for options in (short, ["--space", text]):
            assert evaluated(upright, "--attack", "wo-3", "--details", *options)[0] == 0
            assert result()["space"] == text
            found.append(result()["details"])
        assert found[0] == found[1]


@pytest.mark.parametrize("short", [["--max-translation", "2"], ["--max-rotation", "5"]])
def test_both_forms_at_once_are_refused(short: list[str], upright: Call) -> None:
    both = ("--space", "shift(3px) rotate(30)", *short)
    for call in (
        evaluated(upright, *both),
        upright(*TRAIN, "--data", "npz:colours.npz", *both),
        upright("oracle", "run", "models.py:make", "--data", "npz:others.npz", *both),
    ):
        code, _, err = call
        assert code == 2
        assert "--space has all limits: leave out --max-translation and --max-rotation" in err
        assert err.count("\n") == 1
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rotat(30)", "no family is called 'rotat' (nearest: rotate); there are shift, rotate,"),
        ("shift(3px) zom(1.1)", "no family is called 'zom' (nearest: zoom)"),
        ("shift(3furlongs)", "'3furlongs' is no limit of dx: give a number, with px or % behind"),
        ("shift(3px", "'shift(3px' is not understood: it has 1 '(' and 0 ')'; write "),
        ("rotate(9) shift(3px))", "'shift(3px))' is not understood: it has 1 '(' and 2 ')'; write"),
        ("shift(3px)rotate(30)", "is not understood: put a blank, and no more, between families"),
        ("rotate(30) rotate(20)", "rotate stands twice"),
        ("shift(1, 2, 3)", "shift has 2 axes (dx, dy): give one limit for all, or one for each"),
        ("rotate(10..-10)", "'10..-10' is no limit of angle: the lower one comes first"),
        ("zoom(1.1..1.2)", "1, which changes nothing, must lie between"),
        ("zoom(0..2)", "'0' is no limit of zoom"),
        ("rotate(5%)", "'5%' is no limit of angle: give a number, with degrees or deg or ° behind"),
        ("", "a space without a family; name at least one"),
        ("wave(2)", "name on the command line as FILE.py:NAME"),
    ],
)
def test_a_wrong_text_is_one_line_with_the_grammar(text: str, message: str, upright: Call) -> None:
    for code, _, err in (
        evaluated(upright, "--space", text),
        upright(*TRAIN, "--data", "npz:colours.npz", "--space", text),
    ):
        assert code == 2
        assert message in err
        assert "as in 'shift(3px) rotate(30)'" in err or text in ("", "rotate(30) rotate(20)")
        assert err.count("\n") == 1
    assert not Path("run").exists()


def test_shifts_below_a_pixel_are_doubted_in_any_form(upright: Call) -> None:
    code, _, err = evaluated(upright, "--attack", "rnd", "--space", "shift(0.1px) zoom")
    assert code == 0
    assert "0.1 px, less than one pixel; if 10 % of the image's size is meant, write 10%" in err


# --- the list ------------------------------------------------------------------------------------


def test_the_list_has_each_family_with_limits_that_can_be_copied(upright: Call) -> None:
    code, out, err = upright("families")
    assert (code, err) == (0, "")
    for name, kind in FAMILIES.items():
        (line,) = (line for line in out.splitlines() if line.startswith(f"{name}("))
        assert [type(each) for each in Space.of(line).chain.families] == [kind]
        assert str(Space.of(line)) == line == str(kind())
        assert kind.__doc__ is not None
        assert kind.__doc__.strip().splitlines()[0] in out
        assert all(f"{axis.name} (" in out for axis in kind.axes)


def test_a_narrow_terminal_breaks_no_line(upright: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wide, _ = upright("families")
    monkeypatch.setenv("COLUMNS", "20")
    assert upright("families")[1] == wide


def test_text_of_a_family_cannot_steer_the_terminal(upright: Call) -> None:
    exec(WAVE.replace("Adds stripes", "\\x1b[2J[red]Adds"))
    _, out, _ = upright("families")
    assert "\x1b" not in out
    assert "\\x1b[2J[red]Adds of light." in out


# --- families of one's own -----------------------------------------------------------------------


def test_a_file_makes_its_family_known_to_every_command(upright: Call) -> None:
    text = "wave.py:wave(0.2) rotate(10)"
    code, out, err = upright(*TRAIN, "--data", "npz:colours.npz", "--space", text)
    assert (code, err) == (0, "")
    assert out.count("wave.py runs") == 1
    assert json.loads(Path("run/run.json").read_text())["recipe"]["space"] == "wave(0.2) rotate(10)"
    code, out, err = upright(
        *("evaluate", "run", "--data", "npz:others.npz", "--space", text),
        *("--attack", "s-pgd", "--json", "result.json", "--record", "records.jsonl"),
    )
    assert (code, err) == (0, "")
    assert result()["space"] == "wave(0.2) rotate(10)"
    (record,) = read("records.jsonl").records
    assert record.evaluation["space"] == record.recipe["space"] == "wave(0.2) rotate(10)"
    direct = evaluate(
        load_model("run"),
        (colours(count=36).images, colours(count=36).labels),
        attacks=["s-pgd"],
        space="wave(0.2) rotate(10)",
    )
    assert record.measured["s-pgd"] == direct.attacks["s-pgd"].accuracy


def test_several_recipes_share_one_family(upright: Call) -> None:
    code, out, err = upright(
        *(*TRAIN, "--data", "npz:colours.npz", "--seeds", "0-2", "--space", "wave.py:wave"),
    )
    assert (code, err) == (0, "")
    assert out.count("wave.py runs") == 1
    recipes = [RunDirectory.open(path.parent).recipe for path in Path("run").glob("*/run.json")]
    assert len(recipes) == 3
    assert {recipe.space for recipe in recipes} == {Space.of("wave(0.3)")}


def test_the_grid_of_ones_own_family_is_as_fine_as_it_says(upright: Call) -> None:
    assert evaluated(upright, "--space", "wave.py:wave(0.1) shift(1px)")[0] == 0
    counts = (axis.count for axis in (Axis("any"), *Space.of("shift").axes))
    assert list(result()["attacks"]) == ["grid-" + "x".join(map(str, counts))]  # type: ignore[call-overload]


def test_a_run_whose_family_is_not_known_is_not_damaged_and_says_what_to_do(upright: Call) -> None:
    command = ("--data", "npz:colours.npz", "--space", "wave.py:wave(0.2)")
    assert upright(*TRAIN, *command, "--seed", 1)[0] == 0
    recorded = ("evaluate", "run", *command, "--attack", "rnd", "--record", "results/records.jsonl")
    assert upright(*recorded)[0] == 0
    _families_in.cache_clear()
    del FAMILIES._entries["wave"]
    Path("wave.py").unlink()  # no code is looked for
    for call in (
        ("evaluate", "run", "--data", "npz:others.npz"),
        ("oracle", "run", "models.py:make", "--data", "npz:others.npz"),
        ("zoo", "add", "run", "--into", "zoo"),
    ):
        code, _, err = upright(*call)
        assert code == 2
        assert "run/run.json: no family is called 'wave'" in err
        assert "those whose file you import, or name on the command line as FILE.py:NAME" in err
        assert err.count("\n") == 1
    (record,) = read("results/records.jsonl").records
    assert "poses of wave(0.2)" in unlike_the_paper(record)
    code, out, err = upright("report", "results", "--out", "page")
    assert (code, "wave.py runs" in out) == (0, False), err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no.py:wave(2)", "no.py: no such file; give the path of one"),
        ("wave.py:wavy(2)", "wave.py makes no family called 'wavy' known"),
        ("broken.py:wave", "broken.py raised ZeroDivisionError: division by zero (line 1)"),
        ("wave.py:wave(2miles)", "'2miles' is no limit of wave: give a number; write families"),
    ],
)
def test_a_file_that_gives_no_such_family_is_one_line(
    text: str, message: str, upright: Call
) -> None:
    Path("broken.py").write_text("1 / 0\n")
    code, _, err = evaluated(upright, "--space", text)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_text_in_python_or_in_a_file_runs_no_code(upright: Call) -> None:
    with pytest.raises(ValueError, match=r"'wave.py:wave\(2\)' is not understood"):
        Space.of("wave.py:wave(2)")
    assert upright(*TRAIN, "--data", "npz:colours.npz")[0] == 0
    run = json.loads(Path("run/run.json").read_text())
    run["recipe"]["space"] = "wave.py:wave(2)"
    Path("run/run.json").write_text(json.dumps(run))
    code, out, err = upright("evaluate", "run", "--data", "npz:others.npz")
    assert (code, "wave.py runs" in out + err) == (2, False)
    assert "run.json is damaged" in err


def test_other_code_of_the_same_name_is_another_run_and_another_question(upright: Call) -> None:
    command = (*TRAIN, "--data", "npz:colours.npz", "--space", "wave.py:wave(0.2)")
    state = ("models.py:make", "--data", "npz:others.npz", "--attack", "rnd", "--state", "s.state")
    assert upright(*command)[0] == 0
    assert upright("evaluate", *state, "--space", "wave.py:wave(0.2)")[0] == 0
    first = RunDirectory.open(Path("run")).recipe
    _families_in.cache_clear()
    Path("wave.py").write_text(WAVE.replace("torch.sin", "torch.cos"))
    code, _, err = upright(*command, "--resume")
    assert code == 2
    assert "families_digest" in err
    code, _, err = upright("evaluate", *state, "--space", "wave.py:wave(0.2)")
    assert code == 2
    assert "belongs to another evaluation (other code of families)" in err
    again = Recipe(**{**vars(first), "families_digest": ""})
    assert (again.space, again.hash == first.hash) == (first.space, False)


def test_a_file_of_families_is_run_for_a_run_and_for_what_was_saved(upright: Call) -> None:
    own = ("--data", "npz:colours.npz", "--space", "wave.py:wave(0.2)")
    assert upright(*TRAIN, *own)[0] == 0
    saved = ("--attack", "grid-3", "--save", "results/saved", "--save-images", 2)
    assert upright("evaluate", "run", *own, *saved)[0] == 0
    _families_in.cache_clear()
    del FAMILIES._entries["wave"]
    plain = ("evaluate", "run", "--data", "npz:others.npz", "--space", "rotate(5)")
    assert upright(*plain)[0] == 2
    assert upright(*plain, "--families", "wave.py")[0] == 0
    _families_in.cache_clear()
    del FAMILIES._entries["wave"]
    page = ("report", "results", "--out", "page")
    assert upright(*page)[0] == 2
    assert upright(*page, "--families", "wave.py")[0] == 0


def test_an_attack_has_one_name_however_it_is_written(upright: Call) -> None:
    code, _, _ = evaluated(upright, "--attack", "Wo-2", "--attack", "wo-2")
    assert code == 0
    attacks = result()["attacks"]
    assert isinstance(attacks, dict)
    assert list(attacks) == ["wo-2"]
