"""Convolutions over the groups p4 and p4m (Cohen and Welling 2016).

Turn or mirror an image, and its features turn with it: their planes change places.

Convention
----------
* A group is the quarter turns (``P4``, 4 elements) or these with mirror images (``P4M``, 8).
  Element ``s`` first mirrors left-right, if ``s`` is 4 or more, and then makes ``s % 4`` quarter
  turns, counter-clockwise as displayed.
* Features have a plane for each element, N x (planes * channels) x H x W, plane by plane: channel
  ``c`` of plane ``h`` lies at ``h * channels + c``.
* An element ``u`` acts on images by moving pixels; on features it also sends plane ``h`` to
  ``u h``. Each layer here commutes with that; a stride does so on odd sizes only.

Planes lie outside of channels so that no layer has to move memory: a norm sees the planes as more
images, or as more columns where channels come last.

>>> net = nn.Sequential(LiftingConv(P4M, 3, 8, 3), GroupBatchNorm(P4M, 8), nn.ReLU(),
...                     GroupConv(P4M, 8, 16, 3), GroupPool(P4M, "max"))
>>> net(torch.rand(2, 3, 32, 32)).shape
torch.Size([2, 16, 32, 32])
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.layers import largest, without_count

__all__ = ["P4", "P4M", "Group", "GroupBatchNorm", "GroupConv", "GroupPool", "LiftingConv"]


@dataclass(frozen=True)
class Group:
    """Quarter turns, with mirror images (8 planes) or without (4 planes)."""

    planes: Literal[4, 8]

    def product(self, first: int, then: int) -> int:
        """Give the number of the element that acts as ``first`` followed by ``then``."""
        # A mirror image turns the other way.
        turns = then + (first if then < 4 else -first)
        return turns % 4 + 4 * ((first >= 4) != (then >= 4))

    def inverse(self, element: int) -> int:
        """Give the number of the element that undoes this one."""
        return element if element >= 4 else -element % 4

    def act(self, images: Tensor, element: int) -> Tensor:
        """Move the pixels of images, in the last two axes.

        >>> P4.act(torch.tensor([[1, 2], [3, 4]]), 1)
        tensor([[2, 4],
                [1, 3]])
        """
        mirrored = images.flip(-1) if element >= 4 else images
        return mirrored.rot90(element % 4, (-2, -1))

    def act_on_planes(self, features: Tensor, element: int) -> Tensor:
        """Move the pixels of features, and each plane to where the element takes it."""
        undo = self.inverse(element)
        source = [self.product(plane, undo) for plane in range(self.planes)]
        return self.act(features.unflatten(1, (self.planes, -1))[:, source].flatten(1, 2), element)


P4 = Group(4)
"""The quarter turns."""
P4M = Group(8)
"""The quarter turns, and each of them with a mirror image."""


class _Expand(torch.autograd.Function):
    """Gathers rows of a weight; the gradient of a row is the sum over its copies.

    The copies are gathered and summed. The gradient of ``index_select`` itself would add them one
    by one, in half precision where the filters are, and on a GPU in another order at each run.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, rows: Tensor, _copies: Tensor, dtype: torch.dtype) -> Tensor:
        return weight.flatten(0, 1).to(dtype).index_select(0, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        del output
        weight, _, copies, _ = inputs
        ctx.save_for_backward(copies)
        ctx.shape, ctx.dtype = weight.shape, weight.dtype

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (copies,) = ctx.saved_tensors
        (gradient,) = gradients
        found = gradient.index_select(0, copies).unflatten(0, (-1, *ctx.shape[:2]))
        return found.sum(0, dtype=ctx.dtype), None, None, None


@dataclass(frozen=True, eq=False)
class _Kept:
    """Filters, and the weight that they were expanded from."""

    weight: Tensor
    filters: Tensor

    def serves(self, weight: Tensor, dtype: torch.dtype) -> bool:
        same_kind = self.weight.dtype == weight.dtype and self.filters.dtype == dtype
        return same_kind and torch.equal(self.weight, weight)


class _ExpandedConv(nn.Module):
    """An ordinary convolution whose filters are moved copies of a smaller weight.

    The weight is out x (planes * kernel * kernel) x in, the order in which one gather of whole rows
    gives the filters as a convolution wants them where channels come last.
    """

    rows: Tensor
    copies: Tensor

    def __init__(
        self, group: Group, planes: int, before: int, after: int, kernel: int, stride: int
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"a kernel needs a middle to turn about: {kernel} is even")
        self.group, self.planes, self.kernel, self.stride = group, planes, kernel, stride
        self.before, self.after = before, after
        self.weight = nn.Parameter(torch.empty(after, planes * kernel**2, before))
        self.bias = nn.Parameter(torch.zeros(after))
        nn.init.normal_(self.weight, std=math.sqrt(2 / (planes * kernel**2 * before)))
        rows = _rows(group, planes, after, kernel)
        self.register_buffer("rows", rows, persistent=False)
        # Sorted, the copies of a row come together; one copy of each row makes a weight.
        copies = rows.argsort(stable=True).view(-1, group.planes).T.flatten()
        self.register_buffer("copies", copies, persistent=False)
        self._kept: _Kept | None = None

    def extra_repr(self) -> str:
        return (
            f"{self.before}, {self.after}, planes={self.planes}->{self.group.planes}, "
            f"kernel={self.kernel}, stride={self.stride}"
        )

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias.repeat(self.group.planes)
        return F.conv2d(x, self.filters(), bias, self.stride, self.kernel // 2)

    def filters(self) -> Tensor:
        """Give the filters: (planes out * out) x (planes in * in) x kernel x kernel.

        On a CPU they are kept in evaluation mode. They serve as long as the weight has the same
        values, which is looked at each time: that costs less than the expansion, and a count of
        changes would miss those made through ``.data`` or by a CUDA graph. On a GPU they are not
        kept: to look at values would make the host wait, and the expansion is a small kernel.
        """
        weight, dtype = self.weight, self._dtype()
        learns = self.training or (weight.requires_grad and torch.is_grad_enabled())
        if torch.compiler.is_compiling() or learns or weight.device.type != "cpu":
            return self._expand(dtype)
        kept = self._kept
        if kept is None or not kept.serves(weight, dtype):
            # Not as inference tensors, which a later search with gradients could not use.
            with torch.inference_mode(False), torch.no_grad():
                kept = self._kept = _Kept(weight.detach().clone(), self._expand(dtype))
        return kept.filters

    def _expand(self, dtype: torch.dtype) -> Tensor:
        rows: Tensor = _Expand.apply(  # type: ignore[no-untyped-call]
            self.weight, self.rows, self.copies, dtype
        )
        shape = (self.group.planes * self.after, self.kernel, self.kernel, -1)
        return rows.view(shape).permute(0, 3, 1, 2)

    def _dtype(self) -> torch.dtype:
        """The dtype in which to expand the weight: autocast's half precision before, not after."""
        dtype, kind = self.weight.dtype, self.weight.device.type
        if dtype == torch.float32 and kind != "meta" and torch.is_autocast_enabled(kind):
            return torch.get_autocast_dtype(kind)
        return dtype

    def train(self, mode: bool = True) -> _ExpandedConv:
        self._kept = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}


class LiftingConv(_ExpandedConv):
    """From an image to features: ``before`` channels to ``after`` channels on every plane."""

    def __init__(
        self, group: Group, before: int, after: int, kernel: int, *, stride: int = 1
    ) -> None:
        super().__init__(group, 1, before, after, kernel, stride)


class GroupConv(_ExpandedConv):
    """A convolution from features to features.

    A stride of 2 starts at one edge: on an odd size it ends at the other, and the layer commutes
    with the group; on an even size it does not.
    """

    def __init__(
        self, group: Group, before: int, after: int, kernel: int, *, stride: int = 1
    ) -> None:
        super().__init__(group, group.planes, before, after, kernel, stride)


class _Normalise(torch.autograd.Function):
    """Batch norm whose channels have several planes each; gives mean and variance, too.

    Sums go over each plane of a channel, and the few of a channel are put together then: so a GPU
    reads memory as it lies. Sums over planes as well would read rows of 12 values where channels
    come last.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, planes: int, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = _plane_by_plane(x, planes)
        variances, means = torch.var_mean(wide, (0, 3, 4), correction=0)
        mean = means.mean(0)
        # Sums of squares would lose digits (Chan et al. 1983).
        variance = (variances + (means - mean) ** 2).mean(0)
        scale = weight * torch.rsqrt(variance + epsilon)
        normal = (wide - _over_space(mean)) * _over_space(scale) + _over_space(bias)
        return normal.flatten(1, 2).to(x.dtype), mean, variance

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        x, weight, _, ctx.planes, ctx.epsilon = inputs
        _, mean, variance = output
        ctx.mark_non_differentiable(mean, variance)
        ctx.save_for_backward(x, weight, mean, variance)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        inverse = torch.rsqrt(variance + ctx.epsilon)
        wide, gradient = (_plane_by_plane(each, ctx.planes) for each in (x, gradients[0]))
        standard = (wide - _over_space(mean)) * _over_space(inverse)
        by_bias = gradient.sum((0, 3, 4)).sum(0)
        by_weight = (gradient * standard).sum((0, 3, 4)).sum(0)
        count = x.numel() // len(mean)
        through = _over_space(by_bias / count) + standard * _over_space(by_weight / count)
        by_x = ((gradient - through) * _over_space(weight * inverse)).flatten(1, 2)
        return by_x.to(x.dtype), by_weight.to(weight.dtype), by_bias.to(weight.dtype), None, None


def _plane_by_plane(x: Tensor, planes: int) -> Tensor:
    """Features with an axis for planes, in float32 at least."""
    wide: Tensor = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(1, (planes, -1))
    return wide


def _over_space(values: Tensor) -> Tensor:
    """What channels have, for all places."""
    return values.view(-1, 1, 1)


class GroupBatchNorm(nn.BatchNorm2d):
    """One scale and shift for each channel, with statistics over images, planes and space."""

    def __init__(self, group: Group, channels: int) -> None:
        super().__init__(channels)
        self.group = group
        without_count(self)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and self.training:
            return self._fused(x)
        planes, (count, _, height, width) = self.group.planes, x.shape
        if not self.training:
            mean, variance = self.get_buffer("running_mean"), self.get_buffer("running_var")
            kept = mean.repeat(planes), variance.repeat(planes)
            scale, shift = self.weight.repeat(planes), self.bias.repeat(planes)
            return F.batch_norm(x, *kept, scale, shift, eps=self.eps)
        if x.is_contiguous():
            many = x.reshape(count * planes, self.num_features, height, width)
            return super().forward(many).reshape(x.shape)
        wide = x.permute(0, 2, 3, 1).reshape(count, height, -1, self.num_features)
        normal = super().forward(wide.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return normal.reshape(count, height, width, -1).permute(0, 3, 1, 2)

    def _fused(self, x: Tensor) -> Tensor:
        """Do the same in training by operations that a compiler makes a few kernels of.

        Without one they would be many, and slower than PyTorch's own norm.
        """
        normal: Tensor
        normal, mean, variance = _Normalise.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, self.group.planes, self.eps
        )
        count, rate = x.numel() // self.num_features, self.momentum
        assert rate is not None
        with torch.no_grad():
            self.get_buffer("running_mean").lerp_(mean, rate)
            self.get_buffer("running_var").lerp_(variance * (count / (count - 1)), rate)
        return normal


class GroupPool(nn.Module):
    """From features to an image: the mean or the maximum over planes.

    What comes out turns with the image, and has no planes any more. Its mean over space does not
    tell an image from its turned copies.
    """

    def __init__(self, group: Group, kind: Literal["mean", "max"] = "mean") -> None:
        super().__init__()
        if kind not in ("mean", "max"):
            raise ValueError(f"planes are pooled by 'mean' or 'max', not by {kind!r}")
        self.group, self.kind = group, kind

    def forward(self, x: Tensor) -> Tensor:
        planes: Tensor = x.unflatten(1, (self.group.planes, -1))
        return planes.mean(1) if self.kind == "mean" else largest(planes, 1)


def _rows(group: Group, planes: int, after: int, kernel: int) -> Tensor:
    """Say which row of the weight each row of the filters is a copy of.

    The filter of plane s for plane h of the input is the weight's plane s^-1 h, moved by s. Rows of
    the filters are numbered by s, output channel and place in the kernel, and then by h.
    """
    weight = torch.arange(planes * kernel**2).view(planes, kernel, kernel)
    filters = []
    for element in range(group.planes):
        undo = group.inverse(element)
        source = [group.product(plane, undo) if planes > 1 else 0 for plane in range(planes)]
        filters.append(group.act(weight[source], element).permute(1, 2, 0))
    of_one = torch.stack(filters)[:, None]
    offsets = torch.arange(after).view(1, after, 1, 1, 1) * (planes * kernel**2)
    return (of_one + offsets).flatten()
