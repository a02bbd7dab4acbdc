"""Families one after another: their axes side by side, neighbouring matrices multiplied.

A chain is read as a product of matrices is: in ``shift rotate`` images are turned first, then
shifted, which is the paper's convention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from torch import Tensor

from upright.factories import digest_of_code
from upright.families.axis import Axis
from upright.families.base import FAMILIES, Family, OfPixels, Size, Spatial, matrix_product
from upright.families.rotate import Rotate
from upright.families.shift import Shift
from upright.families.zoom import Zoom
from upright.registry import UnknownNameError, is_ours
from upright.tracing import is_traced

__all__ = ["RIGID", "Chain", "Stage", "UnknownFamilyError", "chain_of"]

GRAMMAR = (
    "families one after another, each with its limits, as in 'shift(3px) rotate(30)' or "
    "'shift(10%) zoom(0.9..1.1) brightness(0.2)'"
)


class UnknownFamilyError(UnknownNameError):
    """A text names a family that is not known here: perhaps one of somebody's own."""


@dataclass(frozen=True)
class Stage:
    """What is done to images at once: one resampling by several families, or one of pixels."""

    families: tuple[Family, ...]
    columns: slice
    """Of the poses."""

    @property
    def is_spatial(self) -> bool:
        return isinstance(self.families[0], Spatial)

    @property
    def is_similar(self) -> bool:
        """Whether images are turned, then shifted, as in the paper; or zoomed before."""
        return [type(each) for each in self.families] in ([Shift, Rotate], [Shift, Rotate, Zoom])

    @property
    def is_projective(self) -> bool:
        return any(isinstance(each, Spatial) and each.projective for each in self.families)

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        """Where points go, for the columns of this stage: P x 3 x 3."""
        own = self._own(values)
        return _product([_checked(each, each.matrix(its, size), its) for each, its in own])

    def inverse_matrix(self, values: Tensor, size: Size) -> Tensor:
        """Where pixels come from, for the columns of this stage: P x 3 x 3."""
        own = self._own(values)
        maps = [_checked(each, each.inverse_matrix(its, size), its) for each, its in own]
        return _product(maps[::-1])

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        """Change the values of pixels by the one family of this stage."""
        (only,) = self.families
        assert isinstance(only, OfPixels)
        is_own = not is_ours(type(only))
        before = images._version if is_own and _counts_versions(images) else None
        changed = only.apply(images, values)
        if before is not None and images._version != before:
            raise ValueError(
                f"{only.name}.apply writes into the images that it is given, which are the user's; "
                "let it return others, as images * factor does and images *= factor does not"
            )
        if changed.ndim != images.ndim or changed.shape[-3:] != images.shape[-3:]:
            raise ValueError(
                f"{only.name}.apply gave the shape {tuple(changed.shape)} for images of shape "
                f"{tuple(images.shape)}; a column of the poses is values[..., 0]"
            )
        return changed.clone() if is_own and _is_part_of(images, changed) else changed

    def _own(self, values: Tensor) -> Iterator[tuple[Spatial, Tensor]]:
        start = 0
        for each in self.families:
            assert isinstance(each, Spatial)
            yield each, values[..., start : start + len(each.axes)]
            start += len(each.axes)


def _is_part_of(images: Tensor, changed: Tensor) -> bool:
    """Whether they share memory, which a model may write into: that of the user's images."""
    if is_traced():
        return False
    return changed.untyped_storage().data_ptr() == images.untyped_storage().data_ptr()


def _counts_versions(images: Tensor) -> bool:
    """Whether a tensor knows how often it was written to, and may be asked."""
    return not (is_traced() or images.is_inference())


def _checked(family: Family, matrix: Tensor, values: Tensor) -> Tensor:
    if matrix.shape[-2:] != (3, 3):
        raise ValueError(
            f"{family.name}.matrix gave the shape {tuple(matrix.shape)}, but must give 3 x 3 for "
            "each pose; matrix_of puts one together"
        )
    # On a GPU it would have to be waited for: an evaluation looks at some beforehand.
    if not (is_ours(type(family)) or matrix.is_cuda or is_traced()):
        _check_finite(family, matrix, values)
    return matrix


def _check_finite(family: Family, matrix: Tensor, values: Tensor) -> None:
    wrong = ~matrix.isfinite().flatten(-2).all(-1)
    if wrong.any():
        axes = zip(family.axes, values.expand(*wrong.shape, -1)[wrong][0].tolist(), strict=True)
        at = ", ".join(f"{axis.name} {axis.show(value)}" for axis, value in axes)
        raise ValueError(
            f"{family.name} at {at} has a matrix that is not finite, or that nothing undoes; let "
            "it have one for every pose between its limits"
        )


def _product(matrices: list[Tensor]) -> Tensor:
    found = matrices[0]
    for matrix in matrices[1:]:
        found = matrix_product(found, matrix)
    return found


@dataclass(frozen=True, repr=False)
class Chain:
    """Some families, each at most once; the one on the right acts first."""

    families: tuple[Family, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.families]
        if not names:
            raise ValueError("a space without a family; name at least one, as in 'rotate(30)'")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)} stands twice; name each family once")

    def __repr__(self) -> str:
        return " ".join(map(str, self.families))

    @cached_property
    def code_digest(self) -> str:
        """SHA-256 of the code of families that are not this package's; empty where all are."""
        return digest_of_code(*map(type, self.families))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the families, in their order."""
        return tuple(each.name for each in self.families)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of all families, in their order: a column of a pose each."""
        return tuple(axis for each in self.families for axis in each.axes)

    @cached_property
    def column_of(self) -> dict[str, int]:
        """Which column of a pose each axis is, by its name."""
        return {axis.name: place for place, axis in enumerate(self.axes)}

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """What is done, in the order in which it is done."""
        found, start = [], 0
        for _, group in groupby(enumerate(self.families), _kind):
            members = tuple(each for _, each in group)
            stop = start + sum(len(each.axes) for each in members)
            found.append(Stage(members, slice(start, stop)))
            start = stop
        return tuple(found[::-1])

    @cached_property
    def is_spatial(self) -> bool:
        """Whether it moves points and does nothing else, so that it has a matrix."""
        return all(isinstance(each, Spatial) for each in self.families)

    @cached_property
    def is_group(self) -> bool:
        """Whether one pose after another is a pose of it, and each has one that undoes it."""
        first, *rest = self.families
        if not rest:
            return first.additive
        others = rest if isinstance(first, Shift) else self.families
        adding = [each for each in others if isinstance(each, Spatial) and each.additive]
        flat = len(adding) == len(others) and not any(each.projective for each in adding)
        return flat and (len(adding) == 1 or all(each.conformal for each in adding))

    def with_axes(self, axes: Sequence[Axis]) -> Chain:
        """Give the chain with other limits."""
        rest = list(axes)
        families = [type(each)([rest.pop(0) for _ in each.axes]) for each in self.families]
        return Chain(tuple(families))

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        """Where points go, P x 3 x 3, for poses P x axes."""
        return self._only_stage.matrix(values, size)

    def inverse_matrix(self, values: Tensor, size: Size) -> Tensor:
        """Where pixels come from, P x 3 x 3."""
        return self._only_stage.inverse_matrix(values, size)

    @property
    def _only_stage(self) -> Stage:
        if not self.is_spatial:
            values = [each.name for each in self.families if not isinstance(each, Spatial)]
            raise ValueError(f"{', '.join(values)} moves no points: there is no matrix for it")
        (only,) = self.stages
        return only


def _kind(numbered: tuple[int, Family]) -> tuple[bool, int]:
    """Spatial neighbours are of one kind, all others each of their own."""
    place, each = numbered
    spatial = isinstance(each, Spatial)
    return spatial, -1 if spatial else place


_FAMILY = re.compile(r"\s*([\w.-]+)\s*(?:\(([^()]*)\))?(?=\s|$)")


def chain_of(text: str) -> Chain:
    """Read a chain with its limits; ``str`` gives the text back.

    >>> chain_of("rotate(-10..30) zoom(1.2)")
    rotate(-10..30) zoom(1.2)
    """
    families, place = [], 0
    while place < len(text.rstrip()):
        match = _FAMILY.match(text, place)
        if match is None:
            raise _not_understood(text[place:].strip())
        families.append(_family(match[1], match[2]))
        place = match.end()
    try:
        return Chain(tuple(families))
    except ValueError as error:
        raise ValueError(f"{error}; write {GRAMMAR}") from None


def _not_understood(text: str) -> ValueError:
    opened, closed = text.count("("), text.count(")")
    between = "put a blank, and no more, between families"
    reason = between if opened == closed else f"it has {opened} '(' and {closed} ')'"
    return ValueError(f"{text!r} is not understood: {reason}; write {GRAMMAR}")


def _family(name: str, limits: str | None) -> Family:
    try:
        kind = FAMILIES.find(name).value
    except UnknownNameError as error:
        raise UnknownFamilyError(
            f"{error}, and of your own those whose file you import, or name on the command line as "
            f"FILE.py:NAME, or to evaluate and report by --families FILE.py: write {GRAMMAR}"
        ) from None
    try:
        return kind() if limits is None else kind().limited(limits.split(","))
    except ValueError as error:
        raise ValueError(f"{error}; write {GRAMMAR}") from None


RIGID = Chain((Shift(), Rotate()))
"""The paper's: a turn about the centre, then a shift."""
