"""A card as a page of Markdown. Every word of it follows from the card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from upright.later import LATER_IN_RECIPES, without_defaults
from upright.objective import Objective
from upright.records import Record
from upright.space import Space
from upright.zoo.card import Card

__all__ = ["measured_percent", "paper_percent", "to_markdown"]

_MOST_CLASSES = 10
"""That are named."""


def to_markdown(card: Card) -> str:
    """Write what the model is, what was measured, how it was trained, what it is good for."""
    parts = [
        f"# zoo:{card.name}",
        _what(card),
        *([card.note] if card.note else []),
        "## Numbers",
        _numbers(card),
        *(_how_measured(card, record) for record in card.records),
        "## Training",
        _training(card),
        "## What it is for",
        "To stand beside other classifiers, to try attacks and defences on, and to show what small "
        "rotations and shifts do. It is no product: decide nothing about people or safety by it.",
        "## Limits",
        "\n".join(f"- {limit}" for limit in _limits(card)),
        "## Terms",
        _terms(card),
        "## Files",
        f"SHA-256 of the weights: `{card.weights_digest}`. Kernels and matrices are bfloat16, the "
        "rest float32.",
    ]
    return "\n\n".join(parts) + "\n"


def measured_percent(record: Record, metric: str) -> str:
    """Write an accuracy in percent."""
    return f"{100 * record.measured[metric]:.2f}"


def paper_percent(record: Record, metric: str) -> str:
    """Write the paper's accuracy in percent, with its standard error; empty where it has none."""
    paper = record.reported.get(metric)
    if paper is None:
        return ""
    error = "" if paper.stderr is None else f" ± {100 * paper.stderr:.2f}"
    return f"{100 * paper.mean:.2f}{error}"


def _what(card: Card) -> str:
    named = ", ".join(card.classes[:_MOST_CLASSES])
    more = len(card.classes) - _MOST_CLASSES
    channels, height, width = card.image_shape
    return (
        f"A `{card.recipe.model}`, trained by `{card.recipe.objective}` on `{card.recipe.data}`. "
        f"It takes images in [0, 1], N x {channels} x {height} x {width}, and gives logits of "
        f"{len(card.classes)} classes: {named}{f' and {more} more' if more > 0 else ''}."
    )


def _terms(card: Card) -> str:
    """What the training data allow, which the licence of the program says nothing about."""
    if not card.data_terms:
        return (
            f"What the training data, `{card.recipe.data}`, allow is not known here: ask where "
            "they come from before you use or pass on the weights."
        )
    return (
        f"The weights were made from `{card.recipe.data}`. {card.data_terms} The licence of the "
        "program gives no right that the data do not give."
    )


def _numbers(card: Card) -> str:
    rows = ["| accuracy | measured, % | paper, % | images |", "| --- | ---: | ---: | ---: |"]
    for metric, record in card.measured.items():
        measured, paper = measured_percent(record, metric), paper_percent(record, metric) or "-"
        rows.append(f"| {metric} | {measured} | {paper} | {record.images:,} |")
    return "\n".join(rows)


def _how_measured(card: Card, record: Record) -> str:
    asked = record.evaluation
    metrics = [metric for metric, holder in card.measured.items() if holder is record]
    return (
        f"{', '.join(metrics)}: these weights, computing in {asked['precision']}, on the "
        f"{asked['split']} images of `{record.dataset}`; {_space(record).in_words()}; "
        f"{asked['fill']} fill, {asked['interpolation']} interpolation{_seen(asked)}. "
        f"On {record.hardware}, "
        f"{record.finished[:10]}, commit {record.commit or 'unknown'}."
    )


_RARE = {
    name: default
    for name, default in LATER_IN_RECIPES.items()
    if name not in ("interpolation", "optimizer")
}
"""What most recipes do without: a row would say that it is not there."""


def _training(card: Card) -> str:
    objective, seconds = card.recipe.objective, card.train_seconds
    fields = without_defaults(card.recipe.as_json(), _RARE)
    fields |= {"space": card.recipe.space.in_words()}
    if not fields["drops"]:
        del fields["drops"]
    if isinstance(objective, Objective) and objective.penalty is not None:
        fields["λ"] = objective.weight
    fields["wall time"] = f"{seconds:,.0f} s, shared with runs that trained beside it, if any"
    fields["SHA-256 of the training data"] = card.train_digest or "unknown"
    rows = [f"| {name} | {_in_words(value)} |" for name, value in fields.items()]
    return "\n".join(["| recipe | |", "| --- | --- |", *rows])


def _in_words(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return {"None": "all", "True": "yes", "False": "no"}.get(text, text)


def _limits(card: Card) -> Iterator[str]:
    _, height, width = card.image_shape
    yield (
        f"Images of {height} x {width} pixels. Others have to be scaled to that size, and what "
        "it is worth on them was not measured."
    )
    objective = card.recipe.objective
    if isinstance(objective, Objective) and objective.attack is None:
        yield "Trained without rotations: it is here to be compared with."
    else:
        yield f"Trained for {card.recipe.space.in_words()}, and for no others."
    chains = [card.recipe.space.chain, *(_space(record).chain for record in card.records)]
    known = {name for chain in chains for name in chain.names}
    untried = [words for words, families in _UNTRIED.items() if not known & {*families}]
    yield (
        f"Nothing was trained or measured against {', '.join(untried)} or crafted pixels. Expect "
        "no robustness there."
    )
    yield "An attack tries a finite number of poses: the worst of all may be worse."
    yield f"One run, of seed {card.recipe.seed}. Another seed gives other numbers."
    if any(record.evaluation.get("limit") for record in card.records):
        yield "Not all images were measured: the first ones only, as many as the table says."
    if any(record.reported for record in card.records):
        yield (
            "The paper chose its settings by the accuracy on these test images: on new ones it may "
            "be lower."
        )


_UNTRIED = {
    "noise": (),
    "blur": ("blur",),
    "weather": (),
    "other colours": ("brightness", "contrast", "gamma", "saturation", "hue"),
    "scale": ("zoom", "stretch"),
    "perspective": ("shear", "perspective"),
}
"""What a card warns of, unless one of these families was tried."""


def _seen(asked: dict[str, Any]) -> str:
    return "" if asked.get("view") is None else f", the central {asked['view']} pixels seen"


def _space(record: Record) -> Space:
    return Space.of(record.evaluation["space"])
