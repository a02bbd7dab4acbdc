"""The most robust networks that were measured here, beside what others report: from records alone.

    python benchmarks/leaderboard.py --markdown docs/leaderboard.md

A row is a network, a method and a recipe, over all its seeds; each seed counts once, by its newest
record. Only records of whole test sets count that were asked the paper's question, none of oracles
and none of weights that were rounded. What is shown of a data set are the best by ``grid-775``, and
the best of every network. Reported numbers are the paper's: the best of every network, apart where
it was measured otherwise than it says.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import hardest_tables
import torch
from change_tables import changes
from hardest_tables import Hardest, table
from torch.utils.flop_counter import FlopCounterMode

from upright.data.known import IMAGE_SHAPE, KNOWN
from upright.files import write_whole
from upright.paper import INVARIANCE, paper_method, paper_rows, reported
from upright.paper.cells import by_recipe
from upright.record_files import read, read_folder
from upright.records import Record
from upright.report.compare import estimate
from upright.report.model import Estimate
from upright.report.sections import fill_sections
from upright.train import Plan, Recipe
from upright.train.network import build, is_own_code

RESULTS = Path("results")
MORE = ("continuum/training.jsonl", "stronger/final.jsonl")
"""Records of whole test sets that are not in the folder itself; where they are there."""
HELD_OUT = "stronger/held-out.jsonl"
"""Records of held-out training images, by which recipes are chosen."""
DATA_SETS = ("cifar10", "svhn", "cifar100")
METRIC, FINER = "grid-775", "refine-1000"
SOURCE = "*reported*: [Yang et al. 2019](paper.md), table `{}`"
HEAD = (
    *("network", "trained by", "recipe", "natural", METRIC, FINER, "seeds"),
    *("parameters", "GFLOP", "training, s", "on"),
)
WORDS = {
    "average": "weights averaged ({:g})",
    "batch": "batches of {}",
    "center_crop": "images cropped to {} px",
    "cosine": "learning rate along a cosine",
    "cutout": "cutout of {} px",
    "decay": "learning rate times {:g} again and again",
    "flips": "images not mirrored",
    "held_out": "on nine tenths of the training images",
    "interpolation": "{} interpolation",
    "learning_rate": "learning rate {:g}",
    "mixup": "mixup of up to {:g}",
    "momentum": "momentum {:g}",
    "optimizer": "{}",
    "pretrained": "starts from trained weights",
    "resize": "images resized to {} px",
    "smoothing": "labels smoothed by {:g}",
    "space": "searches `{}`",
    "steps": "{:,} steps",
    "teacher": "taught by another network",
    "view": "view of {} px",
    "warmup": "{:,} steps of warm-up",
    "weight_decay": "weight decay {:g}",
}
"""What a recipe does otherwise than the paper's; what is not here is told by its name."""
UNTOLD = {
    *("data", "decay_every", "drops", "model", "objective", "precision", "seed", "teacher_share"),
}
"""Of no effect on the result, told elsewhere in the row, or part of something that is told; so are
digests."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; accuracies are fractions."""

    network: str
    method: str
    recipe: str
    score: float
    """By which rows are sorted."""
    accuracies: tuple[str, str, str]
    seeds: int
    cost: tuple[str, str] = ("", "")
    """Parameters, and GFLOP of one image's forward pass."""
    training: tuple[str, str] = ("", "")
    """Seconds, and on what."""

    @property
    def cells(self) -> tuple[str, ...]:
        start = (self.network, self.method, self.recipe, *self.accuracies, str(self.seeds))
        return (*start, *self.cost, *self.training)


def ours(dataset: str, records: Iterable[Record]) -> list[Row]:
    """Every network that was measured on a data set, the best first."""
    of_it = [each for each in records if each.dataset == dataset and not each.is_oracle]
    found = by_recipe(INVARIANCE, (each for each in of_it if METRIC in each.measured))
    rows = [_measured(plan, its) for plan, its in found.items() if _on_all_images(plan)]
    return _best_first(rows)


def _on_all_images(plan: Plan) -> bool:
    return all(run.train_images is None for run in plan.runs)


def _measured(plan: Plan, records: Sequence[Record]) -> Row:
    natural, score, finer = (estimate(records, name) for name in ("nat", METRIC, FINER))
    assert score is not None
    shown = [_mean(natural, score.n), _mean(score, score.n), _mean(finer, score.n)]
    return Row(
        network=" + ".join(f"`{run.model}`" for run in plan.runs),
        method=f"`{plan.method}`",
        recipe=recipe_in_words(plan),
        score=score.mean,
        accuracies=(shown[0], shown[1], shown[2]),
        seeds=score.n,
        cost=_cost(plan),
        training=_training(records),
    )


def _mean(found: Estimate | None, seeds: int) -> str:
    """In per cent, with the standard deviation between seeds; of fewer seeds than the row has, how
    many."""
    if found is None:
        return ""
    spread = "" if found.stderr is None else f" ± {100 * found.stderr * found.n**0.5:.2f}"
    of = "" if found.n == seeds else f" ({found.n} of them)"
    return f"{100 * found.mean:.2f}{spread}{of}"


def recipe_in_words(plan: Plan) -> str:
    """Say in what a recipe differs from the paper's for its data set, method and network."""
    differing = [word for run in plan.runs for word in _differences(run)]
    if paper_method(plan) is not None:
        return ", ".join(["the paper's", *differing])
    return ", ".join(differing) or "as the paper's"


def _differences(recipe: Recipe) -> Iterator[str]:
    usual = INVARIANCE.recipe(recipe.data, recipe.objective, recipe.model).as_json()
    for name, value in recipe.as_json().items():
        told = name not in UNTOLD and not name.endswith("_digest")
        if told and value != usual[name]:
            yield WORDS[name].format(value) if name in WORDS else f"{name} {value}"


def _cost(plan: Plan) -> tuple[str, str]:
    if any(is_own_code(run.model) for run in plan.runs):
        return "", ""
    classes = KNOWN[plan.main.data].classes
    found = [_size(run.model, len(run.outputs(classes))) for run in plan.runs]
    parameters, operations = (sum(each) for each in zip(*found, strict=True))
    return f"{parameters:,}", f"{operations / 1e9:.3g}"


@cache
def _size(model: str, outputs: int) -> tuple[int, int]:
    """Parameters, and operations on one image: a multiplication and a sum are two."""
    with torch.random.fork_rng(devices=[]):
        network = build(model, classes=outputs, channels=IMAGE_SHAPE[0]).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, *IMAGE_SHAPE))
    return sum(each.numel() for each in network.parameters()), int(counter.get_total_flops())


def _training(records: Sequence[Record]) -> tuple[str, str]:
    """Mean seconds of the runs that trained alone; without any, of all, and beside how many."""
    known = [record for record in records if record.train_seconds is not None]
    alone = [record for record in known if record.beside == 1]
    its = alone or known
    seconds = fmean(record.train_seconds or 0.0 for record in its)
    beside = {record.beside for record in its}
    counts = sorted(count for count in beside if count is not None)
    if alone:
        words = "alone"
    elif None in beside:
        words = "beside unknown"
    else:
        words = f"1 of {' or '.join(map(str, counts))} side by side"
    return f"{seconds:,.0f} ({words})", ", ".join(dict.fromkeys(each.trained_on for each in its))


def theirs(dataset: str) -> list[Row]:
    """What the paper reports for a data set: of every network the best, the best first.

    What was measured otherwise than it says is apart. Oracles and misprints are left out.
    """
    printed = INVARIANCE.datasets[dataset]
    cells = [row for row in paper_rows() if (row.dataset, row.metric) == (printed, METRIC)]
    names = dict.fromkeys(row.method for row in cells if not INVARIANCE.method(row.method).oracle)
    rows = [row for name in names if (row := _reported(dataset, name)) is not None]
    return _best_of(_best_first(rows), lambda row: (row.network, row.recipe.partition(";")[2]))


def _reported(dataset: str, name: str) -> Row | None:
    """None where the paper has a misprint alone."""
    method = INVARIANCE.method(name)
    natural, score = (reported(dataset, name, metric) for metric in ("nat", METRIC))
    if score is None:
        return None
    caveat = INVARIANCE.caveat(method, METRIC)
    shown = ["" if each is None else f"{100 * each.mean:.2f}" for each in (natural, score)]
    return Row(
        network=_network_in_the_paper(name),
        method=f"`{name}`",
        recipe="; ".join(filter(None, [SOURCE.format(score.table), caveat])),
        score=score.mean,
        accuracies=(shown[0], shown[1], ""),
        seeds=INVARIANCE.seeds,
    )


def _network_in_the_paper(name: str) -> str:
    """By its own name: the paper does not print how deep networks of other kinds are."""
    if name not in INVARIANCE.methods:
        return f"`{Recipe.model}`"
    return re.split(r"[*(]", name)[0]


def _best_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.score, reverse=True)


_Key = TypeVar("_Key")


def _best_of(rows: Iterable[Row], kind: Callable[[Row], _Key]) -> list[Row]:
    """The first row of every kind."""
    first: dict[_Key, Row] = {}
    for row in rows:
        first.setdefault(kind(row), row)
    return list(first.values())


def leaderboard(dataset: str, records: Iterable[Record], *, rows: int) -> str:
    """The best so many rows and the best of every network, with what is reported, as Markdown."""
    found = ours(dataset, records)
    shown = found[:rows]
    shown += [row for row in _best_of(found, lambda row: row.network) if row not in shown]
    every = _best_first([*shown, *theirs(dataset)])
    total = f"{len(shown)} of {len(found)} networks, methods and recipes that were measured."
    return f"{table(HEAD, [row.cells for row in every], text=3, numbers=6)}\n\n{total}"


def sections(
    records: Sequence[Record],
    held_out: Sequence[Record],
    hardest: Iterable[Hardest],
    *,
    rows: int = 10,
) -> Mapping[str, str]:
    """What the documentation shows, by the names of its sections."""
    boards = {name: leaderboard(name, records, rows=rows) for name in DATA_SETS}
    boards["changes"] = changes(held_out, _differences)
    return boards | hardest_tables.sections(hardest)


def read_all(results: Path) -> tuple[list[Record], list[Record], list[Hardest]]:
    """All records that may count, those to choose by, and what is known of the images that fail."""
    records = list(read_folder(results).records)
    for name in MORE:
        records += _read(results / name)
    hardest = [Hardest.read(path) for path in sorted(results.glob("hardest/*.json"))]
    return records, _read(results / HELD_OUT), hardest


def _read(path: Path) -> list[Record]:
    return list(read(path).records) if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add: Any = parser.add_argument
    add("--markdown", type=Path, required=True, help="write the tables into this page")
    add("--results", type=Path, default=RESULTS, help="the folder of records")
    options = parser.parse_args(arguments)
    page = fill_sections(options.markdown.read_text(), sections(*read_all(options.results)))
    write_whole(options.markdown, page.encode())


if __name__ == "__main__":
    main()
