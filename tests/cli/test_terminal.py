"""Names from outside, through every command: none steers the terminal, none becomes a link."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import made_up_report as made_up
from tiny_zoo import NAME
from upright.cli import main
from upright.record_files import append
from upright.records import to_json
from upright.terminal import _PlainConsole, plain_console, plain_text, printable
from upright.zoo import Entry
from upright.zoo.card import write_card

HOSTILE = "[link=evil]x[/link][/]\x1b]8;;evil\x07\x1b[2J\r\n\u202e\udcff"
SHOWN = "[link=evil]x[/link][/]\\x1b]8;;evil\\x07\\x1b[2J\\r\\n\\u202e\\udcff"
"""What is to be seen of it: every character."""

PLAIN = {"markup": False, "emoji": False, "highlight": False}
"""As ``plain_console`` has it."""

MODELS = """
import torch
def make():
    weight = torch.randn(3, 192, generator=torch.Generator().manual_seed(1))
    return lambda images: (images - 0.4).flatten(1) @ weight.T
"""


@given(st.text())
def test_what_is_printable_is_one_line_of_what_can_be_seen_and_printing_it_again_changes_nothing(
    text,
):
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert text != shown or text.isprintable()


@given(st.text(min_size=1), st.sampled_from([str, Text, plain_text]))
def test_the_console_lets_nothing_through_whatever_it_is_handed(text, made):
    """In a terminal with colours; what steers it there is the console's own, and known."""
    file = io.StringIO()
    console = _PlainConsole(file=file, force_terminal=True, **PLAIN, width=200)
    table = Table("name", title=made(text), caption=made(text))
    table.add_column(made(text))
    table.add_row(made(text), made(text))
    console.print(table)
    console.print(made(text), soft_wrap=True)
    own = ("\x1b[1m", "\x1b[2m", "\x1b[3m", "\x1b[2;3m", "\x1b[0m", "\n")
    left = file.getvalue()
    for code in own:
        left = left.replace(code, "")
    assert left.isprintable()


def test_markup_is_text(capsys):
    plain_console().print("[bold]a[/bold] :smile: [/]")
    assert capsys.readouterr().out == "[bold]a[/bold] :smile: [/]\n"


@pytest.fixture
def upright(tmp_path, monkeypatch):
    """Call a command in a terminal: with colours, and with an encoding that cannot write all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "models.py").write_text(MODELS)

    def call(*arguments: object) -> tuple[int, str]:
        written = io.BytesIO()
        streams = {
            name: io.TextIOWrapper(written, "utf-8", errors, write_through=True)
            for name, errors in (("stdout", "strict"), ("stderr", "backslashreplace"))
        }
        with monkeypatch.context() as patched:
            for name, stream in streams.items():
                patched.setattr(sys, name, stream)
            code = main([str(argument) for argument in arguments])
        return code, written.getvalue().decode()

    return call


def harmless(text: str) -> bool:
    """Whether nothing of it came through as it was: the console's own colours are the rest."""
    return not any(part in text for part in ("\x1b]", "\x07", "\x1b[2J", "\r", "\u202e", "\udcff"))


def save_data(path: str = "data.npz") -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.savez(path, test_images=images, test_labels=np.arange(6) % 3)


def hostile_path() -> Path:
    """A folder's name may hold all but a slash."""
    path = Path(HOSTILE.replace("/", "|"))
    path.mkdir()
    return path


def seen(path: object) -> str:
    return printable(str(path))


def test_evaluate_and_its_errors(upright):
    folder = hostile_path()
    save_data()
    shutil.copy("data.npz", folder)
    asked = ["--data", f"npz:{folder}/data.npz", "--attack", "wo-2", "--device", "cpu"]
    code, text = upright("evaluate", "models.py:make", *asked, "--name", HOSTILE)
    assert (code, harmless(text)) == (0, True)
    assert SHOWN in text
    assert seen(folder) in text
    for wrong in (["--json", folder], ["--data", HOSTILE], ["--attack", HOSTILE]):
        code, text = upright("evaluate", "models.py:make", *asked, *wrong)
        assert (code, harmless(text)) == (2, True)
        assert text.count("\n") == 1 or "grammar" in text


def test_names_of_classes(upright):
    rng = np.random.default_rng(0)
    from PIL import Image

    for name in ("a", "b\x1b]8;;evil\x07[link=evil]", "c"):
        Path("images", name).mkdir(parents=True)
        for number in range(2):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("images", name, f"{number}.png"))
    asked = ["--data", "folder:images", "--attack", "wo-2", "--device", "cpu"]
    code, text = upright("evaluate", "models.py:make", *asked, "--details", "--json", "x.json")
    assert (code, harmless(text)) == (0, True)
    assert "b\\x1b]8;;evil\\x07[link=evil]" in text.replace(" ", "")


def test_zoo_list_and_show(upright, entry):
    card = entry.card()
    record = card.records[0]
    names = {HOSTILE: 0.5, **record.measured}
    records = (replace(record, measured=names, hardware=HOSTILE),)
    hostile = replace(card, records=records, note=HOSTILE, name="glyphs/hostile")
    Entry(entry.folder, "glyphs/hostile").write(hostile, b"")
    (entry.folder / "glyphs" / "bad.json").write_text(json.dumps({"version": HOSTILE}))
    (entry.folder / "glyphs" / (HOSTILE.replace("/", "") + ".json")).write_bytes(write_card(card))
    code, text = upright("zoo", "list")
    assert (code, harmless(text)) == (0, True)
    assert f"{SHOWN} 50.00" in text
    assert f"zoo:{NAME}" in text  # after the bad ones
    assert "Accuracies in percent" in text
    code, text = upright("zoo", "show", "glyphs/hostile")
    assert (code, harmless(text.replace("\n", ""))) == (0, True)
    assert upright("zoo", "show", HOSTILE)[0] == 2


def test_data_list_and_check(upright, monkeypatch):
    folder = hostile_path()
    monkeypatch.setenv("UPRIGHT_DATA", str(folder))
    for name in ("cifar10", "svhn"):
        (folder / name).mkdir()
        (folder / name / "facts.json").write_text(json.dumps({"origin": HOSTILE}))
    code, text = upright("data", "list")
    assert (code, harmless(text)) == (0, True)
    assert text.splitlines()[0].endswith(f"{seen(folder)}\x1b[0m")
    for name in ("cifar10", "cifar100", "svhn"):
        assert name in text
    code, text = upright("data", "check")
    assert (code, harmless(text)) == (1, True)
    monkeypatch.delenv("FORCE_COLOR")  # or bars are drawn, which move the cursor
    code, text = upright("data", "fetch", "cifar10", "--from", folder / "absent")
    assert (code, harmless(text)) == (2, True)


@pytest.mark.filterwarnings("default::upright.record_files.DamagedRecord")
def test_report_and_reproduce(upright):
    folder = hostile_path()
    record = replace(made_up.RECORDS[0], dataset=HOSTILE, method=HOSTILE, hardware=HOSTILE)
    lines = [json.dumps(to_json(each)) for each in (record, made_up.RECORDS[1])]
    (folder / "x.jsonl").write_text("\n".join([*lines, json.dumps({"version": HOSTILE})]))
    code, text = upright("report", folder, "--out", folder / "page")
    assert (code, harmless(text)) == (0, True)
    assert seen(folder / "page") in text
    asked = ["--table", "regspat", "--device", "cpu", "--dry-run"]
    code, text = upright("reproduce", *asked, "--results", folder)
    assert (code, harmless(text)) == (0, True)
    assert "regspat" in text
    assert upright("reproduce", "--table", HOSTILE)[0] == 2


def test_train(upright):
    folder = hostile_path()
    np.savez("all.npz", images=np.zeros((6, 8, 8, 3), np.uint8), labels=np.arange(6) % 2)
    tiny = ["--model", "convnet0.25", "--steps", 2, "--batch", 2, "--device", "cpu"]
    code, text = upright("train", "std", "--data", "npz:all.npz", "--out", folder / "run", *tiny)
    assert (code, harmless(text)) == (0, True)
    assert seen(folder / "run") in text
    code, text = upright("train", HOSTILE, "--data", "npz:all.npz", "--out", "run", *tiny)
    assert (code, harmless(text)) == (2, True)


@pytest.mark.parametrize("command", [["evaluate", "x", "--data"], ["zoo", "show"], [], ["data"]])
def test_arguments_that_do_not_parse(upright, command):
    code, text = upright(*command, "--x" + HOSTILE)
    assert (code, harmless(text)) == (2, True)


def test_what_the_terminal_cannot_write_does_not_end_a_listing(tmp_path):
    """As in a terminal of plain ASCII, under another locale."""
    import subprocess

    record = replace(made_up.RECORDS[0], method="λ", dataset="ü")
    append(tmp_path / "x.jsonl", record)
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "UPRIGHT_DATA": str(tmp_path / "ü")}
    done = subprocess.run(
        [sys.executable, "-m", "upright", "data", "list"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "svhn" in done.stdout
