"""Batch norm over the images of all ranks.

PyTorch's ``SyncBatchNorm`` runs on GPUs only and insists on counting batches, so that it could
neither be held against one process in a test nor stand in for the norms of our networks.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from upright.ranks import Ranks

__all__ = ["GlobalBatchNorm", "with_global_norms"]


class _Sum(torch.autograd.Function):
    """The sum over all ranks; what flows back to a rank comes from all of them."""

    @staticmethod
    def forward(_context: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_context: Any, slope: Tensor) -> Tensor:
        total = slope.contiguous().clone()
        dist.all_reduce(total)
        return total


class GlobalBatchNorm(nn.BatchNorm2d):
    """Takes the place of a batch norm, with its weights and buffers."""

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm, ranks: Ranks) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self.affine, self.track_running_stats = norm.affine, norm.track_running_stats
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked
        self.ranks = ranks

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(x.dtype, torch.float32)
            return self._normalise(x.to(wide)).to(x.dtype)

    def _check_input_dim(self, _x: Tensor) -> None:
        """Take inputs of any number of dimensions: images, sequences and volumes alike."""

    def _normalise(self, x: Tensor) -> Tensor:
        count, mean, variance = self._statistics(x)
        self._remember(mean.detach(), (variance * count / (count - 1)).detach())
        scale = torch.rsqrt(variance + self.eps)
        places = (-1, *[1] * (x.ndim - 2))
        normal = (x - mean.view(places)) * scale.view(places)
        return normal * self.weight.view(places) + self.bias.view(places) if self.affine else normal

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The count, mean and variance over all ranks, from those of each rank (Chan et al. 1983).

        Each rank puts its own into a row of its own: sums of squares would lose digits.
        """
        variance, mean = torch.var_mean(x, (0, *range(2, x.ndim)), correction=0)
        count = mean.new_full((1,), x.numel() // x.shape[1])
        own = torch.cat((count, mean, variance))[None]
        rows = F.pad(own, (0, 0, self.ranks.rank, self.ranks.size - 1 - self.ranks.rank))
        everyone: Tensor = _Sum.apply(rows)  # type: ignore[no-untyped-call]
        counts, means, variances = everyone.split((1, len(mean), len(mean)), 1)
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        return total, mean, (counts * (variances + (means - mean) ** 2)).sum(0) / total

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics as ``nn.BatchNorm2d`` does."""
        if not self.track_running_stats:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        rate = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            rate = 1 / float(self.num_batches_tracked) if rate is None else rate
        assert rate is not None
        self.running_mean.lerp_(mean, rate)
        self.running_var.lerp_(variance, rate)


def with_global_norms(model: nn.Module, ranks: Ranks) -> nn.Module:
    """Let all batch norms inside a network take their statistics over all ranks, in place."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if not isinstance(child, nn.modules.batchnorm._BatchNorm):
                continue
            if type(child) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
                raise ValueError(
                    f"a norm of kind {type(child).__name__} cannot be synchronised over processes; "
                    "use the plain ones, or leave --sync-batch-norm out"
                )
            setattr(parent, name, GlobalBatchNorm(child, ranks))
    return model
