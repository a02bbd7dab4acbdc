"""An evaluation on a GPU answers as one on the host. These tests need a GPU, and say so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bar_images import bars
from rigid_spaces import rigid
from upright import Evaluation, ensemble, evaluate, tta
from upright.models import Compiled, build_network

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

IMAGES, _ = bars(1100, seed=3)  # three chunks: of two, one is on its way while one is measured
WEIGHTS = torch.randn(
    IMAGES[0].numel(), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
)
LABELS = (IMAGES.flatten(1) @ WEIGHTS).argmax(1)


def measure(device: str, images: Tensor, attack: str, **options: Any) -> Evaluation:
    weights = WEIGHTS.to(device)

    def model(images: Tensor) -> Tensor:
        return images.double().flatten(1) @ weights

    data = (images, LABELS.to(images.device))
    return evaluate(model, data, attacks=[attack], space=rigid(0.4, 5), device=device, **options)


@pytest.mark.parametrize("only_accuracy", [False, True])
@pytest.mark.parametrize("attack", ["grid-3x3x7", "wo-9", "refine-20", "s-pgd"])
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_gpu_says_the_same(place: str, attack: str, only_accuracy: bool) -> None:
    here = measure("cpu", IMAGES, attack, only_accuracy=only_accuracy)
    there = measure("cuda", IMAGES.to(place), attack, only_accuracy=only_accuracy)
    torch.testing.assert_close(there.natural_loss, here.natural_loss)
    one, other = here.attacks[attack], there.attacks[attack]
    # Rounding may decide about an image at a border, or which of two poses is the worse.
    assert (one.correct != other.correct).float().mean() < 0.01
    if one.worst_loss is not None and other.worst_loss is not None and attack != "s-pgd":
        near = torch.isclose(one.worst_loss, other.worst_loss, rtol=1e-3)
        assert near.float().mean() > 0.99


@pytest.mark.parametrize("over", ["mirror", "3+mirror", "grid-3x3@shift(1px)"])
def test_a_mean_of_networks_is_the_same_on_a_gpu(over: str) -> None:
    networks = [build_network("convnet0.5").eval() for _ in range(2)]
    images = torch.rand(12, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    here = tta(ensemble(*networks), over)(images)
    there = tta(ensemble(*networks), over).cuda()(images.cuda())
    torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-3)


def test_a_compiled_network_says_on_a_gpu_what_it_says_plain() -> None:
    network = build_network("convnet0.5").eval().cuda()
    images = torch.rand(70, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        labels = network(images.cuda()).argmax(1).cpu()
    asked: dict[str, Any] = {"attacks": ["grid-3x3x3"], "device": "cuda", "batch_size": 64}
    plain = evaluate(network, (images, labels), **asked).attacks["grid-3x3x3"]
    compiled = evaluate(Compiled(network, batch_size=64), (images, labels), **asked)
    differing = plain.correct != compiled.attacks["grid-3x3x3"].correct
    assert differing.float().mean() < 0.05
