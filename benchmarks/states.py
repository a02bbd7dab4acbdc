"""What a state costs and how sure it is: bytes written, and how far logits differ by rounding.

    python benchmarks/states.py

Bytes: 164,000 tiny images through a function that does nothing, so that the state is all the work.
Rounding: networks of the zoo in float32, on batches of several sizes, by one and two threads; the
largest difference of a logit, as a part of the largest. Beside it what a thousandth more in the
weights of one layer does: a state takes a function for another at a ten-thousandth. Two cores that
are idle take a minute.
"""

from __future__ import annotations

import copy
import itertools
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from upright import evaluate, zoo
from upright.evaluation import state
from upright.files import write_whole

__all__ = ["bytes_written", "rounding"]


def bytes_written(images: int = 164_000) -> tuple[int, int]:
    """Evaluate so many images; give the bytes that were written, and those of the state."""
    written = [0]

    def count(path: Path, content: bytes) -> None:
        written[0] += len(content)
        write_whole(path, content)

    data = torch.rand(1, 1, 1, 2).expand(images, 1, 1, 2), torch.arange(images) % 2
    state.write_whole = count  # type: ignore[attr-defined]
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state"
            evaluate(lambda x: x.flatten(1), data, attacks=["wo-1"], batch_size=4096, state=file)
            return written[0], file.stat().st_size
    finally:
        state.write_whole = write_whole  # type: ignore[attr-defined]


@torch.no_grad()
def rounding(network: nn.Module, images: Tensor) -> float:
    """Ask in several ways; give the largest difference as a part of the largest logit."""
    threads, answers = torch.get_num_threads(), []
    for many, batch in itertools.product((1, 2), (len(images), 7, 1)):
        torch.set_num_threads(many)
        answers.append(torch.cat([network(part) for part in images.split(batch)]))
    torch.set_num_threads(threads)
    return max(_apart(answers[0], answer) for answer in answers)


@torch.no_grad()
def _of_a_thousandth(network: nn.Module, images: Tensor, layer: int) -> float:
    other = copy.deepcopy(network)
    kernels = [weight for weight in other.parameters() if weight.ndim > 1]
    kernels[layer].data *= 1.001
    return _apart(network(images), other(images))


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max())


if __name__ == "__main__":
    written, size = bytes_written()
    print(f"a state of {size / 1e6:.1f} MB took {written / 1e6:.1f} MB of writing")
    images = torch.rand(32, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for name in ("cifar10/l2-rob-wo10", "svhn/std-star"):
        network = zoo.load(name)
        first, last = (_of_a_thousandth(network, images, layer) for layer in (0, -1))
        print(
            f"{name}: rounding {rounding(network, images):.1e}, a thousandth more in the first "
            f"layer {first:.1e}, in the last {last:.1e}"
        )
