"""Warnings name the line of the user's code, from however deep inside they come."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from upright import files
from upright.callers import warn_caller, warning_here
from upright.files import in_turn
from upright.models import build_network
from upright.record_files import RecordFolder
from upright.train import Recipe, load_network, train

TINY = Recipe(objective="std", data="glyphs", model="convnet0.25", steps=4, batch=4, train_images=8)


def with_a_damaged_checkpoint(folder: Path) -> None:
    train(TINY, folder, checkpoint_every=2)
    (last,) = folder.glob("checkpoints/00000004.safetensors")
    last.write_bytes(last.read_bytes()[:-1])


def with_a_damaged_record(folder: Path) -> None:
    (folder / "glyphs.jsonl").write_text("no record\n")


PLACES: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "a network's name": (lambda _: None, lambda _: build_network("resnet50")),
    "a file of records": (with_a_damaged_record, lambda folder: RecordFolder(folder).read()),
    "a checkpoint": (with_a_damaged_checkpoint, lambda folder: load_network(folder)),
    "training": (with_a_damaged_checkpoint, lambda folder: train(TINY, folder, resume=True)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_warning_names_the_line_that_called(place: str, tmp_path: Path) -> None:
    prepare, call = PLACES[place]
    prepare(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(tmp_path)
    line = inspect.getsourcelines(call)[1]
    assert [(each.filename, each.lineno) for each in caught] == [(__file__, line)]


def test_who_waits_for_a_lock_is_told_at_the_line_that_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with in_turn(path, busy="not asked"):
            held.set()
            done.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(10)
    ask = files.lock

    def ask_and_let_go(handle: int, *, shared: bool = False, wait: bool = True) -> bool:
        if wait:  # it was told of, and now waits in earnest
            done.set()
        return ask(handle, shared=shared, wait=wait)

    monkeypatch.setattr(files, "lock", ask_and_let_go)
    with pytest.warns(RuntimeWarning, match="one waits") as caught, in_turn(path, busy="one waits"):
        other.join()
    assert [each.filename for each in caught] == [__file__]


def test_a_thread_warns_at_the_line_for_which_it_works() -> None:
    line, work = inspect.currentframe().f_lineno, warning_here(warn_caller)  # type: ignore[union-attr]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=work, args=("said", UserWarning))
        thread.start()
        thread.join()
    assert [(str(each.message), each.filename, each.lineno) for each in caught] == [
        ("said", __file__, line)
    ]
