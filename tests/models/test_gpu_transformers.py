"""STN and ETN on the fast path, with Adam. These tests need a GPU, and say so."""

from __future__ import annotations

import warnings

import pytest
import torch

from gpu_steps import noise
from upright.train import PLAIN, Recipe, SlowPath, Speed
from upright.train.learner import Learner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def steps(recipe: Recipe, speed: Speed) -> dict[str, float]:
    learner = Learner(recipe, noise(256), torch.device("cuda"), speed)
    for step in range(5):
        learner.step(step)
    # The loss alone does not say it: what predicts a pose of no numbers shows black.
    assert all(bool(tensor.isfinite().all()) for tensor in learner.state().values())
    return learner.means()


# Each network in both precisions, each objective too, and not all three: most of a test compiles.
@pytest.mark.parametrize(
    ("model", "objective", "precision"),
    [
        ("stn10", "std*", "bfloat16"),
        ("stn10", "KL(rob, Wo-4)", "float32"),
        ("etn10", "KL(rob, Wo-4)", "bfloat16"),
        ("etn10", "std*", "float32"),
        ("stn-affine10", "KL(rob, Wo-4)", "float32"),
        ("stn-affine10", "LocNet(black)", "bfloat16"),
        ("stn10", "LocNet(black)", "float32"),
    ],
)
def test_graph_takes_the_steps_of_the_plain_loop(
    model: str, objective: str, precision: str
) -> None:
    recipe = Recipe(
        objective=objective,
        model=model,
        steps=100,
        optimizer="adam",
        learning_rate=1e-4,
        precision=precision,  # type: ignore[arg-type]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowPath)  # a step that cannot be captured fails here
        found = steps(recipe, Speed())
    # Dropout draws other numbers in a compiled network, hence not closer.
    assert found["total"] == pytest.approx(steps(recipe, PLAIN)["total"], rel=0.3)
