"""The paper's objectives, slowly and in float64, written from its formulas.

Nothing here is shared with the library. An image is moved by hat functions, searches ask the
network about one image at a time, and sums run over images in Python.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["LIMITS", "Expected", "Method", "Wanted", "draw", "reference"]

LIMITS = (1.5, 2.0, 40.0)
"""The box of poses: dx and dy in pixels, angle in degrees."""

Wanted = Literal["loss", "penalty"]
"""What an x' maximises."""


@dataclass(frozen=True)
class Method:
    """A method of the paper, with what its notation leaves open."""

    name: str
    batch: str
    defence: str
    weight: float
    draws: int = 1
    scale: float = 0.25
    natural_first: bool = True
    """Whether the divergence is KL(f(X) || f(x')); otherwise it is KL(f(x') || f(X))."""
    steps: int = 5
    step: tuple[float, float, float] = tuple(limit / 100 for limit in LIMITS)  # type: ignore[assignment]
    restarts: int = 1
    shares_search: bool | None = None
    """Whether the x' of the penalty serves the cross-entropy too; None: as the authors have it."""

    @property
    def shown(self) -> Wanted | None:
        """What the x' of the cross-entropy maximises."""
        shares = self.shares_search
        if shares is None:
            shares = (self.name, self.batch) == ("KL", "rob")
        return None if self.batch == "nat" else "penalty" if shares else "loss"

    @property
    def penalised(self) -> Wanted | None:
        """What the x' of the penalty maximises."""
        return None if self.name == "AT" else "penalty" if self.name in ("L2", "KL") else "loss"


@dataclass(frozen=True)
class Expected:
    """A loss and its parts; ``poses`` holds one pose for each copy of each image."""

    total: Tensor
    natural: Tensor | None
    transformed: Tensor | None
    penalty: Tensor | None
    poses: dict[Wanted, list[Tensor]]


def reference(method: Method, net: nn.Module, images: Tensor, labels: list[int]) -> Expected:
    """Compute the loss of a training step, with one pass of the network over all its images."""
    poses = _search(method, net, images, labels)
    copies, pairs = list(images) * method.draws, range(len(images) * method.draws)
    batch = list(images) if method.penalised or method.batch != "rob" else []
    start: dict[Wanted | None, int] = {}
    for target, found in poses.items():
        if method.defence == "rnd" and start:  # the only draw there is serves both purposes
            start[target] = len(images)
            continue
        start[target] = len(batch)
        batch += [_moved(x, pose).detach() for x, pose in zip(copies, found, strict=True)]
    logits: Tensor = net.train()(torch.stack(batch))

    def robust(want: Wanted | None, pair: int) -> Tensor:
        return logits[start[want] + pair]

    def original(pair: int) -> int:
        return pair % len(images)

    natural = transformed = penalty = None
    if method.penalised or method.batch != "rob":
        natural = _mean(_cross_entropy(logits[i], label) for i, label in enumerate(labels))
    if want := method.shown or method.penalised:
        transformed = _mean(_cross_entropy(robust(want, i), labels[original(i)]) for i in pairs)
    seen = {"nat": [natural], "rob": [transformed], "mix": [natural, transformed]}[method.batch]
    total = _mean(part for part in seen if part is not None)
    if method.penalised:
        penalty = _mean(
            _distance(method, logits[original(i)], robust(method.penalised, i)) for i in pairs
        )
        total = total + method.weight * penalty
    return Expected(total, natural, transformed, penalty, poses)


def draw(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw dx, dy and degrees, uniformly from the box."""
    unit = torch.rand(*shape, 3, generator=generator, dtype=torch.float64)
    return (2 * unit - 1) * torch.tensor(LIMITS, dtype=torch.float64)


# --- images and values ----------------------------------------------------------------------------


def _moved(image: Tensor, pose: Tensor) -> Tensor:
    """Turn an image about its centre, counter-clockwise, then shift it right and down."""
    height, width = image.shape[1:]
    dx, dy, degrees = pose
    cos, sin = torch.cos(degrees * math.pi / 180), torch.sin(degrees * math.pi / 180)
    rows = torch.arange(height, dtype=torch.float64)
    columns = torch.arange(width, dtype=torch.float64)
    right = (columns - (width - 1) / 2 - dx)[None, :]
    down = (rows - (height - 1) / 2 - dy)[:, None]
    from_column = cos * right - sin * down + (width - 1) / 2
    from_row = sin * right + cos * down + (height - 1) / 2
    by_row, by_column = _hat(from_row[..., None] - rows), _hat(from_column[..., None] - columns)
    shares = by_row[..., :, None] * by_column[..., None, :]  # of each pixel in each new pixel
    return (shares.flatten(2) @ image.flatten(1).T).movedim(-1, 0)


def _hat(distance: Tensor) -> Tensor:
    return torch.clamp(1 - distance.abs(), min=0)


def _log_probabilities(logits: Tensor) -> Tensor:
    return logits - logits.exp().sum().log()


def _cross_entropy(logits: Tensor, label: int) -> Tensor:
    return -_log_probabilities(logits)[label]


def _distance(method: Method, natural: Tensor, transformed: Tensor) -> Tensor:
    if method.name in ("L2", "ALP"):
        return method.scale * ((natural - transformed) ** 2).sum()
    if not method.natural_first:
        natural, transformed = transformed, natural
    log_p, log_q = _log_probabilities(natural), _log_probabilities(transformed)
    return torch.dot(log_p.exp(), log_p - log_q)


def _mean(values: Iterable[Tensor]) -> Tensor:
    listed = list(values)
    return sum(listed, torch.zeros((), dtype=torch.float64)) / len(listed)


# --- searches -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    """What a search maximises for one image, by a network with fixed statistics."""

    method: Method
    fixed: nn.Module
    image: Tensor
    label: int
    wanted: Wanted

    @cached_property
    def natural(self) -> Tensor:
        logits: Tensor = self.fixed(self.image[None])[0]
        return logits.detach()

    def __call__(self, pose: Tensor) -> Tensor:
        logits: Tensor = self.fixed(_moved(self.image, pose)[None])[0]
        if self.wanted == "loss":
            return _cross_entropy(logits, self.label)
        return _distance(self.method, self.natural, logits)


def _search(
    method: Method, net: nn.Module, images: Tensor, labels: list[int]
) -> dict[Wanted, list[Tensor]]:
    """Find the pose of each copy of each image, copies outermost, for each purpose."""
    fixed = copy.deepcopy(net).eval()
    generator = torch.Generator().manual_seed(0)
    pairs = list(zip(images, labels, strict=True)) * method.draws
    poses: dict[Wanted, list[Tensor]] = {}
    tries: list[list[Tensor]] = []
    for want in (method.shown, method.penalised):
        if want is None or want in poses:
            continue
        if not tries or method.defence == "S-PGD":  # random tries serve both purposes
            tries = _tries(method, len(pairs), generator)
        poses[want] = [
            _highest(_Judge(method, fixed, image, label, want), mine)
            for (image, label), mine in zip(pairs, tries, strict=True)
        ]
    return poses


def _tries(method: Method, count: int, generator: torch.Generator) -> list[list[Tensor]]:
    """List the poses that each image tries, or from which it climbs."""
    kind, _, size = method.defence.partition("-")
    if kind == "grid":
        return [_grid([int(part) for part in size.split("x")])] * count
    each = {"rnd": 1, "S": method.restarts}.get(kind) or int(size)
    return [list(poses) for poses in draw(generator, count, each)]


def _grid(counts: list[int]) -> list[Tensor]:
    axes = [
        [0.0] if n == 1 else [-limit + 2 * limit * i / (n - 1) for i in range(n)]
        for n, limit in zip(counts, LIMITS, strict=True)
    ]
    return [torch.tensor(pose, dtype=torch.float64) for pose in product(*axes)]


def _highest(judge: _Judge, tries: list[Tensor]) -> Tensor:
    if judge.method.defence == "S-PGD":
        tries = [_climb(judge, pose) for pose in tries]
    return max(tries, key=lambda pose: judge(pose).item())


def _climb(judge: _Judge, pose: Tensor) -> Tensor:
    """Step along the signs of the gradient, and back into the box."""
    step, limits = pose.new_tensor(judge.method.step), pose.new_tensor(LIMITS)
    for _ in range(judge.method.steps):
        position = pose.clone().requires_grad_()
        (slope,) = torch.autograd.grad(judge(position), position)
        pose = (pose + step * slope.sign()).clamp(-limits, limits)
    return pose
