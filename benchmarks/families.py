"""Which family a network was trained on, by which it is attacked.

    python benchmarks/families.py --train --measure --runs runs/families
    python benchmarks/families.py --markdown docs/families.md

Trains ``std*`` and ``KL(rob, Wo-10)`` by the paper's recipe on larger spaces than the paper's, side
by side; evaluates them and the zoo's networks under every family alone and under chains; and adds
the records to ``results/families.jsonl``, from which the tables are made. The same command goes on
where it was stopped. One NVIDIA H200 takes about ten minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from upright.evaluation import Question
from upright.families import FAMILIES, Chain
from upright.measure import Loaded, load, measure
from upright.objective import parse_objective
from upright.paper import with_reported
from upright.record_files import append, read
from upright.records import Record
from upright.report.sections import fill_sections
from upright.sources import load_pretrained
from upright.space import PAPER, Space
from upright.train import Recipe, train_together

METHODS = ("std*", "KL(rob, Wo-10)")
ZOO = (
    *("std-star", "kl-rob-wo10"),
    *("at-rob-wo10", "l2-rob-wo10", "kl-nat-rnd", "l2-nat-rnd", "kl-c-mix-spgd"),
)
"""Of CIFAR-10; the first ones were trained as the runs that are made here are."""
ZOOMED = Space.of("shift(3px) rotate(30) zoom(0.8..1.25)")
LIT = Space.of("shift(3px) rotate(30) zoom(0.8..1.25) brightness(0.2) contrast(0.8..1.25)")
CHAINS = {PAPER: "grid-775", ZOOMED: "grid-5x5x31x3", LIT: "grid-3x3x7x3x3x3"}
"""The spaces of the table of families by families, with the attack under which each is measured."""
VALUES = {1: 31, 2: 11}
"""Of each axis, by how many a family has: the grid of a family alone."""


def alone() -> Iterator[Question]:
    """Every family by itself, within its usual limits."""
    for family in FAMILIES.values():
        counts = "x".join([str(VALUES[len(family.axes)])] * len(family.axes))
        yield Question.of([f"grid-{counts}"], space=Space(Chain((family(),))))


def chains() -> Iterator[Question]:
    """The spaces that networks are trained on."""
    for space, attack in CHAINS.items():
        yield Question.of([attack], space=space)


def recipes(options: argparse.Namespace) -> dict[Path, Recipe]:
    """The runs that are not in the zoo, by their folders."""
    return {
        options.runs / f"{number}-{place}": Recipe(
            objective=parse_objective(method),
            data=options.data,
            model=options.model,
            space=space,
            steps=options.steps,
            train_images=options.images,
            precision="bfloat16" if options.device == "cuda" else "float32",
        )
        for place, space in enumerate((ZOOMED, LIT))
        for number, method in enumerate(METHODS)
    }


def measure_all(model: str, questions: Sequence[Question], options: argparse.Namespace) -> None:
    """Evaluate a model under each space, and record what has not been yet."""
    found = load_pretrained(model).finished
    assert found is not None
    run = found()
    known = {_question(record) for record in _records(options.results)}
    loaded: Loaded | None = None
    for question in questions:
        if (run.plan.hash, str(question.space), _attack(question)) in known:
            continue
        asked = replace(
            question,
            only_accuracy=True,
            limit=options.images,
            precision="float16" if options.device == "cuda" else "float32",
        )
        device = torch.device(options.device)
        loaded = loaded or load(model, options.data, asked, device=device)
        record = measure(replace(loaded, question=asked)).record
        append(options.results, with_reported(record, also_called=options.data), once=True)
        print(record.method, asked.space, record.measured, flush=True)


def _attack(question: Question) -> str:
    (attack,) = question.attacks
    return attack


def _records(path: Path) -> tuple[Record, ...]:
    return read(path).records if path.exists() else ()


def _question(record: Record) -> tuple[str, str, str]:
    (attack,) = set(record.measured) - {"nat"}
    return record.recipe_hash, str(Space.of(record.evaluation["space"])), attack


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Both tables as Markdown, accuracies in per cent."""
    return {
        "families-alone": _table(
            records, [*alone(), Question.of([CHAINS[ZOOMED]], space=ZOOMED)], _of_the_paper(records)
        ),
        "families-by-families": _by_families(records),
    }


def _of_the_paper(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Networks that were trained on the paper's space, as titles and recipe hashes."""
    found = {
        record.recipe_hash: record.method
        for record in records
        if record.recipe["space"] == str(PAPER)
    }
    return [(method, digest) for digest, method in found.items()]


def _table(
    records: Sequence[Record], questions: Sequence[Question], networks: Sequence[tuple[str, str]]
) -> str:
    """A row for each space, a column for each network; the last column has the attack."""
    by = {_question(record): record for record in records}
    head = ["attacked by", *(title for title, _ in networks), "grid"]
    lines = [_row(head), _row(["---", *["---:"] * len(networks), "---"])]
    lines.append(_row(["(as it is)", *(_natural(records, digest) for _, digest in networks), ""]))
    for question in questions:
        space, attack = str(question.space), _attack(question)
        cells = [_percent(by.get((digest, space, attack)), attack) for _, digest in networks]
        lines.append(_row([f"`{space}`", *cells, f"`{attack}`"]))
    return "\n".join(lines)


def _by_families(records: Sequence[Record]) -> str:
    networks = {
        (record.method, record.recipe["space"]): record.recipe_hash
        for record in records
        if record.method in METHODS
    }
    columns = [
        (f"{method} on {' '.join(space.chain.names)}", networks[method, str(space)])
        for method in METHODS
        for space in CHAINS
        if (method, str(space)) in networks
    ]
    return _table(records, list(chains()), columns)


def _natural(records: Sequence[Record], digest: str) -> str:
    first = next((record for record in records if record.recipe_hash == digest), None)
    return _percent(first, "nat")


def _percent(record: Record | None, metric: str) -> str:
    return "" if record is None else f"{100 * record.measured[metric]:.2f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    if options.train:
        todo = recipes(options)
        begun = any(path.exists() for path in todo)
        train_together(todo, device=options.device, resume=begun)
    if options.measure:
        zoo = [f"zoo:cifar10/{name}" for name in ZOO] if options.data == "cifar10" else []
        for model in [*zoo[: len(METHODS)], *map(str, recipes(options))]:
            measure_all(model, list(chains()), options)
        for model in zoo:
            measure_all(model, [*alone(), Question.of([CHAINS[ZOOMED]], space=ZOOMED)], options)
    if options.markdown is not None:
        page = options.markdown
        page.write_text(fill_sections(page.read_text(), tables(_records(options.results))))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--train", action="store_true", help="train what is missing")
    add("--measure", action="store_true", help="evaluate what is not recorded yet")
    add("--markdown", type=Path, help="write the tables into this page")
    add("--runs", type=Path, default=Path("runs/families"))
    add("--results", type=Path, default=Path("results/families.jsonl"))
    add("--data", default="cifar10")
    add("--model", default="resnet32")
    add("--steps", type=int, default=80_000)
    add("--images", type=int, help="the first so many of training and test images only")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


if __name__ == "__main__":
    main()
