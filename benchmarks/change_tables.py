"""What each change of a recipe adds, on training images that were held out: a table of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from gpu_networks import operations, random_data
from hardest_tables import table

from upright.records import Record
from upright.train import Recipe

HEAD = ("change", "natural", "grid-775", "more", "seeds", "GFLOP")
METRIC = "grid-775"


@dataclass(frozen=True)
class Mean:
    """One recipe over its seeds; accuracies are fractions."""

    natural: float
    worst: float
    seeds: int
    operations: float
    """Of a training step, for each image of its batch."""

    @property
    def cells(self) -> tuple[str, ...]:
        shares = (f"{100 * share:.2f}" for share in (self.natural, self.worst))
        return (*shares, "", str(self.seeds), f"{self.operations / 1e9:.2f}")


def changes(records: Iterable[Record], differences: Callable[[Recipe], Iterator[str]]) -> str:
    """Every recipe beside the one that most have in common, the most robust first.

    In what a recipe differs from the paper's, ``differences`` says.
    """
    by_words: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if record.evaluation.get("split") == "held-out" and METRIC in record.measured:
            by_words.setdefault(_words(record, differences), []).append(record)
    if not by_words:
        return "Nothing was measured yet."
    counts = Counter(word for words in by_words for word in words)
    common = [word for word, count in counts.items() if 2 * count > len(by_words)]
    rows = {
        ", ".join(word for word in words if word not in common): _mean(its)
        for words, its in by_words.items()
    }
    base = rows.pop("")
    lines = [("none", *base.cells), *_lines(rows, base)]
    return f"{table(HEAD, lines, text=1, numbers=5)}\n\nApart from that: {', '.join(common)}."


def _lines(rows: Mapping[str, Mean], base: Mean) -> Iterator[tuple[str, ...]]:
    for change, mean in sorted(rows.items(), key=lambda row: -row[1].worst):
        natural, worst, _, *rest = mean.cells
        yield change, natural, worst, f"{100 * (mean.worst - base.worst):+.2f}", *rest


def _words(record: Record, differences: Callable[[Recipe], Iterator[str]]) -> tuple[str, ...]:
    recipe = Recipe.from_json(record.recipe)
    return (f"`{recipe.objective}`", f"`{recipe.model}`", *differences(recipe))


def _mean(records: Sequence[Record]) -> Mean:
    """Each seed counts once, by its newest record."""
    newest = {each.seed: each for each in sorted(records, key=lambda each: each.finished)}.values()
    return Mean(
        fmean(each.measured["nat"] for each in newest),
        fmean(each.measured[METRIC] for each in newest),
        len(newest),
        _operations(Recipe.from_json(records[0].recipe)),
    )


def _operations(recipe: Recipe) -> float:
    """Count them in a step of two images; a multiplication and a sum are two."""
    few = replace(recipe, batch=2, held_out=False, precision="float32")
    cpu = torch.device("cpu")
    return operations(few, random_data(8, 32, cpu), cpu) / few.batch
