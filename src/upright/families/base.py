"""What a family of transformations is: some axes, and how to apply them to images.

Convention
----------
Points are in pixels relative to the centre of what the model sees, x to the right and y down. A
matrix takes a point of the image to where its content goes. Chains are read as products of matrices
are: the family on the right acts first.
"""

from __future__ import annotations

import abc
import inspect
import re
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from upright.families.axis import Axis
from upright.registry import Registry

__all__ = [
    "FAMILIES",
    "RESERVED",
    "Family",
    "OfPixels",
    "Size",
    "Spatial",
    "family",
    "matrix_inverse",
    "matrix_of",
    "matrix_product",
]

Size = tuple[int, int]
"""Height and width in pixels of what the model sees."""


class Family(abc.ABC):
    """Transformations of one kind; a subclass of ``Spatial`` or of ``OfPixels``.

    Its instances may have limits of their own, and are equal where their limits are.
    """

    name: ClassVar[str]
    """In texts."""
    axes: tuple[Axis, ...]
    """The columns of its poses. Those of the class are what a text without limits means."""
    additive: ClassVar[bool] = False
    """Whether one pose after another is the pose of their sum, so that the negative undoes it; of
    pixels, as long as none is clamped."""

    def __init__(self, axes: Sequence[Axis] | None = None) -> None:
        if axes is not None:
            self.axes = tuple(axes)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.axes == self.axes

    def __hash__(self) -> int:
        return hash((type(self), self.axes))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        limits = [axis.written for axis in self.axes]
        return f"{self.name}({limits[0] if len(set(limits)) == 1 else ', '.join(limits)})"

    def limited(self, limits: Sequence[str]) -> Family:
        """Give the family with other limits: one for all axes, or one for each."""
        if len(limits) not in (1, len(self.axes)):
            names = ", ".join(axis.name for axis in self.axes)
            raise ValueError(
                f"{self.name} has {len(self.axes)} axes ({names}): give one limit for all, or "
                f"one for each, and not {len(limits)}; a range has two dots, as in 0.9..1.1"
            )
        each = limits if len(limits) == len(self.axes) else [*limits] * len(self.axes)
        return type(self)([axis.limited(text) for axis, text in zip(self.axes, each, strict=True)])


class Spatial(Family):
    """A family that moves points. Neighbours in a chain are one resampling."""

    projective: ClassVar[bool] = False
    """Whether the last row of its matrices is ever another than 0, 0, 1."""
    conformal: ClassVar[bool] = False
    """Whether its matrices, but for shifts, commute with turns."""

    @abc.abstractmethod
    def matrix(self, values: Tensor, size: Size) -> Tensor:
        """Give where points go, P x 3 x 3, for poses P x axes; see ``matrix_of``."""

    def inverse_matrix(self, values: Tensor, size: Size) -> Tensor:
        """Give where pixels come from: the inverse of ``matrix``."""
        if self.additive:
            return self.matrix(-values, size)
        return matrix_inverse(self.matrix(values, size))


class OfPixels(Family):
    """A family that changes the values of pixels, in place of where they are."""

    @abc.abstractmethod
    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        """Change images, ... x C x H x W in [0, 1], by poses, ... x 1 x 1 x 1 x axes.

        The axes in front are broadcast: one image may meet many poses.
        """


FAMILIES: Registry[type[Family]] = Registry(
    "family",
    any_case=True,
    alphabetical=False,
    synonyms={
        **dict.fromkeys(("translate", "translation"), "shift"),
        **dict.fromkeys(("rotation", "turn", "angle"), "rotate"),
        **dict.fromkeys(("scale", "resize"), "zoom"),
        **dict.fromkeys(("color", "colour"), "saturation"),
    },
)
"""All families by name."""

RESERVED = frozenset(
    [
        "cat",
        "chain",
        "compose",
        "device",
        "in_words",
        "inverse",
        "like",
        "made",
        "of",
        "shape",
        "split",
        "to",
        "values",
        "zeros",
    ]
)
"""What a pose has beside its columns."""

_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_Kind = TypeVar("_Kind", bound=type[Family])


def family(kind: _Kind) -> _Kind:
    """Make a family known by its name, to all texts of spaces."""
    if not hasattr(kind, "name") or not hasattr(kind, "axes") or inspect.isabstract(kind):
        raise ValueError(
            f"{kind.__name__} is no whole family: it needs a name, axes, and the method matrix (of "
            "Spatial) or apply (of OfPixels)"
        )
    if not _NAME.fullmatch(kind.name):
        raise ValueError(f"{kind.name!r} is no name of a family: take small letters, as in 'zoom'")
    if reserved := sorted(RESERVED & {axis.name for axis in kind.axes}):
        raise ValueError(f"poses have something else called {', '.join(reserved)}: rename the axis")
    taken = {
        axis.name for name, known in FAMILIES.items() for axis in known.axes if name != kind.name
    }
    if clash := taken & {axis.name for axis in kind.axes}:
        raise ValueError(f"another family has an axis called {', '.join(sorted(clash))}")
    FAMILIES.register(kind.name)(kind)
    return kind


Element = Tensor | float


def matrix_of(*rows: Sequence[Element]) -> Tensor:
    """Put matrices together, P x 3 x 3, from two or three rows of numbers and tensors of P values.

    Without a third row it is 0, 0, 1.

    >>> dx = torch.tensor([1.0, 2.0])
    >>> matrix_of((1, 0, dx), (0, 1, 0)).shape
    torch.Size([2, 3, 3])
    """
    entries = [entry for row in rows for entry in row]
    some = next(entry for entry in entries if isinstance(entry, Tensor))
    if len(rows) == 2:
        entries += [0.0, 0.0, 1.0]
    # By fills, one for each number: a CUDA graph cannot capture a copy from the host.
    numbers = {
        number: torch.full_like(some, number)
        for number in {entry for entry in entries if not isinstance(entry, Tensor)}
    }
    parts = [entry if isinstance(entry, Tensor) else numbers[entry] for entry in entries]
    found: Tensor = torch.stack(parts, -1).unflatten(-1, (3, 3))
    return found


def matrix_product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices by plain sums: a matrix unit might round to half precision."""
    product: Tensor = (left[..., None] * right[..., None, :, :]).sum(-2)
    return product


def matrix_inverse(matrix: Tensor) -> Tensor:
    """Give the inverse in closed form, which is exact for whole shifts and quarter turns."""
    a, b, c = matrix.unbind(-2)
    cross: Callable[[Tensor, Tensor], Tensor] = torch.linalg.cross
    columns = (cross(b, c), cross(c, a), cross(a, b))
    determinant = (a * columns[0]).sum(-1)
    return torch.stack(columns, -1) / determinant[..., None, None]
