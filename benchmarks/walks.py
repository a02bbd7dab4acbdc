"""Which files of the package a reader enters who follows one evaluation, one step, one cell.

    python benchmarks/walks.py

Commands, and what they come to in Python. Each is run once, small, and every function of the
package that is called is noted: the files in the order in which they are first entered, how many
functions of each, and how often it goes from one file into another. What is only imported is not
entered. docs/architecture.md has the walks in words.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

import upright
from upright import RegularizedLoss, evaluate
from upright.cli import main as command_line
from upright.paper import INVARIANCE
from upright.paper.tables import fill_tables, select
from upright.record_files import RecordFolder

PACKAGE = Path(upright.__file__).parent
Steps = Callable[[str], None]
"""A path: what is done, on which device."""


@dataclass
class Walk:
    """Files in the order of first entry, with the functions that were called of each."""

    functions: dict[str, set[CodeType]] = field(default_factory=dict)
    crossings: int = 0
    """Calls from one file of the package into another."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[Walk]:
        """Note what is called in here."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield self
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        here = _file(frame)
        if event != "call" or here is None or frame.f_code.co_name == "<module>":
            return
        self.functions.setdefault(here, set()).add(frame.f_code)
        caller = frame.f_back
        while caller is not None and _file(caller) is None:
            caller = caller.f_back
        self.crossings += caller is not None and _file(caller) != here

    def __str__(self) -> str:
        lines = [f"{len(self.functions)} files, {self.crossings} calls from one into another"]
        lines += [f"  {name:40} {len(codes):3} functions" for name, codes in self.functions.items()]
        return "\n".join(lines)


def _file(frame: FrameType) -> str | None:
    """The file of a frame below the package, None for others."""
    name = frame.f_code.co_filename
    folder = f"{PACKAGE}{os.sep}"
    return name.removeprefix(folder) if name.startswith(folder) else None


def one_evaluation(device: str) -> None:
    """A network of the zoo, 8 images, a grid."""
    words = ["zoo:cifar10/std-star", "--data", "glyphs", "--limit", "8", "--attack", "grid-3x3x3"]
    _run("evaluate", *words, "--device", device)


def one_step(device: str) -> None:
    """A step of the paper's objective; its checkpoint is part of it."""
    words = ["--steps", "1", "--batch", "4", "--train-images", "8", "--out", "run"]
    _run("train", "KL(rob, Wo-10)", "--data", "glyphs", *words, "--device", device)


def one_cell(device: str) -> None:
    """A method on a data set in one table, from records."""
    words = ["--table", "regspat", "--dataset", "cifar10", "--method", "std*", "--device", device]
    _run("reproduce", "--dry-run", *words)


def evaluate_in_python(device: str) -> None:
    """A model and images of one's own: what is left without names, files and tables."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 5)).eval().to(device)
    evaluate(model, (torch.rand(8, 3, 8, 8), torch.arange(8) % 5), attacks=["grid-3x3x3"])


def step_in_python(device: str) -> None:
    """A loss in a loop of one's own."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 5)).to(device)
    images, labels = torch.rand(8, 3, 8, 8, device=device), torch.arange(8, device=device) % 5
    RegularizedLoss("KL(rob, Wo-10)")(model, images, labels).total.backward()


def cell_in_python(_: str) -> None:
    """A cell from records: what it says, and not what is still to be run."""
    layouts = select(INVARIANCE, tables=["regspat"], datasets=["cifar10"], methods=["std*"])
    fill_tables(INVARIANCE, layouts, RecordFolder.usual().read())


PATHS: dict[str, Steps] = {
    "one evaluation": one_evaluation,
    "one step": one_step,
    "one cell": one_cell,
    "evaluate in Python": evaluate_in_python,
    "a step in Python": step_in_python,
    "a cell in Python": cell_in_python,
}


def _run(*words: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command_line(list(words))
    if code:
        raise SystemExit(f"upright {' '.join(words)} failed:\n{said.getvalue()}")


def walk(path: Steps, device: str) -> Walk:
    """Follow a path in a folder of its own, once before without notes, so that all is imported."""
    found = Walk()
    with tempfile.TemporaryDirectory() as first, contextlib.chdir(first):
        path(device)
    with tempfile.TemporaryDirectory() as second, contextlib.chdir(second), found.watching():
        path(device)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", default=list(PATHS), help=", ".join(PATHS))
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    for name in options.paths:
        print(f"{name}: {walk(PATHS[name], options.device)}", flush=True)


if __name__ == "__main__":
    main()
