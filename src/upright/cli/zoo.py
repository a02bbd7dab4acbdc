"""``upright zoo list|show|add``: trained networks, their cards, and how new ones get there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from upright import zoo
from upright.checks import check_at_least_1
from upright.cli.messages import is_watched, say
from upright.cli.options import parse_device, writable
from upright.measure import add_to_zoo
from upright.paper import with_reported
from upright.terminal import plain_console, printable, tell
from upright.zoo.entry import ENDINGS
from upright.zoo.text import measured_percent, paper_percent

__all__ = ["add", "list_models", "show"]


def list_models() -> None:
    """List the models of the zoo, with what was measured and what the paper reports."""
    cards = []
    for name in zoo.names():
        try:
            cards.append(zoo.card(name))
        except ValueError as error:  # one that is damaged costs no other
            say(f"warning: {error}")
    if not cards:
        print("No model is in this installation; `upright zoo add` makes one from a run.")
        return
    width = plain_console().width
    column = max(len(_title(card)) for card in cards)
    for card in cards:
        for line in _lines(card, width, column):
            tell(line)
    plain_console().print("\nAccuracies in percent; in brackets the paper's, with standard error.")


def show(name: Annotated[str, Positional, arg(metavar="NAME")], /) -> None:
    """Print the card of a model as Markdown: training, numbers, limits.

    Args:
        name: Of the model, as in cifar10/kl-rob-wo10.
    """
    print(printable(zoo.to_markdown(zoo.card(name.removeprefix("zoo:"))), keep="\n"), end="")


def add(
    run: Annotated[Path, Positional, arg(metavar="RUN|FILE")],
    /,
    *,
    into: Annotated[Path, arg(metavar="DIR")],
    name: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    attack: UseAppendAction[
        Annotated[tuple[str, ...], arg(metavar="NAME", help_behavior_hint="")]
    ] = (),
    limit: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None,
    precision: Literal["float32", "float16", "bfloat16"] = "float32",
    compiled: Annotated[bool, arg(name="compile")] = False,
    device: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    note: Annotated[str, arg(metavar="TEXT", help_behavior_hint="")] = "",
) -> None:
    """Pack a finished run in bfloat16, measure what was packed, and write its files with a card.

    Or take an entry that others packed, from its files.

    Args:
        run: A folder of `upright train`; or a file of an entry, its card or its weights.
        into: The folder of the zoo. UPRIGHT_ZOO=DIR lets other commands look there.
        name: DATASET/NAME; without, made of the recipe, as in cifar10/kl-rob-wo10.
        attack: Measured beside the natural accuracy, may be given several times; without, grid-775.
        limit: Measure the first N test images only; the card says so.
        precision: Of the network while it is measured.
        compiled: Let PyTorch compile it for that, which pays where it is large.
        device: Where to compute, such as cpu or cuda; a GPU where there is one.
        note: What else the card is to say, such as of which seeds this is the best.
    """
    check_at_least_1(limit=limit)
    writable(into / "x" / "x.json")
    if run.suffix in ENDINGS and not run.is_dir():
        if attack or limit or precision != "float32" or compiled or device or note:
            raise ValueError(
                f"{run} is of an entry, which brings its numbers and its note: nothing is "
                "measured, so give --into and --name alone"
            )
        _tell(zoo.take(run, into, name=name))
        return
    entry = add_to_zoo(
        run,
        into,
        name=name,
        attacks=attack or ("grid-775",),
        limit=limit,
        precision=precision,
        compiled=compiled,
        device=parse_device(device),
        note=note,
        beside=with_reported,
        progress=is_watched(),
    )
    _tell(entry)


def _tell(entry: zoo.Entry) -> None:
    kilobytes = entry.weights_file.stat().st_size / 1000
    tell(f"{entry.card_file}, and {kilobytes:,.0f} kB of weights beside it")


def _title(card: zoo.Card) -> str:
    return f"zoo:{card.name}"


def _lines(card: zoo.Card, width: int, column: int) -> list[str]:
    """A model in as few lines as fit: what is to be copied, and every number, stays whole."""
    images = max(record.images for record in card.records)
    recipe = f"{card.recipe.objective}, {card.recipe.model}"
    numbers = [_number(card, metric) for metric in card.measured]
    head = _flow([_title(card).ljust(column), recipe], width)
    return [line.rstrip() for line in (*head, *_flow(["", *numbers, f"{images:,} images"], width))]


def _flow(parts: Sequence[str], width: int) -> list[str]:
    """Set parts beside each other while there is room, and on new lines, indented, after that."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]}  {part}"
        if len(longer) <= width or not lines[-1].strip():
            lines[-1] = longer
        else:
            lines.append(f"  {part}")
    return lines


def _number(card: zoo.Card, metric: str) -> str:
    record = card.measured[metric]
    paper = paper_percent(record, metric)
    return f"{metric} {measured_percent(record, metric)}" + (f" ({paper})" if paper else "")
