"""A picture of Pillow as it is seen, in one way wherever it comes from: a folder or a data set."""

from __future__ import annotations

from PIL import Image, ImageOps

__all__ = ["as_seen", "check_depth"]


def check_depth(picture: Image.Image, *, called: str = "a picture") -> None:
    """Check that a picture has 8 bits a channel: of more, Pillow would clip values at 255."""
    if picture.mode.startswith(("I", "F")):
        raise ValueError(
            f"{called}: mode {picture.mode}, more than 8 bits a channel; save it with 8"
        )


def as_seen(picture: Image.Image) -> Image.Image:
    """Give a picture as it is displayed: turned as its EXIF says, grey, or red, green and blue."""
    check_depth(picture)
    turned = ImageOps.exif_transpose(picture)
    if "transparency" in turned.info:  # else Pillow complains of what is lost
        return turned.convert("RGBA").convert("RGB")
    return turned.convert("L" if turned.mode in ("1", "L") else "RGB")
