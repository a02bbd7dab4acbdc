"""Models that answered to the same images, each beside the one that is right most often."""

from __future__ import annotations

import torch

from upright.intervals import Difference, difference
from upright.report.exhibition import Array, Exhibition, SavedModel, titles
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
    natural, attacked = _share(model.natural_correct), _share(model.grid_correct)
    if model is best:
        nothing = SheetCell("")
        return [natural, nothing, attacked, nothing, nothing, nothing]
    apart = _beside(model.grid_correct, best.grid_correct)
    alone = (apart.first_alone, apart.second_alone)
    return [
        *(natural, _points(_beside(model.natural_correct, best.natural_correct))),
        *(attacked, _points(apart)),
        *(SheetCell(f"{count:,}", order=count) for count in alone),
    ]


def _share(right: Array) -> SheetCell:
    return SheetCell(f"{100 * right.mean():.2f}", order=float(right.mean()))


def _beside(right: Array, best: Array) -> Difference:
    return difference(torch.as_tensor(right), torch.as_tensor(best))


def _points(found: Difference) -> SheetCell:
    interval = found.interval
    between = f"{_signed(interval.low)} to {_signed(interval.high)}"
    return SheetCell(_signed(found.share), order=found.share, detail=between)


def _signed(share: float) -> str:
    return f"{'−' if share < 0 else '+'}{abs(100 * share):.2f}"
