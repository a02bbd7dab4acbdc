"""A data set and a trained network, small enough to be made within the tests."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEIGHT, WIDTH = 9, 12


@cache
def bars(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy images, float64, of a bar that lies, stands, or leans to one side or the other."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    angle = labels * torch.pi / 4 + 0.2 * torch.randn(count, generator=generator)
    x = torch.arange(WIDTH) - (WIDTH - 1) / 2
    y = torch.arange(HEIGHT)[:, None] - (HEIGHT - 1) / 2
    across = angle.sin()[:, None, None] * x + angle.cos()[:, None, None] * y
    bar = torch.exp(-(across**2))[:, None] * torch.tensor([0.8, 0.5])[:, None, None]
    noise = 0.2 * torch.rand(count, 2, HEIGHT, WIDTH, generator=generator)
    return (bar + noise).double(), labels


@cache
@torch.enable_grad()
def trained_network() -> nn.Module:
    """A network, float64, that has learned to tell the bars apart."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(2, 8, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(3),
            nn.Flatten(),
            nn.Linear(8 * (HEIGHT // 3) * (WIDTH // 3), 4),
        ).double()
    images, labels = bars(256, seed=1)
    weights = list(network.parameters())
    velocity = [torch.zeros_like(weight) for weight in weights]
    for _ in range(60):
        loss = F.cross_entropy(network(images), labels)
        for weight, speed, slope in zip(
            weights, velocity, torch.autograd.grad(loss, weights), strict=True
        ):
            speed.mul_(0.9).sub_(0.1 * slope)
            weight.data.add_(speed)
    return network.eval()
