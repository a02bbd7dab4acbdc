"""Images as the page holds them: small ones pixel by pixel, large ones scaled down, as JPEG."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from upright.report.exhibition import Array, Shown

__all__ = ["Held", "hold"]

_SMALL = 96
"""Pixels along the longer side, up to which images stay as they are."""
_LONGEST = 384
"""Pixels along the longer side that a page can show, and move at once."""
_QUALITY = 90


@dataclass(frozen=True)
class Held:
    """Images of a page, which a script can move."""

    pixels: Array | None
    """uint8, N x C x H x W; None where there are pictures."""
    pictures: tuple[str, ...]
    """Each as the address of a JPEG that is all of it."""
    shape: tuple[int, ...]
    """N x C x H x W, as they are held."""
    scale: float
    """Pixels that are held for one of the images'."""


def hold(shown: Shown) -> Held:
    """Give the images of an exhibition as its page is to hold them."""
    count, channels, height, width = shown.images.shape
    longer = max(height, width)
    if longer <= _SMALL or channels not in (1, 3):
        return Held(shown.images, (), shown.images.shape, 1.0)
    scale = min(1.0, _LONGEST / longer)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    pictures = tuple(_address(image, size) for image in shown.images)
    return Held(None, pictures, (count, channels, size[1], size[0]), scale)


def _address(image: Array, size: tuple[int, int]) -> str:
    picture = Image.fromarray(image[0] if len(image) == 1 else np.moveaxis(image, 0, -1))
    if picture.size != size:
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_QUALITY, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
