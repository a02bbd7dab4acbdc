"""One number of a pose: its name, its unit, and how far it may go. Zero is the identity."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Axis", "Unit"]

Unit = Literal["px", "%", "degrees", "factor", ""]
"""Pixels, a part of the image's side, degrees, the logarithm of a factor, or a plain number."""

_SUFFIXES: dict[str, tuple[str, ...]] = {
    "px": ("px", "%"),
    "%": ("px", "%"),
    "degrees": ("degrees", "deg", "°"),
    "factor": ("x",),
    "": (),
}
"""What may stand behind a number in a text; without, it is in the unit itself."""
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_LIMIT = re.compile(rf"\s*({_NUMBER})\s*([^\s\d.+-]*)\s*")
_DIGITS = 12
"""Of a factor in a text. More would be those of the rounding by its logarithm."""
_SAME = 1e-11
"""Logarithms of factors that differ by less, such as 0.909090909091 and 1 / 1.1, are the same."""
_FARTHEST, _LARGEST = 1e15, 40.0
"""The largest limit, and that of a logarithm: float32 holds such factors and their products."""


@dataclass(frozen=True)
class Axis:
    """A column of a pose, from ``low`` to ``high``, which need not mirror each other.

    Args:
        name: of the column; no other family has one that is called so.
        unit: of its values. A ``factor`` is held as its natural logarithm, so that 0 is the
            identity, and shown as itself.
        low: at most 0; where it is 0, the axis has one direction, and texts cannot give it another.
        high: at least 0.
        side: of which side of the image a limit in per cent is a part; none for axes that have no
            such limits.
        count: of its values in a grid that nobody gave counts for.
        period: after which values repeat, as angles do after 360.
    """

    name: str
    unit: Unit = ""
    low: float = -1.0
    high: float = 1.0
    side: Literal["width", "height"] | None = None
    count: int = 5
    period: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in _SUFFIXES:
            raise ValueError(f"{self.name}: unit {self.unit!r} is none of {sorted(_SUFFIXES)}")
        limits, most = f"{self._show(self.low)} to {self._show(self.high)}", self._most
        if not self.low <= 0 <= self.high:
            identity = "1" if self.unit == "factor" else "0"
            raise ValueError(
                f"{self.name} cannot go from {limits}: {identity}, which changes nothing, must lie "
                "between its limits"
            )
        if not self.reach <= most:
            raise ValueError(f"{self.name} cannot go from {limits}: that is too far for any image")
        if self.unit == "factor":
            self._keep_what_a_text_keeps()

    @property
    def _most(self) -> float:
        return _LARGEST if self.unit == "factor" else _FARTHEST

    def _keep_what_a_text_keeps(self) -> None:
        """Round factors to the digits of a text, so that a text gives back the very limits."""
        low, high, before = self.low, self.high, None
        while before != (low, high):  # what is rounded may have a shorter text than it had
            before, texts = (low, high), (self._show(low), self._show(high))
            low, high = (math.log(float(text)) for text in texts)
            if abs(low + high) < _SAME:  # the shorter text is what was meant
                low, high = (low, -low) if len(texts[0]) < len(texts[1]) else (-high, high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def reach(self) -> float:
        """How far the axis goes from zero, in the direction in which it goes further."""
        return max(-self.low, self.high)

    @property
    def repeats(self) -> bool:
        """Whether it goes further than its values differ, as by more than a whole turn."""
        return self.period is not None and self.high - self.low > (1 + 1e-9) * self.period

    @property
    def step(self) -> float:
        """A step of a gradient attack: a hundredth of half the range, as in the paper."""
        return (self.high - self.low) / 200

    @property
    def middle(self) -> float:
        """Between the limits: 0 where they mirror each other."""
        return (self.low + self.high) / 2

    def spread(self, count: int) -> Tensor:
        """Give ``count`` evenly spaced values, ends included, in float64; a single one is 0.

        Of an odd number of them, the inner one that is nearest to the identity is the identity,
        also where limits do not mirror each other; but not where an end is nearer.

        >>> Axis("blur", "px", 0, 2).spread(3).tolist()
        [0.0, 1.0, 2.0]
        >>> Axis("angle", "degrees", -10, 20).spread(5).tolist()
        [-10.0, 0.0, 5.0, 12.5, 20.0]
        """
        if count == 1:
            return torch.zeros(1, dtype=torch.float64)
        # Fractions of the limit, as linspace can miss the zero by a rounding error.
        parts = torch.arange(1 - count, count, 2, dtype=torch.float64) / (count - 1)
        values = (self.high - self.low) / 2 * parts + self.middle
        values[0], values[-1] = self.low, self.high  # whatever the rounding
        nearest = int(values.abs().argmin())
        if count % 2 and 0 < nearest < count - 1:
            values[nearest] = 0.0
        return values

    def in_pixels(self, height: int, width: int) -> Axis:
        """Resolve limits that are relative to the image's size."""
        if self.unit != "%":
            return self
        size = width if self.side == "width" else height
        return replace(self, unit="px", low=self.low * size / 100, high=self.high * size / 100)

    def show(self, value: float) -> str:
        """Write a value for people.

        >>> Axis("zoom", "factor").show(math.log(1.1)), Axis("dx", "px").show(-2.5)
        ('1.1x', '-2.5 px')
        """
        if self.unit == "factor":
            return f"{math.exp(value):.4g}x"
        return f"{value:g} {self._plain_unit}".rstrip()

    def limited(self, text: str) -> Axis:
        """Read limits: one number for both ways, or two with ``..`` between them.

        >>> Axis("zoom", "factor").limited("0.9..1.1").written
        '0.9..1.1'
        >>> Axis("dx", "px", side="width").limited("10%").written
        '10%'
        """
        ends = [self._read(part) for part in text.split("..")]
        units = {unit for _, unit in ends if unit} or {self._plain_unit}
        if len(ends) > 2 or len(units) > 1:
            raise ValueError(
                f"{text.strip()!r} is no limit of {self.name}: give a number, or two of one unit "
                "with two dots between, as in -5..10"
            )
        (unit,) = units
        if len(ends) == 2:
            low, high = (self._stored(number) for number, _ in ends)
        else:
            reach = self._stored(ends[0][0])
            reach = abs(reach) if self.unit == "factor" else reach
            low, high = (0.0 if self.low == 0 else -reach), reach
        kept: Unit = unit if unit in ("px", "%") else self.unit  # type: ignore[assignment]
        if self.low == 0 > low:
            raise ValueError(
                f"{text.strip()!r} is no limit of {self.name}: it has one direction, from 0 on"
            )
        if low > high:
            rule = "the lower one comes first" if len(ends) == 2 else "give a positive number"
            raise ValueError(f"{text.strip()!r} is no limit of {self.name}: {rule}")
        return replace(self, unit=kept, low=low, high=high)

    @property
    def written(self) -> str:
        """Its limits as ``limited`` reads them: both, where one does not say the other.

        A factor has both where both are short: 0.8..1.25, but 1.5 for 0.666666666667..1.5.
        """
        unit = self.unit if self.unit in ("px", "%") else ""
        low, high = self._show(self.low), self._show(self.high)
        mirrored = self.low == -self.high
        if self.unit == "factor":
            mirrored &= max(len(low), len(high)) > _DIGITS // 2
            high = low if mirrored and len(low) < len(high) else high
        return f"{high}{unit}" if mirrored else f"{low}..{high}{unit}"

    @property
    def in_words(self) -> str:
        """Its limits for people.

        >>> Axis("angle", "degrees", -30, 30).in_words
        'at most 30 degrees'
        """
        named = {"%": "% of the image that is seen", "factor": "times"}
        unit = named.get(self.unit, self.unit)
        low, high = self._show(self.low, 4), self._show(self.high, 4)
        mirrored = self.low == -self.high and self.unit != "factor"
        return f"{f'at most {high}' if mirrored else f'{low} to {high}'} {unit}".strip()

    @property
    def _plain_unit(self) -> str:
        """The unit of values, which are never relative to the image."""
        return "px" if self.unit == "%" else self.unit

    def _read(self, text: str) -> tuple[float, str]:
        """A number and its unit, if it has one."""
        match = _LIMIT.fullmatch(text)
        known = [each for each in _SUFFIXES[self.unit] if each != "%" or self.side]
        if match is None or match[2].lower() not in ("", *known):
            units = f", with {' or '.join(known)} behind it" if known else ""
            raise ValueError(f"{text.strip()!r} is no limit of {self.name}: give a number{units}")
        number = float(match[1])
        if self.unit == "factor" and number <= 0:
            raise ValueError(f"{text.strip()!r} is no limit of {self.name}: factors are above 0")
        if not math.isfinite(number):
            raise ValueError(f"{text.strip()!r} is no limit of {self.name}: it has no end")
        return number, match[2].lower()

    def _stored(self, number: float) -> float:
        return math.log(number) if self.unit == "factor" else number

    def _show(self, value: float, digits: int = _DIGITS) -> str:
        """A limit; of a factor, which is rounded in any case, so many digits."""
        if self.unit == "factor":
            return f"{math.exp(value):.{digits}g}"
        return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
