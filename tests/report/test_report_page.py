"""``upright report``, without a browser: what goes into the page and what is refused."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import made_up_report as made_up
from upright.cli import main
from upright.record_files import append
from upright.records import to_json
from upright.report.exhibition import record_id, titles
from upright.report.figures import draw_orbits, find_example
from upright.report.model import Cell, Column, Estimate, Row, Source, Table
from upright.report.page.sheet import paper_sheet
from upright.report.page.side_by_side import side_by_side
from upright.report.runs import group_runs
from upright.report.saved import read_saved, write_saved


@pytest.fixture(scope="module")
def results(made_up_results):
    return made_up_results


@pytest.fixture(scope="module")
def text(results):
    return (results / "report" / "index.html").read_text()


def test_the_page_names_no_address_that_a_browser_would_load(text):
    loads = re.findall(r"""(?:src|href)=["']([^"']*)""", text)
    assert loads
    assert all(address.startswith(("#", "data:")) for address in loads)
    assert not re.search(r"url\(\s*[\"']?(?!#)", text)
    assert "@import" not in text


def test_the_page_s_data_are_the_saved_arrays(results, text):
    (script,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text)
    (shown,) = json.loads(script)["exhibitions"]
    saved = read_saved(results / "saved")
    assert shown["classes"] == list(made_up.CLASSES)
    assert base64.b64decode(shown["images"]) == saved.shown.images.tobytes()
    for packed, model in zip(shown["models"], saved.models, strict=True):
        seen = np.frombuffer(base64.b64decode(packed["predicted"]), "<u2")
        assert seen.tolist() == model.predicted.flatten().tolist()
        assert base64.b64decode(packed["confidence"]) == model.confidence.tobytes()
        assert packed["worst"] == model.worst.tolist()


def test_every_figure_is_written_as_svg_and_as_png(results):
    folder = results / "report" / "figures"
    names = {path.stem for path in folder.glob("*.svg")}
    assert names == {
        "along-angle-made-up",
        "curves-made-up",
        "example-made-up",
        "orbits",
        "runtime-made-up",
        "weights-rnd",
        "weights-wo-k",
    }
    for name in names:
        assert ET.parse(folder / f"{name}.svg").getroot().tag.endswith("svg")
        with Image.open(folder / f"{name}.png") as picture:
            assert min(picture.size) > 300


def test_figures_name_methods_and_units(results):
    def words(name: str) -> str:
        root = ET.parse(results / "report" / "figures" / f"{name}.svg").getroot()
        return " ".join("".join(each.itertext()) for each in root.iter() if "text" in each.tag)

    runtime = words("runtime-made-up")
    assert "training time in minutes" in runtime
    assert "AT(rob, Wo-k)" in runtime  # std*, Wo-10 and Wo-20 are one line
    assert "KL(rob, Wo-10)" in words("weights-wo-k")
    assert "weight λ of the penalty" in words("weights-rnd")
    assert "angle in degrees" in words("along-angle-made-up")


def test_a_figure_is_the_same_file_every_time():
    assert draw_orbits().svg == draw_orbits().svg


def test_the_figure_of_angles_says_how_much_of_them_is_wrong(results):
    saved = read_saved(results / "saved")
    root = ET.parse(results / "report" / "figures" / "along-angle-made-up.svg").getroot()
    words = " ".join("".join(each.itertext()) for each in root.iter() if "text" in each.tag)
    for model in saved.models:
        wrong = np.mean(model.predicted_along != saved.shown.labels[:, None])
        assert f"{100 * wrong:.0f} % wrong" in words


def test_the_example_tips_the_weaker_model_over_and_not_the_stronger(results):
    saved = read_saved(results / "saved")
    example = find_example(saved)
    place = (example.image, *example.at)
    label = saved.shown.labels[example.image]
    assert (example.weak_title, example.strong_title) == ("std", "KL(rob, Wo-10)")
    assert example.weak.predicted[place] != label == example.strong.predicted[place]
    assert example.weak.worst[example.image] == np.ravel_multi_index(
        example.at, example.weak.predicted.shape[1:]
    )


def test_models_stand_beside_the_best_of_the_same_images(results):
    saved = read_saved(results / "saved")
    sheet = side_by_side(saved)
    best, other = (
        next(model for model in saved.models if model.method == row[0].text) for row in sheet.rows
    )
    assert best.grid_correct.mean() > other.grid_correct.mean()
    texts = [cell.text.replace("−", "-") for cell in sheet.rows[1]]
    for accuracy, to_first, name in (1, 2, "natural_correct"), (3, 4, "grid_correct"):
        right, its = getattr(best, name), getattr(other, name)
        assert float(texts[accuracy]) == pytest.approx(100 * its.mean())
        assert float(texts[to_first]) == pytest.approx(100 * (its.mean() - right.mean()))
    alone = [other.grid_correct & ~best.grid_correct, best.grid_correct & ~other.grid_correct]
    assert texts[5:] == [str(each.sum()) for each in alone]
    assert {cell.text for cell in (sheet.rows[0][2], *sheet.rows[0][4:])} == {""}
    assert sheet.title in (results / "report" / "index.html").read_text()
    assert side_by_side(replace(saved, models=saved.models[:1])) is None


def test_seeds_of_one_recipe_are_one_method_with_a_standard_error():
    runs = {run.method: run for run in group_runs(made_up.RECORDS)}
    assert len(runs) == len(made_up.RECORDS) - 1
    found = runs["KL(rob, Wo-10)"].measured["grid-775"]
    assert (found.mean, found.n) == (pytest.approx(0.81), 2)
    assert found.stderr == pytest.approx(0.01)  # 0.80 and 0.82: their spread, 0.0141, over √2
    assert runs["KL(rob, Wo-10)"].train_seconds == 255


def test_models_are_told_apart_by_method_then_seed_then_name():
    shown = made_up.shown()
    first, again = made_up.RECORDS[4:6]
    models = [
        made_up.model(shown, "a", made_up.RECORDS[0]),
        made_up.model(shown, "b", first),
        made_up.model(shown, "c", again),
        made_up.model(shown, "d", again),
        made_up.model(shown, "timm:resnet18"),
    ]
    assert titles(models) == [
        "std",
        "KL(rob, Wo-10), seed 0",
        "KL(rob, Wo-10), seed 1, c",
        "KL(rob, Wo-10), seed 1, d",
        "timm:resnet18",
    ]


def test_a_table_of_the_paper_has_a_line_for_each_method_and_says_what_is_missing():
    source = Source(
        recipe_hash="abc", seed=0, commit=None, hardware="h", finished="2026-01-01T12:30:00+00:00"
    )
    found = Estimate(mean=0.7747, stderr=0.001, images=10, sources=(source,))
    table = Table(
        name="regspat",
        title="made up",
        columns=(Column(name="std"), Column(name="KL(rob, Wo-10)")),
        rows=(
            Row(
                dataset="CIFAR-10",
                metric="grid-775",
                cells=(Cell(command="upright reproduce"), Cell(measured=found, best=True)),
            ),
            Row(dataset="SVHN", metric="nat", cells=(None, Cell(measured=found))),
        ),
    )
    sheet = paper_sheet(table)
    assert [heading.group for heading in sheet.headings] == ["", "CIFAR-10", "SVHN"]
    std, kl = sheet.rows
    assert [cell.text for cell in std] == ["std", "missing", "–"]
    assert (std[1].command, std[1].order) == ("upright reproduce", None)
    assert (kl[1].text, kl[1].detail, kl[1].best) == ("77.47", "± 0.10", True)
    assert (kl[1].link, kl[2].best) == ("abc-0-20260101123000", False)


def test_a_damaged_line_is_named_and_passed_over(tmp_path, capsys):
    append(tmp_path / "made-up.jsonl", made_up.RECORDS[0])
    with (tmp_path / "made-up.jsonl").open("a") as file:
        file.write("<b>no record</b>\n")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert captured.out.strip().endswith("index.html")
    assert "made-up.jsonl:2: " in captured.err
    text = (tmp_path / "out" / "index.html").read_text()
    assert "made-up.jsonl:2: " in text


@pytest.mark.parametrize(
    "change",
    [
        {"train_seconds": 1e308},
        {"train_seconds": 10**400},
        {"images": 0},
        {"finished": "99999-01-01T00:00:00+00:00"},
    ],
)
def test_an_absurd_number_costs_its_record_and_no_other(tmp_path, capsys, monkeypatch, change):
    """Of two seeds: adding them up would overflow."""
    monkeypatch.setattr("upright.report.page.write.all_drawings", lambda *_: ())
    records = [to_json(record) for record in made_up.RECORDS]
    absurd = [record | change for record in records[4:6]]
    lines = [json.dumps(record) + "\n" for record in (*absurd, *records)]
    (tmp_path / "made-up.jsonl").write_text("".join(lines))
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("warning: passed over") == captured.err.count("\n") == 2
    text = (tmp_path / "out" / "index.html").read_text()
    for record in made_up.RECORDS:
        assert record_id(record) in text


def test_records_alone_or_arrays_alone_make_a_page_that_says_what_is_lacking(tmp_path):
    records, arrays = tmp_path / "records", tmp_path / "arrays"
    append(records / "made-up.jsonl", made_up.RECORDS[0])
    shown = made_up.shown()
    write_saved(arrays / "saved", shown, made_up.model(shown, "runs/std"))
    for results, lacking in ((records, "No answers were saved"), (arrays, "no records among")):
        assert main(["report", str(results), "--out", str(tmp_path / "out")]) == 0
        assert lacking in (tmp_path / "out" / "index.html").read_text()


def test_results_that_have_nothing_to_show_are_an_error(tmp_path, capsys):
    for results in (tmp_path, tmp_path / "absent"):
        assert main(["report", str(results), "--out", str(tmp_path / "out")]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_records_of_which_none_can_be_read_are_an_error_that_says_why(tmp_path, capsys):
    file = tmp_path / "cut.jsonl"
    file.write_text(json.dumps(to_json(made_up.RECORDS[0]))[:300])
    assert main(["report", str(file), "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert f"{file} has neither records nor saved arrays: {file}:1: no record (Unterm" in err
    assert err.count("\n") == 1
