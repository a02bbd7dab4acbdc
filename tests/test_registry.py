"""Registries: what is found by name, in whatever order it came, and what help says of it."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import upright
from upright.attacks import ATTACKS, attack_name
from upright.cli import main
from upright.data.known import KNOWN
from upright.data.registry import DATA_SETS, data_set
from upright.factories import run_file
from upright.families import FAMILIES
from upright.models import NETWORKS, network, network_forms
from upright.registry import Registry, UnknownNameError, similar_names
from upright.sources import model_source
from upright.sources.registry import SOURCES

network_forms()  # knows them all
ALL: dict[str, Registry[Any]] = {
    each.kind: each for each in (ATTACKS, NETWORKS, DATA_SETS, SOURCES, FAMILIES)
}
each_registry = pytest.mark.parametrize("kind", ALL)

# A pattern, its precedence, and names that it alone, or it before others, stands for.
OVERLAPPING: Mapping[str, tuple[str, int, tuple[str, ...]]] = {
    "WORD": (r"(\w+)", 0, ("oak", "x1")),
    "ANY": (r"(.*)", -1, ("", "a b", "far:")),
    "near:ANY": (r"near:(.*)", 1, ("near:", "near:a.txt", "near:far.txt")),
    "FILE.txt": (r"(.+\.txt)", 0, ("a.txt", "far:a.txt")),
}


@pytest.mark.parametrize("order", list(itertools.permutations(OVERLAPPING)))
def test_what_a_name_means_does_not_depend_on_the_order(order: tuple[str, ...]) -> None:
    tools: Registry[str] = Registry("tool")
    for form in order:
        pattern, precedence, _ = OVERLAPPING[form]
        tools.register(form, pattern, precedence=precedence)(form.lower())
    assert list(tools) == sorted(OVERLAPPING)
    for form, (pattern, _, names) in OVERLAPPING.items():
        for name in names:
            match = re.fullmatch(pattern, name)
            assert match is not None
            found = tools.find(name)
            assert (found.value, found.groups) == (form.lower(), match.groups())


@pytest.mark.parametrize("order", [("a+", "[ab]+"), ("[ab]+", "a+")])
def test_a_name_with_two_meanings_is_refused_and_says_which(order: tuple[str, str]) -> None:
    tools: Registry[int] = Registry("tool")
    for number, pattern in enumerate(order):
        tools.register(f"form {pattern}", pattern)(number)
    with pytest.raises(ValueError, match=r"'aa' means two .*form \[ab\]\+ and form a\+"):
        tools.find("aa")
    assert tools.find("ab").value == order.index("[ab]+")


def test_plain_names_stand_for_values_and_no_character_of_them_is_special() -> None:
    weights: Registry[float] = Registry("penalty", alphabetical=False)
    for name, weight in (("KL-C", 8.0), ("AT", 1.0), ("L.2", 1.5)):
        weights.register(name)(weight)
    assert dict(weights) == {"KL-C": 8.0, "AT": 1.0, "L.2": 1.5}
    assert list(weights) == ["KL-C", "AT", "L.2"]
    assert weights.find("L.2").value == 1.5
    for wrong in ("LX2", "at", "AT ", ""):
        with pytest.raises(UnknownNameError, match=r"there are KL-C, AT, L\.2$"):
            weights.find(wrong)


def test_case_counts_unless_it_does_not() -> None:
    for any_case in (False, True):
        tools: Registry[int] = Registry("tool", any_case=any_case)
        tools.register("saw-N (as in saw-3)", r"saw-(\d)")(1)
        assert tools.find("saw-3").value == 1
        if any_case:
            assert tools.find("SAW-3").value == 1
        else:
            with pytest.raises(UnknownNameError, match=r"'SAW-3' \(nearest: saw-3\); there"):
                tools.find("SAW-3")


def test_the_nearest_name_is_a_word_of_the_form_that_is_a_name_or_what_others_call_it() -> None:
    tools: Registry[int] = Registry("tool", synonyms={"drill": "auger"})
    tools.register("hammer-K (or hammer-12, for K = 12)", r"hammer-(\d+)")(1)
    tools.register("auger")(2)
    tools.register("PLANE:SIDE", r"plane:(\d)")(3)
    assert tools.nearest("hamer-13") == "hammer-12"
    assert tools.nearest("augur") == "auger"
    assert tools.nearest("Drill") == "auger"
    assert tools.nearest("plane-side") == "PLANE:SIDE"  # nothing in the form is a name
    assert tools.nearest("qqq") == ""
    with pytest.raises(UnknownNameError, match=r"^no tool is called 'qqq'; there are PLANE:SIDE, "):
        tools.find("qqq")


def test_similar_names_come_most_similar_first() -> None:
    names = ["resnet18", "resnet50", "ResNet-50", "vgg"]
    assert similar_names("resnet-50", names, most=2) == ["ResNet-50", "resnet50"]
    assert similar_names("", names) == []


def loaded(source: str, *, module: str = "own") -> Callable[[], int]:
    """The function in some code, as of a file that is loaded anew."""
    space: dict[str, Any] = {"__name__": module}
    exec(source, space)
    return next(each for each in space.values() if isinstance(each, FunctionType))


class TestTwice:
    @pytest.mark.parametrize(("form", "pattern"), [("saw", "other"), ("other", "saw")])
    def test_a_name_that_is_taken_is_refused(self, form: str, pattern: str) -> None:
        tools: Registry[Callable[[], int]] = Registry("tool")
        tools.register("saw", "saw")(loaded("def first(): return 1"))
        with pytest.raises(ValueError, match="another tool is called 'saw': choose another name"):
            tools.register(form, pattern)(loaded("def second(): return 2"))
        assert tools.find("saw").value() == 1
        assert list(tools) == ["saw"]

    @pytest.mark.parametrize("module", ["own", "own_again"])
    @pytest.mark.parametrize(("form", "pattern"), [("saw", "saw"), ("saw", "saw2?"), ("s", "saw")])
    def test_code_that_is_loaded_again_takes_its_own_place(
        self, form: str, pattern: str, module: str
    ) -> None:
        tools: Registry[Callable[[], int]] = Registry("tool")
        tools.register("saw", "saw")(loaded("def saw(): return 1"))
        tools.register(form, pattern)(loaded("def saw(): return 2", module=module))
        assert tools.find("saw").value() == 2
        assert list(tools) == [form]

    def test_but_not_that_of_this_package(self) -> None:
        tools: Registry[Callable[[], int]] = Registry("tool")
        tools.register("saw")(loaded("def saw(): return 1", module="upright.saw"))
        with pytest.raises(ValueError, match="another tool is called 'saw'"):
            tools.register("saw")(loaded("def saw(): return 2"))

    def test_a_function_of_another_file_is_other_code_whatever_it_is_called(
        self, tmp_path: Path
    ) -> None:
        tools: Registry[Callable[[], int]] = Registry("tool")

        def register(folder: str, text: str) -> None:
            (file := tmp_path / folder / "saws.py").parent.mkdir(exist_ok=True)
            file.write_text(text)
            tools.register("saw")(run_file(str(file)).saw)

        register("one", "def saw(): return 1")
        register("one", "def saw(): return 2  # edited")
        register("two", "def saw(): return 2  # edited")  # a copy
        assert tools.find("saw").value() == 2
        with pytest.raises(ValueError, match="another tool is called 'saw'"):
            register("three", "def saw(): return 3")
        assert tools.find("saw").value() == 2

    def test_equal_values_are_not_the_same_code(self) -> None:
        weights: Registry[tuple[float, str]] = Registry("penalty")
        weights.register("AT")((1.0, "made " + str(1)))
        with pytest.raises(ValueError, match="another penalty is called 'AT'"):
            weights.register("AT")((1.0, "made " + str(1)))

    @pytest.mark.usefixtures("alone")
    def test_a_network_of_this_package_is_taken_before_any_was_asked_for(self) -> None:
        code = (
            "from upright.models import network\n"
            "try: network('mine-K', r'convnet([0-9.]*)')(lambda *_, **__: None)\n"
            "except ValueError as error: print(error)"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert found.stdout.startswith("another network is called 'convnet"), found.stderr

    @pytest.mark.usefixtures("alone")
    def test_a_data_set_whose_place_is_new_is_still_taken(self) -> None:
        with pytest.raises(ValueError, match="another data set is called 'npz:FILE'"):
            data_set("npz:PLACE")(lambda _: pytest.fail("not to be asked"))

    @pytest.mark.usefixtures("alone")
    def test_a_reader_may_be_loaded_again(self) -> None:
        for _ in range(2):
            data_set("scans:DIR")(loaded("def scans(request): return request"))  # type: ignore[arg-type]
        assert list(DATA_SETS).count("scans:DIR") == 1


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    for registry in ALL.values():
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


@each_registry
def test_each_form_shows_a_name_that_means_it(kind: str) -> None:
    for entry in ALL[kind].entries:
        assert entry.examples, entry.form
        for name in entry.examples:
            assert ALL[kind].find(name).value is entry.value, name


@each_registry
def test_a_wrong_name_is_told_all_forms(kind: str) -> None:
    told = str(ALL[kind].unknown("qqqqq"))
    assert told.startswith(f"no {kind} is called 'qqqqq'; there are ")
    assert all(form in told for form in ALL[kind])


NAMES_OF_MODELS = {
    "timm:net.onnx": "timm:NAME",
    "zoo:svhn/net.pt": "zoo:DATASET/NAME",
    "stn-plus:loc,net.onnx": "stn-plus:LOCNET,CLASSIFIER",
    "tta-10:timm:net.pt2": "tta-10:MODEL, tta-grid-3x3x5:MODEL or tta-mirror:MODEL",
    "runs/net.v2": "RUN-DIRECTORY",
    "nets.onnx:make": "package.module:FACTORY",
    "a:b.onnx": "FILE.onnx",
}


@pytest.mark.parametrize("name", NAMES_OF_MODELS)
def test_names_of_models_that_two_patterns_match_mean_one_of_them(name: str) -> None:
    assert SOURCES.find(name).value is SOURCES[NAMES_OF_MODELS[name]]


# --- help -----------------------------------------------------------------------------------------


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Its text in one line, without the frame."""
    assert main([command, "--help"]) == 0
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.fixture(autouse=True)
def _as_wide_as_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("evaluate", ("model", "data set", "attack")),
        ("train", ("data set", "network")),
        ("oracle", ("data set", "attack")),
    ],
)
def test_help_lists_all_that_is_registered(
    command: str, kinds: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(command, capsys)
    for kind in kinds:
        for entry in ALL[kind].entries:
            assert f"· {entry.form}{f' – {entry.about}' if entry.about else ''}" in text


@pytest.mark.usefixtures("alone")
def test_help_knows_what_was_registered_since(capsys: pytest.CaptureFixture[str]) -> None:
    assert "corners" not in help_of("evaluate", capsys)
    attack_name("corners-N (as in corners-2)", r"corners-(\d)", about="the N worst corners")(
        lambda _: pytest.fail("not to be made")
    )
    data_set("arrows", about="to all sides")(lambda _: pytest.fail("not to be read"))
    model_source("attic:NAME", "attic:(.+)")(lambda *_, **__: pytest.fail("not to be loaded"))
    network("blurnet", "blurnet")(lambda **_: pytest.fail("not to be built"))
    text = help_of("evaluate", capsys)
    assert "· corners-N (as in corners-2) – the N worst corners" in text
    assert "· arrows – to all sides" in text
    assert "· attic:NAME" in text
    assert "· blurnet" in help_of("train", capsys)


def test_what_can_be_fetched_is_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "--help"]) == 0
    assert f"{{{','.join(KNOWN)}}}" in capsys.readouterr().out
    assert main(["data", "fetch", "mnist"]) == 2


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1])\n"
        "import registry\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before} - {'registry'}\n"
        "assert new <= sys.stdlib_module_names, new"
    )
    folder = Path(upright.__file__).parent
    subprocess.run([sys.executable, "-I", "-c", code, str(folder)], check=True)
