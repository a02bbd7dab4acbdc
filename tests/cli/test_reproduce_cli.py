"""``upright reproduce``: shows, makes what is missing, writes files; and says what is wrong."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cheap_compiler import compiled_cheaply
from made_up_records import made_up_record, paper_recipe
from tiny_runs import colours, register_tiny, save_as_npz, tiny_recipe
from upright import record_files
from upright.cli import _COMMANDS, _app, main
from upright.cli import reproduce as command
from upright.cli.options import parse_seeds, show_seeds
from upright.paper import INVARIANCE
from upright.paper.tables import fill_tables, select
from upright.paper.weights import weight_choices
from upright.record_files import RecordFolder
from upright.report.headline import headline_to_markdown
from upright.report.methods import methods_to_markdown
from upright.report.sections import fill_sections
from upright.report.summary import different_numbers_to_markdown, summarise, summary_to_markdown
from upright.report.weights import weights_to_markdown

ROOT = Path(__file__).parents[2]
PAGE = "# Page\n\n<!-- reproduce: {} -->\n<!-- end -->\n\nMore.\n"


@pytest.fixture
def reproduce(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr(record_files, "CHECKOUT", tmp_path)  # which has no records of ours

    def call(*options):
        code = main(["reproduce", "--device", "cpu", *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def keep_made_up(*objectives, dataset="cifar10", seeds=1):
    for objective in objectives:
        for seed in range(seeds):
            recipe = paper_recipe(dataset, objective, seed=seed)
            RecordFolder(Path("results")).add(
                made_up_record(recipe, {"nat": 0.92, "grid-775": 0.72})
            )


def test_without_records_a_dry_run_shows_that_all_is_missing(reproduce):
    code, out, err = reproduce("--dry-run")
    assert (code, err) == (0, "")
    (every,) = [line.split() for line in out.splitlines() if line.strip().startswith("all ")]
    assert every[:8] == ["all", "273", "0", "0", "0", "0", "0", "273"]
    assert "no record says how long a step takes" in out
    assert not list(Path().iterdir())


def test_a_dry_run_of_a_table_shows_what_is_there_what_is_missing_and_for_how_long(reproduce):
    keep_made_up("AT(rob, Wo-10)", seeds=2)
    options = ["--table", "regspat", "--dataset", "cifar10", "--seeds", "3", "--batch", "64"]
    code, out, err = reproduce("--dry-run", *options)
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "AT(rob, Wo-10) on cifar10 1 2 grid-775 7 min measured" in lines
    assert "std* on cifar10 3 0-2 grid-775 6 min extrapolated" in lines
    assert "batch 128" not in out
    assert any(
        line.startswith("CIFAR-10 nat missing [1] missing [2] 92.00 ± 0.00") for line in lines
    )
    wanted = "upright reproduce --table regspat --dataset cifar10 --method 'std*' --batch 64"
    assert f"[2] {wanted} --seeds 3" in lines
    text = " ".join(lines)
    assert " 28 runs missing: " in text
    assert (  # the 6 are those of the specialised networks
        " on made-up GPU, one after the other, 21 of 22 times extrapolated from other methods; "
        "of 6 evaluations no record says how long a step takes. "
    ) in text


ASKED = [
    [],
    ["--batch", "64"],
    ["--batch", "128"],
    ["--batch", "128", "--batch", "64", "--seeds", "2"],
    ["--batch", "128", "--results", "my records", "--runs", "runs/other"],
    ["--precision", "bfloat16", "--results", "elsewhere", "--compile"],
]


@pytest.mark.parametrize("options", ASKED, ids=" ".join)
def test_the_command_of_a_cell_makes_the_runs_that_were_asked_for(reproduce, options):
    """Each is read again: what it would make of a method is what was asked for of it."""
    columns = [part for name in ("std", "AT(rob,Wo-10)") for part in ("--method", name)]
    asked = ["--table", "regspat", "--dataset", "cifar10", *columns, *options]
    code, out, err = reproduce("--dry-run", *asked)
    assert (code, err) == (0, "")
    told = [line.partition("] ")[2] for line in out.splitlines() if line.startswith("[")]
    given = read_again("upright", "reproduce", *asked)
    found = [read_again(*shlex.split(line)) for line in told]
    assert [each.method for each in found] == [("std",), ("AT(rob,Wo-10)",)]
    runs = [run for each in found for run in each._needs(each._layouts())]
    assert runs == given._needs(given._layouts())
    for each in found:
        assert replace(each, method=given.method) == given


def read_again(*words):
    """A command as it is understood."""
    return _app(_COMMANDS).cli(prog=words[0], args=list(words[1:]))


def test_a_size_of_batch_that_a_method_never_had_is_not_in_its_command(reproduce):
    """With it, the command would have no run, and end in an error."""
    asked = ["--table", "fo_supp", "--dataset", "cifar100", "--batch", "128", "--seeds", "1"]
    _, out, _ = reproduce("--dry-run", *asked)
    told = [line.partition("--method ")[2] for line in out.splitlines() if line.startswith("[")]
    assert [line for line in told if line] == [
        "'AT(mix,S-PGD)' --batch 128 --seeds 1",
        "'AT(rob,S-PGD)' --batch 128 --seeds 1",
        "'ALP(mix,S-PGD)' --seeds 1",
    ]


def test_pages_and_files_have_whole_commands_too(reproduce):
    Path("page.md").write_text(PAGE.format("tables"))
    asked = ["--table", "compareadv1", "--dataset", "svhn", "--method", "std", "--batch", "128"]
    assert reproduce("--dry-run", *asked, "--markdown", "page.md", "--out", "out")[0] == 0
    wanted = "upright reproduce --table compareadv1 --dataset svhn --method std --batch 128"
    assert f"1. `{wanted} --seeds 5`" in Path("page.md").read_text()
    with Path("out/tables.csv").open(newline="") as file:
        assert {line["command"] for line in csv.DictReader(file)} == {f"{wanted} --seeds 5"}


def test_what_fills_most_empty_cells_in_the_least_time_is_listed_and_made_first(
    reproduce, monkeypatch
):
    """GRN comes first in the paper, but nobody knows how long it takes."""
    keep_made_up("std*")
    columns = ["--method", "GRN", "--method", "KL(nat, rnd)", "--batch", "64"]
    options = ["--dataset", "cifar10", *columns, "--seeds", "2"]
    wanted = ["KL(nat, rnd)", "std"]
    _, out, _ = reproduce("--dry-run", *options)
    listed = [line.split(" on cifar10")[0].strip() for line in out.splitlines() if " on " in line]
    assert listed[:2] == wanted
    made = []
    monkeypatch.setattr(
        "upright.cli.reproduce.make_missing", lambda _, tasks, *__, **___: made.extend(tasks) or ()
    )
    reproduce(*options, "--device", "cpu")
    assert [(task.plan.method, task.plan.main.seed) for task in made] == [
        (name, seed) for seed in (0, 1) for name in (wanted if seed == 0 else wanted[::-1])
    ]


def test_a_dry_run_on_hardware_without_records_tells_the_times_of_another_and_its_precision(
    reproduce,
):
    half = paper_recipe("cifar10", "std", precision="bfloat16")
    measured = {"nat": 0.92, "grid-775": 0.72}
    asked = {"precision": "float16"}
    RecordFolder(Path("results")).add(made_up_record(half, measured, evaluation=asked))
    options = ["--table", "regspat", "--dataset", "cifar10", "--method", "std", "--batch", "64"]
    _, out, _ = reproduce("--dry-run", *options, "--seeds", "2")
    text = " ".join(out.split())
    assert "std on cifar10 1 1 grid-775 7 min measured" in text
    assert "on made-up GPU" in text
    _, out, _ = reproduce("--dry-run", *options, "--seeds", "2", "--precision", "float32")
    assert "std on cifar10 1 1 grid-775 ? unknown" in " ".join(out.split())


def test_times_of_runs_that_shared_them_are_called_so(reproduce):
    recipe = paper_recipe("cifar10", "std")
    record = made_up_record(recipe, {"nat": 0.92, "grid-775": 0.72}, beside=None)
    RecordFolder(Path("results")).add(record)
    options = ["--table", "regspat", "--dataset", "cifar10", "--method", "std", "--batch", "64"]
    _, out, _ = reproduce("--dry-run", *options, "--seeds", "2")
    text = " ".join(out.split())
    assert "std on cifar10 1 1 grid-775 7 min shared" in text
    assert "1 of 1 times from runs that may have shared their time with others." in text


def test_a_figure_s_runs_can_be_asked_for(reproduce):
    code, out, _ = reproduce(
        "--dry-run", "--figure", "lambda-rnd", "--dataset", "svhn", "--seeds", "1"
    )
    assert code == 0
    assert "24 runs missing" in out
    assert "KL(rob, rnd; λ=16) on svhn" in out


def test_tables_are_written_in_three_formats(reproduce):
    keep_made_up("std*")
    code, _, err = reproduce("--dry-run", "--table", "comparereg", "--out", "out")
    assert (code, err) == (0, "")
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "tables.csv",
        "tables.md",
        "tables.tex",
    ]
    with Path("out/tables.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 32
    assert "| **CIFAR-10 nat** |" in Path("out/tables.md").read_text()
    assert r"\begin{tabular}{lrrrrrrrr}" in Path("out/tables.tex").read_text()


def test_counts_and_tables_go_between_the_marks_of_a_page(reproduce):
    Path("README.md").write_text(PAGE.format("summary"))
    Path("docs.md").write_text(PAGE.format("tables"))
    for _ in range(2):  # the second time it finds what it wrote
        assert reproduce("--dry-run", "--markdown", "README.md", "--markdown", "docs.md")[0] == 0
    readme, docs = Path("README.md").read_text(), Path("docs.md").read_text()
    assert readme.startswith("# Page\n\n<!-- reproduce: summary -->\n\n| table | cells |")
    assert "| all | 273 | 0 | 0 | 0 | 0 | 0 | 273 |" in readme
    assert readme.endswith("<!-- end -->\n\nMore.\n")
    assert docs.count("| accuracy in % |") == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--table", "regspatial"], "the paper has no table 'regspatial'; choose from regspat,"),
        (["--dataset", "mnist"], "the paper has no data set 'mnist'; choose from"),
        (["--method", "KL"], "the paper has no method 'KL'; choose from"),
        (["--figure", "speed"], "the paper has no figure 'speed'; choose from"),
        (["--markdown", "page.md"], "page.md: it has no place for the result"),
        (["--markdown", "nowhere.md"], "nowhere.md: No such file or directory"),
        (["--seeds", "0"], "--seeds is 0, but at least 1 is needed"),
        (["--together", "0"], "--together is 0, but at least 1 is needed"),
        (["--method", "KL(rob,Wo-10)", "--batch", "128"], "--batch leaves no run: only std, std*"),
        (["--figure", "lambda-wo", "--batch", "128"], "--batch leaves no run"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(reproduce, options, message):
    Path("page.md").write_text("no marks")
    code, _, err = reproduce("--dry-run", *options)
    assert code == 2
    assert err.startswith(f"upright: error: {message}")
    assert err.count("\n") == 1


def test_only_batch_sizes_of_the_paper_can_be_asked_for(reproduce):
    code, out, err = reproduce("--dry-run", "--batch", "32")
    assert code == 2
    assert "invalid choice" in out + err
    assert "Nothing is missing" not in out


def test_records_that_come_with_the_package_are_shown_beside_one_s_own(
    reproduce, tmp_path, monkeypatch
):
    """As in a wheel, where ``results`` of the checkout lies in the package."""
    shipped = tmp_path / "package" / "records"
    shutil.copytree(ROOT / "results", shipped)
    monkeypatch.setattr(record_files, "SHIPPED", shipped)
    before = [file.read_bytes() for file in sorted(shipped.glob("*.jsonl"))]

    def counted(*options):
        _, out, _ = reproduce("--dry-run", *options)
        (every,) = [line.split() for line in out.splitlines() if line.strip().startswith("all ")]
        return int(every[2])

    measured = counted()
    assert measured > 50
    shutil.copytree(ROOT / "results", "results")  # as in a checkout
    assert len(RecordFolder.usual().read()) == len(RecordFolder(shipped).read())
    assert counted() == measured
    shutil.rmtree("results")
    keep_made_up("AT(mix, Wo-10)", dataset="svhn")  # one's own take nothing away
    assert counted() >= measured
    assert [file.read_bytes() for file in sorted(shipped.glob("*.jsonl"))] == before
    # Who names a folder begins anew.
    assert counted("--results", "elsewhere") == 0


def test_an_installation_that_runs_from_a_checkout_shows_its_records_anywhere(
    tmp_path, monkeypatch
):
    assert ROOT == record_files.CHECKOUT
    monkeypatch.chdir(tmp_path)
    assert len(RecordFolder.usual().read()) == len(RecordFolder(ROOT / "results").read()) > 50


def test_a_wheel_has_the_records_where_the_package_looks_for_them():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    built = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    place = record_files.SHIPPED.relative_to(ROOT / "src")
    assert built == {"results": place.as_posix()}
    assert not record_files.SHIPPED.exists()  # in a checkout, there is no second copy
    assert RecordFolder(ROOT / built.popitem()[0]).read()


def test_help_names_what_the_paper_has(capsys):
    assert main(["reproduce", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*INVARIANCE.figure_names, *INVARIANCE.datasets))


@pytest.mark.parametrize("page", ["README.md", "docs/reproduction.md"])
def test_a_committed_page_has_what_the_command_writes_from_the_committed_records(page):
    """Where it fails: upright reproduce --dry-run --markdown README.md, and the other page."""
    results = RecordFolder(ROOT / "results")
    records = results.read()
    tables = fill_tables(INVARIANCE, select(INVARIANCE), records)
    text = (ROOT / page).read_text(encoding="utf-8")
    contents = {
        "headline": headline_to_markdown(tables, INVARIANCE.headline, paper_seeds=5),
        "summary": "\n".join(
            (summary_to_markdown(summarise(tables)), different_numbers_to_markdown(tables))
        ),
        "methods": methods_to_markdown(tables),
        "weights": weights_to_markdown(
            weight_choices(INVARIANCE, records, results.held_out.read())
        ),
    }
    assert text == fill_sections(text, contents)


@pytest.fixture
def _tiny_needs(tmp_path, monkeypatch):
    """In place of the paper's runs, which take hours, two that take a moment."""
    register_tiny(monkeypatch)
    save_as_npz(colours(), tmp_path / "colours.npz")
    good = tiny_recipe(data="npz:colours.npz")
    bad = tiny_recipe(data="npz:colours.npz", learning_rate=1e30)
    monkeypatch.setattr(
        command, "table_needs", lambda *_, **__: [(good, "grid-3x3x3"), (bad, "grid-3x3x3")]
    )


@pytest.mark.usefixtures("_tiny_needs")
def test_what_is_missing_is_made_and_what_fails_is_named(reproduce):
    code, out, err = reproduce("--table", "wok_diffk", "--seeds", "2")
    assert code == 1
    said = err.splitlines()
    assert sum("nat " in line and "grid-3x3x3 " in line for line in said) == 2
    assert sum(line.startswith("upright: failed: KL(rob, Wo-2)") for line in said) == 2
    assert "wok_diffk" in out
    (file,) = Path("results").iterdir()
    before = file.read_bytes()
    assert before.count(b"\n") == 2
    assert reproduce("--table", "wok_diffk", "--seeds", "2")[0] == 1
    assert file.read_bytes() == before


@pytest.mark.usefixtures("_tiny_needs")
def test_what_was_measured_as_compiled_is_not_missing_without(reproduce):
    with compiled_cheaply() as compiler:
        reproduce("--table", "wok_diffk", "--seeds", "1", "--compile")
    assert compiler.sizes
    (file,) = Path("results").iterdir()
    before = file.read_bytes()
    assert json.loads(before)["evaluation"]["compile"] is True
    reproduce("--table", "wok_diffk", "--seeds", "1")
    assert file.read_bytes() == before


@given(st.sets(st.integers(0, 300), min_size=1).map(sorted))
def test_seeds_are_written_as_they_are_read(seeds):
    assert parse_seeds(show_seeds(seeds)) == seeds
