"""Networks as TensorFlow Lite keeps them: one flatbuffer with the graph and its weights.

Weights of 8 bits are taken back to floats, and the network computes in floats. What its activations
are clipped to stays: in such files that is what makes a ReLU.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from photograph_layers import Array, convolution
from torch import Tensor, nn

__all__ = ["TfliteNetwork"]


class _Operator(IntEnum):
    """As in TensorFlow's schema.fbs, like all numbers below."""

    AVERAGE = 1
    CONCATENATE = 2
    CONVOLVE = 3
    DEPTHWISE = 4
    MAXIMUM = 17
    RESHAPE = 22
    SOFTMAX = 25


_BYTE = 3
_KINDS = {0: "<f4", 2: "<i4", _BYTE: "u1"}
_RELU, _RELU6 = 1, 3


class TfliteNetwork(nn.Module):
    """The network of a file, with channels first; a softmax at its end is left out.

    Args:
        content: of the file.
        offset: how many outputs to leave out at the beginning, such as that of "background".
    """

    def __init__(self, content: bytes, *, offset: int = 0) -> None:
        super().__init__()
        model = _Table(content, _number(content, 0, "<I"))
        kinds = [each.number(0, "<b") for each in model.tables(1)]
        graph = model.tables(2)[0]
        tensors = [_Tensor(each, model.tables(4)) for each in graph.tables(0)]
        self.offset = offset
        self.entrance = int(graph.array(1, "<i4")[0])
        self.routes: list[tuple[list[int], int]] = []
        self.layers = nn.ModuleList()
        for each in graph.tables(3):
            given, (made,) = each.array(1, "<i4").tolist(), each.array(2, "<i4").tolist()
            layer = _layer(kinds[each.number(0, "<I")], each.table(4), tensors, given, made)
            self.routes.append(([at for at in given if tensors[at].values is None], made))
            self.layers.append(layer)

    def forward(self, images: Tensor) -> Tensor:
        done, made = {self.entrance: images}, self.entrance
        for (given, made), layer in zip(self.routes, self.layers, strict=True):
            done[made] = layer(*(done[each] for each in given))
        return done[made][:, self.offset :]


class Concatenated(nn.Module):
    def forward(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, 1)


def _layer(
    kind: int, options: _Table, tensors: list[_Tensor], given: list[int], made: int
) -> nn.Module:
    """Make what one operator does."""
    same = options.number(0, "<b") == 0
    stride, size = options.number(1, "<i"), options.number(3, "<i")
    match kind:
        case _Operator.CONVOLVE | _Operator.DEPTHWISE:
            kernel, bias = (tensors[at].floats() for at in given[1:])
            deep = kind == _Operator.DEPTHWISE
            layer = convolution(
                kernel.transpose((3, 0, 1, 2) if deep else (0, 3, 1, 2)),
                bias,
                stride=stride,
                same=same,
                groups=len(bias) if deep else 1,
            )
            ends = _ends(options.number(4 if deep else 3, "<b"), tensors[made])
            return nn.Sequential(layer, nn.Hardtanh(*ends)) if ends else layer
        case _Operator.AVERAGE if same:
            assert (stride, size % 2) == (1, 1)  # or it would not pad alike on all sides
            return nn.AvgPool2d(size, stride, size // 2, count_include_pad=False)
        case _Operator.AVERAGE:
            return nn.AvgPool2d(size, stride)
        case _Operator.MAXIMUM if not same:
            return nn.MaxPool2d(size, stride)
        case _Operator.CONCATENATE:
            return Concatenated()
        case _Operator.RESHAPE:
            return nn.Flatten()
        case _Operator.SOFTMAX:
            return nn.Identity()
    raise ValueError(f"operator {kind} is not known here; add it")


def _ends(activation: int, made: _Tensor) -> tuple[float, float] | None:
    """Give what the values of a layer are clipped to, if anything."""
    low, high = made.range or (-np.inf, np.inf)
    if activation in (_RELU, _RELU6):
        low = max(low, 0.0)
    if activation == _RELU6:
        high = min(high, 6.0)
    return None if (low, high) == (-np.inf, np.inf) else (low, high)


class _Tensor:
    """A tensor of the graph: what is known of its values."""

    def __init__(self, table: _Table, buffers: list[_Table]) -> None:
        self.shape = table.array(0, "<i4")
        kind = table.number(1, "<b")
        data = buffers[table.number(2, "<I")].array(0, "u1")
        self.values = data.view(_KINDS[kind]).reshape(self.shape) if len(data) else None
        packing = table.table(4)
        self.scale = packing.array(2, "<f4") if packing.place else np.zeros(0, "<f4")
        self.zero = packing.array(3, "<i8") if packing.place else np.zeros(0, "<i8")
        self.is_byte = kind == _BYTE

    @property
    def range(self) -> tuple[float, float] | None:
        """From where to where its bytes reach; None where it has none."""
        if not (self.is_byte and len(self.scale)):
            return None
        scale, zero = float(self.scale[0]), int(self.zero[0])
        return -zero * scale, (255 - zero) * scale

    def floats(self) -> Array:
        assert self.values is not None
        if not len(self.scale):
            return self.values.astype(np.float32)
        assert len(self.scale) == 1  # one scale for all channels
        floats: Array = (self.values - self.zero[0]) * self.scale[0]
        return floats.astype(np.float32)


@dataclass(frozen=True)
class _Table:
    """A table of a flatbuffer: its fields by their numbers in the schema, 0 where they are not."""

    content: bytes
    place: int
    """0 for a table that is not there."""

    def tables(self, field: int) -> list[_Table]:
        start = self._target(field)
        places = range(start + 4, start + 4 + 4 * _number(self.content, start, "<I"), 4)
        return [_Table(self.content, at + _number(self.content, at, "<I")) for at in places]

    def table(self, field: int) -> _Table:
        return _Table(self.content, self._target(field))

    def array(self, field: int, kind: str) -> NDArray[Any]:
        start = self._target(field)
        count = _number(self.content, start, "<I") if start else 0
        return np.frombuffer(self.content, kind, count, start + 4)

    def number(self, field: int, kind: str) -> int:
        place = self._field(field)
        return _number(self.content, place, kind) if place else 0

    def _target(self, field: int) -> int:
        place = self._field(field)
        return place + _number(self.content, place, "<I") if place else 0

    def _field(self, field: int) -> int:
        known = self._fields
        return self.place + known[field] if field < len(known) and known[field] else 0

    @cached_property
    def _fields(self) -> tuple[int, ...]:
        if not self.place:
            return ()
        start = self.place - _number(self.content, self.place, "<i")
        size = _number(self.content, start, "<H")
        return struct.unpack_from(f"<{size // 2 - 2}H", self.content, start + 4)


def _number(content: bytes, place: int, kind: str) -> int:
    return int(struct.unpack_from(kind, content, place)[0])
