"""Worst-case accuracy beside the other metrics of torchmetrics, in a plain loop.

    pip install torchmetrics
    python examples/torchmetrics_loop.py

The loop is the one that everybody writes. After each epoch the metrics see glyphs that were not
trained on: the accuracy as they are, and what is left of it at the worst of ten random poses of
each. Half a minute on one core:

    epoch 1: natural 89.0%, wo-10 35.0%
    epoch 2: natural 97.5%, wo-10 63.5%
    epoch 3: natural 97.5%, wo-10 71.0%
    epoch 4: natural 98.0%, wo-10 79.0%
    epoch 5: natural 98.0%, wo-10 81.0%
    epoch 6: natural 98.0%, wo-10 79.5%
    epoch 7: natural 99.0%, wo-10 86.0%
    epoch 8: natural 99.0%, wo-10 86.5%
"""

from __future__ import annotations

import torch
import tyro
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

from upright import RegularizedLoss
from upright.data.glyphs import glyphs
from upright.integrations.torchmetrics import WorstCaseAccuracy
from upright.models import build_network


def main(
    *,
    objective: str = "std*",
    epochs: int = 8,
    train_images: int = 4000,
    test_images: int = 200,
    attack: str = "wo-10",
    seed: int = 0,
) -> None:
    """Train a small network on glyphs.

    Args:
        objective: std, std* or Reg(batch, def) as in the paper.
        epochs: through the glyphs to train on.
        train_images: how many glyphs to train on.
        test_images: how many others to measure on.
        attack: what to measure with, such as grid-775 or wo-10.
        seed: of the network and of everything that is drawn.
    """
    torch.manual_seed(seed)
    network = build_network("convnet")
    batches = DataLoader(glyphs(train_images), batch_size=64, shuffle=True, drop_last=True)
    held = DataLoader(glyphs(test_images, split="test"), batch_size=50)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    loss = RegularizedLoss(objective, generator=torch.Generator().manual_seed(seed))
    accuracy = MulticlassAccuracy(num_classes=10, average="micro")
    worst = WorstCaseAccuracy(network, attack)
    for epoch in range(1, epochs + 1):
        for images, labels in batches:
            optimizer.zero_grad()
            loss(network.train(), images, labels).total.backward()
            optimizer.step()
        network.eval()
        for images, labels in held:
            accuracy.update(network(images), labels)
            worst.update(images, labels)  # the network is its own
        print(f"epoch {epoch}: natural {accuracy.compute():.1%}, {attack} {worst.compute():.1%}")
        accuracy.reset()
        worst.reset()


if __name__ == "__main__":
    tyro.cli(main)
