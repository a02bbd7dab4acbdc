"""Models that answered to the same images, each beside the one that is right most often."""

from __future__ import annotations

import torch

from upright.intervals import Difference, difference
from upright.report.exhibition import Exhibition, SavedModel, titles
from upright.report.page.sheet import Heading, Sheet, SheetCell

__all__ = ["side_by_side"]

_NOTE = (
    "Differences to the best of them are in points, with 95 % intervals (Bonett and Price 2012). "
    "All models were asked about the same images, so these tell more than an interval for each by "
    "itself; of other seeds they say nothing. Which is the best was seen on these images, too, "
    "which favours it a little. Counted is where a model is right and the best one is not, and the "
    "other way."
)


def side_by_side(exhibition: Exhibition) -> Sheet | None:
    """Lay out the models of a folder, the best under its grid first; None of fewer than two."""
    named = list(zip(exhibition.models, titles(exhibition.models), strict=True))
    if len(named) < 2:
        return None
    named.sort(key=lambda pair: -pair[0].grid_correct.mean())
    best = named[0][0]
    headings = (
        Heading("model", number=False),
        *(Heading(text, "as they are") for text in ("right, %", "to the best")),
        *(Heading(text, best.attack) for text in ("right, %", "to the best")),
        *(Heading(text, best.attack) for text in ("right alone", "best alone")),
    )
    images = len(best.grid_correct)
    return Sheet(
        f"side by side {exhibition.title}",
        f"Side by side on {images:,} images of {exhibition.title}",
        headings,
        tuple((SheetCell(title, order=title), *_cells(model, best)) for model, title in named),
        notes=(_NOTE,),
    )


def _cells(model: SavedModel, best: SavedModel) -> list[SheetCell]:
    natural, attacked = (
        difference(torch.as_tensor(one), torch.as_tensor(other))
        for one, other in (
            (model.natural_correct, best.natural_correct),
            (model.grid_correct, best.grid_correct),
        )
    )
    shares = [float(each.mean()) for each in (model.natural_correct, model.grid_correct)]
    accuracies = [SheetCell(f"{100 * share:.2f}", order=share) for share in shares]
    if model is best:
        own = [SheetCell("") for _ in range(4)]
        return [accuracies[0], own[0], accuracies[1], *own[1:]]
    alone = [attacked.first_alone, attacked.second_alone]
    counts = [SheetCell(f"{count:,}", order=count) for count in alone]
    return [accuracies[0], _points(natural), accuracies[1], _points(attacked), *counts]


def _points(found: Difference) -> SheetCell:
    interval = found.interval
    between = f"{_signed(interval.low)} to {_signed(interval.high)}"
    return SheetCell(_signed(found.share), order=found.share, detail=between)


def _signed(share: float) -> str:
    return f"{'−' if share < 0 else '+'}{abs(100 * share):.2f}"
