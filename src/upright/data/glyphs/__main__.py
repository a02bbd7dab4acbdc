"""Draw the contact sheet of the glyphs: `python -m upright.data.glyphs OUT.png`.

A block of rows for each spread, from none to wide; a column for each digit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from upright.data.glyphs import MILD, NONE, WIDE, Spread, glyphs

__all__ = ["contact_sheet", "main"]

_SPREADS = {"no spread": NONE, "mild, the default": MILD, "wide": WIDE}
_ROWS = 2  # of each spread
_ENLARGEMENT = 3
_MARGIN = 24  # px around the sheet
_GAP = 4  # px between images
_CAPTION = 30  # px above each block


def contact_sheet() -> Image.Image:
    """The same glyphs under each spread, so that the eye sees only the pose change."""
    blocks = [(_caption(name, spread), _block(spread)) for name, spread in _SPREADS.items()]
    height, width = blocks[0][1].shape[:2]
    step = height + _CAPTION
    sheet = Image.new("RGB", (width + 2 * _MARGIN, step * len(blocks) + 2 * _MARGIN), "white")
    pen = ImageDraw.Draw(sheet)
    for index, (caption, block) in enumerate(blocks):
        top = _MARGIN + index * step
        pen.text((_MARGIN, top), caption, fill="black", font=ImageFont.load_default(16))
        sheet.paste(Image.fromarray(block), (_MARGIN, top + _CAPTION - _GAP))
    return sheet


def _caption(name: str, spread: Spread) -> str:
    return f"{name}: ±{spread.max_rotation:g}°, ±{spread.max_shift:g} px"


def _block(spread: Spread) -> NDArray[np.uint8]:
    data = glyphs(300, spread=spread)
    images = data.images.repeat_interleave(_ENLARGEMENT, 2).repeat_interleave(_ENLARGEMENT, 3)
    framed = np.pad(
        images.permute(0, 2, 3, 1).numpy(),
        ((0, 0), (0, _GAP), (0, _GAP), (0, 0)),
        constant_values=255,
    )
    columns = [framed[(data.labels == digit).numpy()][:_ROWS] for digit in range(10)]
    return np.concatenate([np.concatenate(list(column), axis=0) for column in columns], axis=1)


def main(arguments: list[str]) -> int:
    """Write the sheet to the one path given; return the exit code."""
    if len(arguments) != 1:
        print("usage: python -m upright.data.glyphs OUT.png", file=sys.stderr)
        return 2
    contact_sheet().save(Path(arguments[0]), optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
