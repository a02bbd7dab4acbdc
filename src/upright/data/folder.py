"""Images from a folder with one sub-folder for each class, or with such folders for its parts.

A folder whose sub-folders are `train` and `test` (or `val`), each with a sub-folder for each class,
has these two parts, and the classes are those of both. Any other folder is one part, whichever is
asked for.

The sorted names of the sub-folders are the classes, also of those that are empty. Folders inside of
a class are not read, nor are files that are no pictures by their names: a warning tells of them.
Images are turned upright as their EXIF orientation says, and converted to RGB. They come one from
each class in turn, so that the first n are spread over the classes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from upright.callers import warn_caller
from upright.checks import SuspiciousInput
from upright.data.being_read import BeingRead
from upright.data.images import LabelledImages
from upright.data.registry import Request, Split, data_set
from upright.data.unpacked_size import check_unpacked_size
from upright.pictures import as_seen, open_picture

__all__ = ["read_folder"]

_SUFFIXES = (
    *(".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff"),
    ".webp",
)
_OF_SYSTEMS = ("desktop.ini", "thumbs.db")
"""What file managers leave beside pictures."""


@dataclass(frozen=True)
class _Entry:
    path: Path
    label: int


@dataclass(frozen=True)
class _Inside:
    """What lies in a folder, sorted; what is hidden does not count."""

    pictures: Sequence[Path] = ()
    folders: Sequence[Path] = ()
    others: Sequence[Path] = ()


def read_folder(
    path: str | Path,
    *,
    split: Split = "test",
    resize: int | None = None,
    center_crop: int | None = None,
    limit: int | None = None,
) -> LabelledImages:
    """Read `path/CLASS/IMAGE`, or `path/PART/CLASS/IMAGE`, all images in one size.

    Args:
        path: The folder that holds one sub-folder for each class, or the folders of the parts.
        split: Which part, of a folder that has parts; for `test`, `val` where there is no `test`.
        resize: Shorter side in pixels (bilinear, antialiased); None to keep the size.
        center_crop: Side in pixels of the central square, cut after resizing; None for no crop.
        limit: Read only so many images, from each class in turn; None for all.
    """
    data = _being_read(path, split=split, resize=resize, center_crop=center_crop, limit=limit)
    return LabelledImages(data.images, data.labels, data.classes)


def _being_read(
    path: str | Path,
    *,
    split: Split,
    resize: int | None,
    center_crop: int | None,
    limit: int | None,
) -> BeingRead:
    """As ``read_folder``, but of the images only the first is read yet."""
    for name, side in (("resize", resize), ("center_crop", center_crop), ("limit", limit)):
        if side is not None and side < 1:
            raise ValueError(f"{name} is {side}: give at least 1, or leave it out")
    path = Path(path)
    parts = _parts(path) or {split: path}
    classes = sorted({folder.name for part in parts.values() for folder in _class_folders(part)})
    folders = [parts[split] / name for name in classes]
    inside = [_class_in(folder) if folder.is_dir() else _Inside() for folder in folders]
    _tell_what_is_left_out(inside)
    entries = _in_turn([each.pictures for each in inside])[:limit]
    if not entries:
        raise ValueError(
            f"{parts[split]}: no images in its sub-folders; put those of each class into one"
        )
    labels = torch.tensor([entry.label for entry in entries])
    paths = [entry.path for entry in entries]
    first = _read_image(paths[0], resize, center_crop)

    def look_at(places: Sequence[int]) -> None:
        """Say what cannot be opened before any is read, and not after hours."""
        some = [paths[place] for place in places]
        for each in some:
            open_picture(each).close()
        _check_unpacked_size(some, first.numel() * len(some))

    def read_one(place: int) -> Tensor:
        image = _read_image(paths[place], resize, center_crop) if place else first
        _check_same_size(paths[place], image, paths[0], first)
        return image

    return BeingRead(read_one, first.shape, labels, tuple(classes), look_at=look_at)


def _has_parts(location: str) -> bool:
    return bool(_parts(Path(location)))


@data_set(
    "folder:DIR",
    resizes=True,
    has_parts=_has_parts,
    about="a sub-folder for each class, or train/ and test/ with these",
)
def _folder(request: Request) -> LabelledImages:
    return _being_read(
        request.location,
        split=request.split,
        resize=request.resize,
        center_crop=request.center_crop,
        limit=request.limit,
    )


def _parts(path: Path) -> dict[Split, Path]:
    """The folders of a folder's parts; none where its sub-folders are classes."""
    folders = {folder.name: folder for folder in _sub_folders(path)}
    if not folders.keys() <= {"train", "test", "val"}:
        return {}
    # A class may be called like a part, but then it holds images.
    parts = {name: folder for name, folder in folders.items() if _holds_classes(folder)}
    test = parts.get("test", parts.get("val"))
    if test is None or "train" not in parts:
        return {}
    return {"train": parts["train"], "test": test}


def _holds_classes(folder: Path) -> bool:
    inside = _inside(folder)
    return bool(inside.folders) and not inside.pictures


def _class_folders(path: Path) -> list[Path]:
    folders = _sub_folders(path)
    if not folders:
        raise ValueError(f"{path}: no sub-folders; put the images of each class into one")
    return folders


def _sub_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise ValueError(f"{path}: no such folder; give one that has a sub-folder for each class")
    return sorted(item for item in path.iterdir() if item.is_dir() and item.name[0] != ".")


def _inside(folder: Path) -> _Inside:
    pictures, folders, others = list[Path](), list[Path](), list[Path]()
    with os.scandir(folder) as items:  # tells files from folders without a look at each
        for item in items:
            if item.name[0] == ".":
                continue
            is_picture = item.name.lower().endswith(_SUFFIXES) and item.is_file()
            kind = pictures if is_picture else folders if item.is_dir() else others
            kind.append(Path(item.path))
    return _Inside(sorted(pictures), sorted(folders), sorted(others))


def _class_in(folder: Path) -> _Inside:
    inside = _inside(folder)
    # One that holds something else was probably not meant as a class.
    if not inside.pictures and (inside.folders or inside.others):
        raise ValueError(
            f"{folder}: no images ({' '.join(_SUFFIXES)}); add some or remove it, or, if it is not"
            " a class but holds the classes, read it instead"
        )
    return inside


def _tell_what_is_left_out(classes: Sequence[_Inside]) -> None:
    """Warn of what lies in classes and is read by others: folders, and pictures of other kinds."""
    folders = [folder for each in classes for folder in each.folders]
    others = [file for each in classes for file in each.others]
    kinds = Counter(
        file.suffix.lower() or "no suffix"
        for file in others
        if file.name.lower() not in _OF_SYSTEMS
    )
    told = []
    if kinds:
        few = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(4))
        told.append(f"files that are no known pictures ({few})")
    if folders:
        told.append(f"folders inside of classes ({len(folders)}, such as {folders[0]})")
    if told:
        message = f"left out: {' and '.join(told)}; put the pictures of a class into its folder"
        warn_caller(message, SuspiciousInput)


def _in_turn(files: Sequence[Sequence[Path]]) -> list[_Entry]:
    """The first of each class, then the second of each class, and so on."""
    return [
        _Entry(path, label)
        for round_ in zip_longest(*files)
        for label, path in enumerate(round_)
        if path is not None
    ]


def _check_same_size(path: Path, image: Tensor, first_path: Path, first: Tensor) -> None:
    if image.shape != first.shape:
        raise ValueError(
            f"{path} is {_size(image)} px, {first_path} is {_size(first)} px;"
            " bring all to one size: resize and center_crop in Python, --resize and"
            " --center-crop on the command line"
        )


def _check_unpacked_size(paths: Sequence[Path], needed_bytes: int) -> None:
    check_unpacked_size(
        f"{paths[0].parent.parent}: {len(paths)} images",
        needed_bytes=needed_bytes,
        packed_bytes=sum(path.stat().st_size for path in paths),
        advice="make them smaller (resize in Python, --resize on the command line), or read fewer"
        " (limit, --limit)",
    )


def _size(image: Tensor) -> str:
    return f"{image.shape[2]} x {image.shape[1]}"


def _read_image(path: Path, resize: int | None, crop: int | None) -> Tensor:
    picture = _decoded(path)  # and what was opened is forgotten, with the memory that it takes
    if resize is not None:
        picture = _resized(picture, resize)
    if crop is not None:
        picture = _cropped(path, picture, crop)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def _decoded(path: Path) -> Image.Image:
    with open_picture(path) as file:
        return as_seen(file, called=str(path)).convert("RGB")


def _resized(picture: Image.Image, shorter: int) -> Image.Image:
    scale = shorter / min(picture.size)
    width, height = (max(shorter, round(side * scale)) for side in picture.size)
    return picture.resize((width, height), Image.Resampling.BILINEAR)


def _cropped(path: Path, picture: Image.Image, side: int) -> Image.Image:
    width, height = picture.size
    if side > min(width, height):
        raise ValueError(
            f"{path}: {width} x {height} px has no central square of {side} px;"
            f" resize to {side} or more, or crop less"
        )
    left, top = (width - side) // 2, (height - side) // 2
    return picture.crop((left, top, left + side, top + side))
