"""On how many images of a data set float32 and the fast path disagree, for a trained run.

    python benchmarks/gpu_agreement.py RUN [--data cifar10] [--precision float16]

Both evaluate the same weights on the whole test split, on a GPU. The fast path may differ on at
most 0.1 % of the images.
"""

from __future__ import annotations

import argparse
import time

import torch

from upright import evaluate
from upright.data import load_data
from upright.evaluation import Evaluation
from upright.models import in_half_precision
from upright.sources import load_model

CUDA = torch.device("cuda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--attack", default="grid-775")
    parser.add_argument("--precision", choices=("float16", "bfloat16"), default="float16")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    data = load_data(options.data, split="test")
    model = load_model(options.run, device=CUDA)
    found: dict[str, Evaluation] = {}
    for name, answers in (
        ("float32", model),
        ("fast", in_half_precision(model, options.precision)),
    ):
        began = time.perf_counter()
        found[name] = evaluate(
            answers,
            (data.images, data.labels),
            attacks=[options.attack],
            only_accuracy=True,
            device=CUDA,
        )
        accuracy = found[name].attacks[options.attack].accuracy
        seconds = time.perf_counter() - began
        print(
            f"{name}: natural {100 * found[name].natural_accuracy:.2f} %, "
            f"{options.attack} {100 * accuracy:.2f} %, {seconds:.1f} s",
            flush=True,
        )
    correct = [each.attacks[options.attack].correct for each in found.values()]
    differing = int((correct[0] != correct[1]).sum())
    print(f"differing: {differing} of {len(data)} images ({100 * differing / len(data):.2f} %)")


if __name__ == "__main__":
    main()
