"""Pictures from outside: the one place that opens them.

Pillow knows some forty formats by their content, whatever a file is called, and one of them,
PostScript, is a program that it hands to Ghostscript. So the formats are named here: those that
this process decodes by itself.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

__all__ = ["open_picture"]

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 1 << 26
"""Of one picture: few bytes may stand for any number, and all are decoded before a resize."""


def open_picture(path: Path) -> Image.Image:
    """Open a picture: its size is known and bounded, and nothing of it is decoded yet."""
    try:
        picture = Image.open(path, formats=_FORMATS)
    # A damaged file can make Pillow raise nearly anything.
    except Exception as error:
        raise ValueError(
            f"{path}: cannot be read as an image ({', '.join(_FORMATS)}); mend or remove it"
        ) from error
    if picture.width * picture.height > _MOST_PIXELS:
        picture.close()
        raise ValueError(f"{path}: {picture.width} x {picture.height} px; shrink it first")
    return picture
