"""What each change of a recipe adds, on training images that were held out: tables of records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from gpu_networks import operations, random_data
from hardest_tables import table

from upright.paper import INVARIANCE
from upright.paper.differences import differences
from upright.records import Record
from upright.report.compare import estimate
from upright.report.model import Estimate
from upright.train import Recipe

HEAD = ("change", "natural", "grid-775", "more", "seeds", "GFLOP")
METRIC = "grid-775"


def changes(records: Iterable[Record]) -> str:
    """Give a table for each data set and network, variants of it and all, by their first records.

    What a variant differs in stands behind a hyphen, as in ``resnet32-blur``.
    """
    apart: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.evaluation.get("split") == "held-out" and METRIC in record.measured:
            network = record.model.partition("-")[0]
            apart.setdefault((record.dataset, network), []).append(record)
    tables = (_beside_the_common(dataset, its) for (dataset, _), its in apart.items())
    return "\n\n".join(tables) or "Nothing was measured yet."


def _beside_the_common(dataset: str, records: Iterable[Record]) -> str:
    """Every recipe beside the one that most have in common, the most robust first."""
    by_words: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        by_words.setdefault(_words(record), []).append(record)
    counts = Counter(word for words in by_words for word in words)
    common = [word for word, count in counts.items() if 2 * count > len(by_words)]
    named = {
        ", ".join(word for word in words if word not in common): its
        for words, its in by_words.items()
    }
    base = named.pop("")
    least = _worst(base)
    ordered = sorted(named.items(), key=lambda row: -_worst(row[1]))
    lines = [_line("none", base, "")]
    lines += [_line(name, its, f"{100 * (_worst(its) - least):+.2f}") for name, its in ordered]
    rest = ", ".join((INVARIANCE.datasets[dataset], *common))
    return f"{table(HEAD, lines, text=1, numbers=5)}\n\nApart from that: {rest}."


def _line(change: str, records: Sequence[Record], more: str) -> tuple[str, ...]:
    """One recipe over its seeds."""
    natural, worst = _mean(records, "nat"), _mean(records, METRIC)
    shares = (f"{100 * each.mean:.2f}" for each in (natural, worst))
    operations = _operations(Recipe.from_json(records[0].recipe))
    return change, *shares, more, str(worst.n), f"{operations / 1e9:.2f}"


def _worst(records: Sequence[Record]) -> float:
    return _mean(records, METRIC).mean


def _mean(records: Sequence[Record], metric: str) -> Estimate:
    found = estimate(records, metric)
    assert found is not None  # by what is let into the table
    return found


def _words(record: Record) -> tuple[str, ...]:
    recipe = Recipe.from_json(record.recipe)
    words = map(in_markdown, differences(INVARIANCE, recipe))
    return (f"`{recipe.objective}`", f"`{recipe.model}`", *words)


def in_markdown(difference: str) -> str:
    """Set the text of a space as code: one can type it."""
    return re.sub("^searches (.+)", r"searches `\1`", difference)


def _operations(recipe: Recipe) -> float:
    """Count those of a training step for each image; a multiplication and a sum are two."""
    few = replace(recipe, batch=2, held_out=False, precision="float32")
    cpu = torch.device("cpu")
    return operations(few, random_data(8, 32, cpu), cpu) / few.batch
