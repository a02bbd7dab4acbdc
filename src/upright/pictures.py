"""Pictures of Pillow: how those from outside are opened, and how any is seen.

Pillow knows some forty formats by their content, whatever a file is called, and one of them,
PostScript, is a program that it hands to Ghostscript. So the formats are named here: those that
this process decodes by itself. Nothing else opens a picture from outside.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageOps

from upright.checks import warn_that_transparent_is_white

__all__ = ["as_seen", "open_picture"]

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 1 << 26
"""Of one picture: few bytes may stand for any number, and all are decoded before a resize."""


def open_picture(path: Path) -> Image.Image:
    """Open a picture: its size and depth are known and bounded, and nothing is decoded yet."""
    try:
        picture = Image.open(path, formats=_FORMATS)
    # A damaged file can make Pillow raise nearly anything.
    except Exception as error:
        raise ValueError(
            f"{path}: cannot be read as an image ({', '.join(_FORMATS)}); mend or remove it"
        ) from error
    try:
        if picture.width * picture.height > _MOST_PIXELS:
            raise ValueError(f"{path}: {picture.width} x {picture.height} px; shrink it first")
        _check_depth(picture, str(path))
    except ValueError:
        picture.close()
        raise
    return picture


def as_seen(picture: Image.Image, *, called: str = "a picture") -> Image.Image:
    """Give a picture as it is displayed: turned as its EXIF says, grey, or red, green and blue.

    What is transparent is white, as in viewers: the colours that lie below it are nobody's.
    It must have 8 bits a channel: of more, Pillow would clip values at 255.
    """
    _check_depth(picture, called)
    try:
        turned = ImageOps.exif_transpose(picture)
        mode = "L" if turned.mode in ("1", "L") else "RGB"
        shown = turned.convert("RGBA" if turned.has_transparency_data else mode)
    # A damaged file can make a decoder raise nearly anything.
    except Exception as error:
        raise ValueError(f"{called}: cannot be read as an image; mend or remove it") from error
    return _on_white(shown) if shown.mode == "RGBA" else shown


def _check_depth(picture: Image.Image, called: str) -> None:
    if picture.mode.startswith(("I", "F")):
        raise ValueError(
            f"{called}: mode {picture.mode}, more than 8 bits a channel; save it with 8"
        )


def _on_white(picture: Image.Image) -> Image.Image:
    """Lay a picture with transparent parts on white, and say so."""
    if picture.getchannel("A").getextrema() != (255, 255):
        warn_that_transparent_is_white()
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")
