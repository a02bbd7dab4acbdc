"""G-ResNet in the GPU engine computes what it does in a plain loop. These tests need a GPU."""

from __future__ import annotations

import pytest
import torch

from gpu_steps import noise, plain_and_recorded
from upright.models import build_network
from upright.models.group_conv import P4M, GroupConv
from upright.train import PLAIN, Recipe, Speed
from upright.train.learner import Learner
from upright.train.network import model_tensors, restore_tensors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

CUDA = torch.device("cuda")
NAME = "gresnet8x0.3-pool"


@pytest.mark.parametrize("objective", ["std*", "KL(rob, Wo-4)"])
def test_graph_takes_the_steps_of_the_plain_loop(objective: str) -> None:
    recipe = Recipe(objective=objective, model=NAME, steps=100, learning_rate=0.01)
    plain, graph = plain_and_recorded(recipe)
    assert graph.speed.graph
    assert graph.means()["total"] == pytest.approx(plain.means()["total"], rel=1e-3)
    for name, tensor in plain.state().items():
        assert torch.allclose(graph.state()[name], tensor, rtol=1e-2, atol=1e-3), name


@pytest.mark.parametrize("speed", [Speed(), Speed(compile=False)])
def test_what_was_evaluated_between_replays_is_not_stale(speed: Speed) -> None:
    recipe = Recipe(objective="KL(rob, Wo-2)", model=NAME, steps=100, precision="bfloat16")
    learner = Learner(recipe, noise(), CUDA, speed)
    images = torch.rand(8, 3, 32, 32, device=CUDA)
    for step in range(6):
        learner.step(step)
        torch.cuda.synchronize()  # it works on a stream of its own
        learner.model.eval()
        fresh = build_network(NAME).to(CUDA).to(memory_format=torch.channels_last).eval()
        restore_tensors(fresh, model_tensors(learner.model))
        with torch.no_grad():  # convolutions may differ in their algorithm, in TF32
            torch.testing.assert_close(learner.model(images), fresh(images), rtol=1e-2, atol=1e-2)


def test_loss_and_gradient_of_the_engine_agree_within_the_error_of_bfloat16() -> None:
    found = {}
    for name, precision, speed in (("plain", "float32", PLAIN), ("engine", "bfloat16", Speed())):
        recipe = Recipe(
            objective="KL(rob, Wo-4)",
            model=NAME,
            steps=9,
            precision=precision,
            momentum=0.0,
            weight_decay=0.0,
        )
        learner = Learner(recipe, noise(), CUDA, speed)
        before = torch.cat([p.detach().flatten().clone() for p in learner.model.parameters()])
        learner.step(0)
        torch.cuda.synchronize()  # it works on a stream of its own
        after = torch.cat([p.detach().flatten() for p in learner.model.parameters()])
        found[name] = (learner.means()["total"], before - after)
    assert found["engine"][0] == pytest.approx(found["plain"][0], rel=2e-2)
    error = (found["engine"][1] - found["plain"][1]).norm() / found["plain"][1].norm()
    assert error < 0.15


def test_the_gradient_of_the_filters_is_the_same_at_every_run() -> None:
    conv = GroupConv(P4M, 16, 16, 3).to(CUDA)
    gradient = torch.randn(conv.filters().shape, device=CUDA)
    first, again = (torch.autograd.grad(conv.filters(), conv.weight, gradient) for _ in range(2))
    assert torch.equal(first[0], again[0])
