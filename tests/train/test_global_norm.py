"""Batch norm over three ranks against PyTorch's over all images in one process, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rank_pool import RankPool
from upright.ranks import ALONE, Ranks
from upright.train.global_norm import GlobalBatchNorm, with_global_norms

NORMS: list[tuple[type[nn.Module], dict[str, Any], tuple[int, ...]]] = [
    (nn.BatchNorm2d, {}, (7, 3, 4, 5)),
    (nn.BatchNorm1d, {"momentum": None}, (8, 3)),
    (nn.BatchNorm3d, {"affine": False, "eps": 0.1}, (5, 3, 2, 2, 2)),
    (nn.BatchNorm2d, {"track_running_stats": False}, (3, 3, 2, 2)),
]


def images_of(shape: tuple[int, ...]) -> Tensor:
    """Channels far from 0, where sums of squares would lose digits."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64) + 100


def normalise(norm: nn.Module, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Two passes, the second one backwards too; and what is left in the norm."""
    norm(2 * x + 1)
    x = x.clone().requires_grad_()
    y = norm(x)
    (y**2 * weights).sum().backward()
    assert x.grad is not None
    found = {"y": y.detach(), "slope": x.grad}
    found |= {name: p.grad for name, p in norm.named_parameters() if p.grad is not None}
    return found | {f"buffer {name}": b for name, b in norm.named_buffers()}


def build(kind: type[nn.Module], options: dict[str, Any]) -> nn.Sequential:
    torch.manual_seed(0)
    norm = kind(3, **options).double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return nn.Sequential(norm).train()


def on_a_rank(ranks: Ranks, case: int) -> dict[str, Tensor]:
    kind, options, shape = NORMS[case]
    x, weights = images_of(shape), images_of(shape).flip(0)
    part = ranks.part(len(x))
    norm = with_global_norms(build(kind, options), ranks)
    return normalise(norm, part.take(x), part.take(weights))


def merged(name: str, parts: list[Tensor]) -> Tensor:
    """What one process would have, from what each rank has."""
    if name in ("y", "slope"):
        return torch.cat(parts)
    if name.startswith("buffer"):
        assert all(part.equal(parts[0]) for part in parts)
        return parts[0]
    return torch.stack(parts).sum(0)  # of a parameter's gradient each has its images' share


def test_statistics_slopes_and_buffers_are_those_of_one_process(tmp_path: Path) -> None:
    with RankPool(tmp_path, size=3) as pool:
        for case, (kind, options, shape) in enumerate(NORMS):
            x = images_of(shape)
            expected = normalise(build(kind, options), x, x.flip(0))
            found = pool.run(on_a_rank, case)
            for name, tensor in expected.items():
                mine = merged(name, [one[name] for one in found])
                torch.testing.assert_close(mine, tensor, rtol=1e-9, atol=1e-9, msg=f"{kind} {name}")


def test_a_network_keeps_its_names_and_gives_the_same_in_evaluation_mode() -> None:
    norm = build(nn.BatchNorm2d, {})
    names, x = list(norm.state_dict()), images_of((4, 3, 2, 2))
    before = norm.eval()(x)
    assert isinstance(with_global_norms(norm, ALONE)[0], GlobalBatchNorm)
    assert list(norm.state_dict()) == names
    assert torch.equal(norm.eval()(x), before)


def test_a_norm_with_more_in_it_is_refused() -> None:
    class Activated(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu()

    with pytest.raises(ValueError, match="kind Activated cannot be synchronised"):
        with_global_norms(nn.Sequential(Activated(3)), ALONE)
