"""Options that several commands share, as text that people type, what it means, and its help.

Help lists what is registered when it is asked for: commands write the calls of ``..._help`` into
the annotations of their options, which are read that late.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from upright.attacks import ATTACKS
from upright.checks import warn_if_below_a_pixel
from upright.data.registry import DATA_SETS
from upright.factories import run_file
from upright.families import FAMILIES, Chain, Family, Rotate, Shift
from upright.files import plain_name
from upright.models import NETWORKS, network_forms
from upright.registry import is_ours
from upright.sources.preprocess import AS_IT_IS, Preprocess
from upright.sources.registry import SOURCES
from upright.space import Space

__all__ = [
    "STDOUT",
    "attack_help",
    "data_help",
    "folder_name",
    "model_help",
    "network_help",
    "parse_device",
    "parse_preprocess",
    "parse_seeds",
    "parse_space",
    "run_families",
    "show_seeds",
    "writable",
]

_OWN_FAMILY = re.compile(r"(\S+\.py):([\w-]+)")

STDOUT = Path("-")
"""The name of a file that is no file, but what the command prints."""

_MOST_SEEDS = 10_000
_LONGEST_NAME = 240
"""Bytes: most disks take 255, and a file that is being written has a longer name."""


def parse_space(
    space: str | None, max_translation: str | None, max_rotation: float | None
) -> Space:
    """Make a space of its text, or of the paper's two limits.

    The latter are in pixels (``3``) or of the image's size (``10%``), and in degrees.
    """
    if space is None:
        found = Space(Chain((_shift(max_translation), _rotate(max_rotation))))
    elif max_translation is None and max_rotation is None:
        found = Space.of(_with_own_families(space))
    else:
        raise ValueError(
            "--space has all limits: leave out --max-translation and --max-rotation, or write "
            "'shift(3px) rotate(30)' into it"
        )
    for reach in {axis.reach for axis in found.axes if axis.side and axis.unit == "px"}:
        warn_if_below_a_pixel(reach)
    return found


def _shift(limit: str | None) -> Family:
    try:
        return Shift() if limit is None else Shift().limited([limit])
    except ValueError:
        raise ValueError(
            f"a translation of {limit!r} is not understood; give pixels, as in 3, or a part of the "
            "image's size, as in 10%"
        ) from None


def _rotate(limit: float | None) -> Family:
    try:
        return Rotate() if limit is None else Rotate().limited([str(limit)])
    except ValueError:
        raise ValueError(
            f"a rotation of {limit} is not understood; give degrees, as in 30"
        ) from None


def _with_own_families(text: str) -> str:
    """Run the files of families that are named as ``FILE.py:NAME``, and leave the plain names."""
    for file, name in _OWN_FAMILY.findall(text):
        run_families([Path(file)])
        kind = FAMILIES.get(name.lower())
        if kind is None or is_ours(kind):
            raise ValueError(f"{file} makes no family called {name!r} known; decorate it, @family")
    return _OWN_FAMILY.sub(r"\2", text)


def run_families(files: Iterable[Path]) -> None:
    """Run files of families, so that texts that name these are understood."""
    for file in files:
        _families_in(str(file.expanduser().resolve()))


@cache
def _families_in(file: str) -> None:
    """Run a file once: to run it again would make its families others."""
    run_file(file)


def parse_preprocess(
    told: str | None, *, mean: str | None = None, std: str | None = None, **words: Any
) -> Preprocess:
    """Join a configuration, a file or a text, with what single options say, which go first.

    ``words`` are other fields of a ``Preprocess``; None is not told.
    """
    base = AS_IT_IS if told is None else Preprocess.of(told)
    return base.but_for(mean=_numbers("--mean", mean), std=_numbers("--std", std), **words)


def _numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(_number(part) for part in text.replace(",", " ").split())
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"{option} {text!r} is not understood; write a number for each channel, as in "
            "0.485,0.456,0.406, or one for all, as in 127/255"
        ) from None


def _number(text: str) -> float:
    whole, *parts = map(float, text.split("/", 1))
    return whole / parts[0] if parts else whole


def parse_device(name: str | None) -> torch.device:
    """Give the device of that name; without one, a GPU where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    # What an absent device raises depends on the device.
    except Exception as error:
        raise ValueError(
            f"device {name!r} cannot be used here; leave it out, or name one that can, such as cpu"
        ) from error
    return device


def parse_seeds(text: str) -> list[int]:
    """Read ``0-4`` or ``0,2,3``."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            if int(last or first) - int(first) >= _MOST_SEEDS:
                raise ValueError
            seeds += range(int(first), int(last or first) + 1)
    except ValueError:
        raise ValueError(
            f"seeds {text!r} are not understood, or more than {_MOST_SEEDS}; write 0-4 or 0,2,3"
        ) from None
    if not seeds:
        raise ValueError(f"seeds {text!r} name no seed; write 0-4 or 0,2,3")
    return seeds


def show_seeds(seeds: Iterable[int]) -> str:
    """Write seeds as ``parse_seeds`` reads them.

    >>> show_seeds([0, 1, 2, 4])
    '0-2,4'
    """
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(f"{part[0]}-{part[-1]}" if part[1:] else str(part[0]) for part in parts)


def folder_name(objective: str, seed: int) -> str:
    """Give a run's folder a name that every file system takes: ``kl-rob-wo-10-seed-0``."""
    return f"{plain_name(objective)}-seed-{seed}"


def writable(path: Path | None) -> None:
    """Check that a file can be written before hours are spent on what is to go into it."""
    if path is None:
        return
    if path == STDOUT:
        raise ValueError("- is standard output, which is for --json alone; give the name of a file")
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise ValueError(
            f"{path.name[:20]}... is too long for the name of a file; give one of at most "
            f"{_LONGEST_NAME} bytes"
        )
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    if path.exists():
        _replaceable(path)
    elif path.is_symlink():
        raise ValueError(f"{path} is a link to nothing; remove it, or give another file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"{path} cannot be written: {folder} is not a folder that may be changed")


def _replaceable(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is no plain file; give the name of one")
    if not os.access(path, os.W_OK):
        raise ValueError(f"{path} may not be changed; give another file, or make it writable")


def attack_help(before: str, after: str) -> str:
    """Say in help which attacks there are."""
    return f"{before}\n{ATTACKS.listing()}\n{after}"


def data_help() -> str:
    """Say in help which data sets there are."""
    return f"The images, with their classes:\n{DATA_SETS.listing()}"


def model_help() -> str:
    """Say in help how models are named."""
    return (
        f"The classifier:\n{SOURCES.listing()}\n"
        "It takes images in [0, 1] and gives logits, or --preprocess says what it takes and gives. "
        "Files of models are programs, those of ONNX, too: give only those that you trust."
    )


def network_help() -> str:
    """Say in help which networks can be trained."""
    network_forms()  # knows them all
    return (
        f"A network, most for small images:\n{NETWORKS.listing()}\n"
        "Or your own, as FILE.py:FACTORY or package.module:FACTORY: a class or a function that "
        "gives an nn.Module for images in [0, 1], called with classes= (or num_classes=) and "
        "channels= (or in_channels=, in_chans=) where it has such parameters."
    )
