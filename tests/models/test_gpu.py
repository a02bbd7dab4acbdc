"""The fast path computes what the plain one does. These tests need a GPU, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_steps import noise, plain_and_recorded
from upright import Pose, evaluate, warp, warp_all
from upright.data import LabelledImages
from upright.evaluation import Oracle
from upright.models import FusedResNet, FusedTraining, build_network
from upright.models.fused import differentiable_stage, stage
from upright.models.fused.differentiable_stage import DifferentiableStage
from upright.models.fused.nvrtc import CudaKernel
from upright.models.fused.pipelined_stage import PipelinedShape
from upright.models.fused.stage import StageShape, run_stage
from upright.models.resnet import ResNet
from upright.objective import RegularizedLoss
from upright.space import PAPER
from upright.train import PLAIN, Recipe, Speed, batches, train, train_together
from upright.train.batches import augmented_rows
from upright.train.learner import Learner, SlowPath, seeding_on

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    """float32 is float32: by default convolutions round their inputs to ten bits."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def trained_like(depth: int = 14) -> ResNet:
    """A network whose norms are far from their start."""
    torch.manual_seed(0)
    model = build_network(f"resnet{depth}").to(CUDA).to(memory_format=torch.channels_last)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.3)
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
    assert isinstance(model, ResNet)
    return model.eval()


@pytest.mark.parametrize("size", [(32, 32), (17, 30)])
def test_fused_network_gives_the_logits_of_the_layered_one(size: tuple[int, int]) -> None:
    model, images = trained_like(), torch.rand(37, 3, *size, device=CUDA)
    with torch.no_grad():
        exact = model.double()(images.double())
    model.float()
    half = torch.autocast("cuda", torch.bfloat16)
    with torch.no_grad(), half:
        layered = model(images).double()
    fused = FusedResNet(model)(images).double()
    error = (fused - exact).norm() / exact.norm()
    assert error < 2e-2
    assert error < 1.5 * (layered - exact).norm() / exact.norm() + 1e-3


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_stage_in_one_kernel_gives_what_its_layers_give(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, images = trained_like(depth=20), torch.rand(37, 3, 32, 32, device=CUDA)
    launched: list[StageShape] = []

    def noted(
        kernel: CudaKernel, shape: StageShape, *rest: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        launched.append(shape)
        return run_stage(kernel, shape, *rest)

    monkeypatch.setattr(stage, "run_stage", noted)
    with torch.no_grad():
        at_once = FusedResNet(model, dtype)(images)
        assert launched == [
            StageShape(16, 32, 32, dtype, stem=True),
            StageShape(32, 16, 16, dtype),
            PipelinedShape(64, 8, 8, dtype),
        ]
        monkeypatch.setattr(stage, "stage_kernel", lambda *_: None)
        layered = FusedResNet(model, dtype)(images)
        exact = model.double()(images.double())
    assert len(launched) == 3
    assert relative(at_once, exact) < 1.2 * relative(layered, exact)


def test_float16_is_nearer_to_the_exact_logits_than_bfloat16() -> None:
    model, images = trained_like(), torch.rand(64, 3, 32, 32, device=CUDA)
    with torch.no_grad():
        exact = model.double()(images.double())
        model.float()
        errors = {
            dtype: relative(FusedResNet(model, dtype).freeze()(images), exact)
            for dtype in (torch.float16, torch.bfloat16)
        }
    assert errors[torch.float16] < errors[torch.bfloat16] / 4


def test_small_gradients_of_images_are_not_lost_in_float16() -> None:
    model, images = trained_like(), torch.rand(8, 3, 32, 32, device=CUDA, requires_grad=True)
    fused = FusedResNet(model, torch.float16).freeze()
    large, small = (
        torch.autograd.grad(size * fused(images)[:, 0].sum(), images)[0] for size in (1, 1e-9)
    )
    assert relative(1e9 * small, large.double()) < 2e-2


@pytest.mark.parametrize("size", [(32, 32), (17, 30)])
def test_fused_network_gives_the_gradient_of_the_images(size: tuple[int, int]) -> None:
    model, images = trained_like(), torch.rand(37, 3, *size, device=CUDA, requires_grad=True)
    ways = torch.randn(37, 10, device=CUDA)

    def gradient(logits: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((logits * ways).sum(), images)[0]

    exact = gradient(model.double()(images.double()))
    model.float()
    with torch.autocast("cuda", torch.bfloat16):
        layered = model(images)
    error = relative(gradient(FusedResNet(model)(images)), exact.double())
    assert error < 1.5 * relative(gradient(layered), exact.double()) + 1e-3


@pytest.mark.parametrize("depth", [14, 32])
def test_the_gradient_in_one_kernel_a_stage_gives_what_its_layers_give(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained_like(depth)
    images = torch.rand(64, 3, 32, 32, device=CUDA, requires_grad=True)
    ways = torch.randn(64, 10, device=CUDA)
    asked: list[StageShape] = []
    compiled = differentiable_stage.differentiable_stage

    def noted(shape: StageShape, device: torch.device) -> DifferentiableStage | None:
        asked.append(shape)
        found = compiled(shape, device)
        assert found is not None
        return found

    def answer(run: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logits = run(images)
        return logits.detach(), torch.autograd.grad((logits * ways).sum(), images)[0]

    monkeypatch.setattr(differentiable_stage, "differentiable_stage", noted)
    at_once = answer(FusedResNet(model))
    assert asked == [
        StageShape(16, 32, 32, torch.bfloat16, stem=True, signs=True),
        StageShape(32, 16, 16, torch.bfloat16, signs=True),
        PipelinedShape(64, 8, 8, torch.bfloat16, signs=True),
    ]
    monkeypatch.setattr(differentiable_stage, "differentiable_stage", lambda *_: None)
    layered = answer(FusedResNet(model))
    exact = answer(model)
    for mine, other, truth in zip(at_once, layered, exact, strict=True):
        assert relative(mine, truth.double()) < 1.2 * relative(other, truth.double())


@pytest.mark.parametrize("size", [(32, 32), (17, 30)])
def test_fused_training_gives_the_gradients_and_statistics_of_the_network(
    size: tuple[int, int],
) -> None:
    images, ways = torch.rand(64, 3, *size, device=CUDA), torch.randn(64, 10, device=CUDA)
    found = {}
    for name in ("exact", "layered", "fused"):
        model = trained_like().train()
        if name == "exact":
            logits = model.double()(images.double())
        elif name == "layered":
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(images)
        else:
            logits = FusedTraining(model)(images)
        (logits * ways).sum().backward()
        gradients = [p.grad.double().flatten() for p in model.parameters() if p.grad is not None]
        assert len(gradients) == len(list(model.parameters()))
        statistics = [b.double().flatten() for b in model.buffers() if b is not None]
        found[name] = logits.detach().double(), torch.cat(gradients), torch.cat(statistics)
    for part, exact in enumerate(found["exact"]):
        layered = relative(found["layered"][part], exact)
        assert relative(found["fused"][part], exact) < 1.5 * layered + 1e-3


def test_warp_on_the_gpu_is_warp_on_the_cpu() -> None:
    images = torch.rand(5, 3, 32, 32)
    poses = PAPER.sample(7, 5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(
        warp(images.to(CUDA), poses.to(CUDA)).cpu(), warp(images, poses), atol=1e-5
    )
    grid = PAPER.grid((2, 2, 3))
    assert torch.allclose(warp_all(images.to(CUDA), grid).cpu(), warp_all(images, grid), atol=1e-5)
    assert torch.equal(warp(images.to(CUDA), Pose.zeros(5)).cpu(), images)


def test_gradient_of_poses_on_the_gpu_is_that_on_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    images, ways = (torch.rand(5, 3, 40, 27, generator=generator) for _ in range(2))
    poses = PAPER.sample(5, generator=generator).values
    found = []
    for device in ("cpu", "cuda"):
        leaf = poses.to(device).requires_grad_()
        total = (warp(images.to(device), Pose(leaf)) * ways.to(device)).sum()
        found.append(torch.autograd.grad(total, leaf)[0].cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("objective", ["std", "std*"])
@pytest.mark.parametrize("flips", [True, False])
def test_rows_taken_by_a_kernel_are_those_taken_by_tensor_operations(
    objective: str, flips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, data = Recipe(objective=objective, flips=flips), noise()
    data = LabelledImages(data.images.to(CUDA), data.labels.to(CUDA), data.classes)
    rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:64].to(CUDA)

    def taken() -> batches.Augmented:
        return augmented_rows(data, rows, recipe, torch.Generator(CUDA).manual_seed(3))

    assert batches._has_kernel(data)
    found = taken()
    monkeypatch.setattr(batches, "_has_kernel", lambda _: False)
    expected = taken()
    torch.testing.assert_close(found.images, expected.images, rtol=1e-6, atol=0)
    assert found.labels.equal(expected.labels)


def test_a_network_draws_what_it_draws_after_a_seed_for_all_devices() -> None:
    with torch.random.fork_rng():
        seed_network = seeding_on(CUDA)
        seed_network(7)
        found = torch.rand(9), torch.rand(9, device=CUDA)
        torch.manual_seed(7)
        assert torch.rand(9).equal(found[0])
        assert torch.rand(9, device=CUDA).equal(found[1])


@pytest.mark.parametrize(
    "objective",
    [
        "std",
        "std*",
        "AT(rob, Wo-4)",
        "KL(rob, Wo-4)",
        "L2(mix, Wo-4)",
        "KL(rob, refine-20+rnd)",
        "LocNet(reflection)",
    ],
)
def test_graph_takes_the_steps_of_the_plain_loop(objective: str) -> None:
    recipe = Recipe(objective=objective, model="resnet8", steps=100, learning_rate=0.01)
    plain, graph = plain_and_recorded(recipe)
    expected, found = plain.means(), graph.means()
    assert found.keys() == expected.keys()
    assert found["total"] == pytest.approx(expected["total"], rel=1e-3)
    for name, tensor in plain.state().items():
        if tensor.norm() > 1e-3:  # a norm's offset may be all rounding
            assert relative(graph.state()[name], tensor.double()) < 1e-2, name


@pytest.mark.parametrize(
    "changes",
    [
        {"jitter": "brightness(0.2) contrast(0.7..1.4) saturation(0.5..2) hue(15)"},
        {"jitter": "zoom(0.8..1.25) stretch(0.9..1.1)"},
        {"mixup": 0.3, "cutout": 8, "smoothing": 0.1, "average": 0.9},
    ],
)
def test_a_graph_has_all_that_a_recipe_adds_to_the_papers(changes: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"model": "resnet8", "steps": 100, "learning_rate": 0.01, **changes}
    plain, graph = plain_and_recorded(Recipe(objective="L2(rob, Wo-4)", **fields))
    assert graph.speed.graph
    assert graph.means()["total"] == pytest.approx(plain.means()["total"], rel=1e-3)


@pytest.mark.parametrize("changes", [{}, {"flips": False}, {"cutout": 8}])
def test_a_graph_has_a_teacher_whether_it_is_asked_once_or_in_each_step(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"model": "resnet8", "steps": 100, "learning_rate": 0.01}
    taught_by = Recipe(objective="std*", **fields)
    teacher = train(taught_by, tmp_path / "teacher", data=noise(), device="cuda").path
    recipe = Recipe(objective="L2(rob, Wo-4)", teacher=str(teacher), **fields, **changes)
    plain, graph = plain_and_recorded(recipe)
    assert graph.speed.graph
    assert graph.means()["total"] == pytest.approx(plain.means()["total"], rel=1e-3)


def test_a_search_of_several_rounds_is_recorded() -> None:
    """On images of noise its later rounds turn rounding into other poses, so weights may differ."""
    objective = "KL(rob, refine-40+rnd)"
    recipe = Recipe(objective=objective, model="resnet8", steps=100, learning_rate=0.01)
    plain, graph = plain_and_recorded(recipe)
    assert graph.speed.graph
    assert graph.means()["total"] == pytest.approx(plain.means()["total"], rel=5e-3)


@pytest.mark.parametrize(
    "objective", ["AT(rob, Wo-4)", "KL(rob, Wo-4)", "KL-C(mix, S-PGD)", "LocNet(black)"]
)
def test_losses_and_gradients_agree_within_the_error_of_bfloat16(objective: str) -> None:
    found = {}
    for name, precision, speed in (
        ("float32", "float32", PLAIN),
        ("bfloat16", "bfloat16", PLAIN),
        ("engine", "bfloat16", Speed()),
    ):
        recipe = Recipe(
            objective=objective,
            model="resnet8",
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
        found[name] = (learner.means()["total"], (before - after) / recipe.learning_rate)
    loss, gradient = found["float32"]
    errors = {name: relative(found[name][1], gradient.double()) for name in ("bfloat16", "engine")}
    for name in errors:
        assert found[name][0] == pytest.approx(loss, rel=2e-2), name
    assert errors["bfloat16"] < 0.3
    assert errors["engine"] < 1.5 * errors["bfloat16"] + 1e-3


@pytest.mark.parametrize("first", [Speed(compile=False), PLAIN])
def test_run_continues_on_the_other_path_from_the_same_state(first: Speed) -> None:
    recipe = Recipe(objective="KL(rob, Wo-2)", model="resnet8", steps=6, precision="bfloat16")
    other = PLAIN if first != PLAIN else Speed(compile=False)
    unbroken, begun = (Learner(recipe, noise(), CUDA, speed) for speed in (PLAIN, first))
    for step in range(3):
        begun.step(step)
    continued = Learner(recipe, noise(), CUDA, other)
    continued.restore({name: tensor.clone() for name, tensor in begun.state().items()})
    for step in range(3, 6):
        continued.step(step)
    for step in range(6):
        unbroken.step(step)
    assert continued.means()["total"] == pytest.approx(unbroken.means()["total"], rel=0.2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_runs_side_by_side_give_what_each_gives_alone(tmp_path: Path, precision: Any) -> None:
    recipes = [
        Recipe(objective="KL(rob, Wo-2)", model="resnet8", steps=9, seed=s, precision=precision)
        for s in range(4)
    ]
    speed = Speed(compile=False)
    alone = [
        train(recipe, tmp_path / f"alone{recipe.seed}", data=noise(), device=CUDA, speed=speed)
        for recipe in recipes
    ]
    together = train_together(
        {tmp_path / f"both{recipe.seed}": recipe for recipe in recipes},
        data=noise(),
        device=CUDA,
        speed=speed,
    )
    # Sums by many programs at once are rounded in any order: near, not bit for bit.
    bound = 1e-2 if precision == "float32" else 0.1
    for one, other in zip(alone, together, strict=True):
        weights, same = (
            torch.cat([parameter.detach().flatten() for parameter in run.model.parameters()])
            for run in (one, other)
        )
        assert relative(same, weights.double()) < bound


def test_objective_that_cannot_be_recorded_goes_on_without_and_says_so() -> None:
    recipe = Recipe(objective="AT(rob, grid-3x3x3)", model="resnet8", steps=9)
    learner = Learner(recipe, noise(), CUDA, Speed(compile=False))
    with pytest.warns(SlowPath, match="no CUDA graph"):
        learner.step(0)
    learner.step(1)
    assert learner.is_sane()


def test_fused_network_finds_the_fooled_images_of_the_exact_one() -> None:
    model, data = trained_like(), noise(256)
    few = (data.images, data.labels)
    exact = evaluate(model, few, attacks=["grid-3x3x5"], device=CUDA)
    fast = evaluate(FusedResNet(model).freeze(), few, attacks=["grid-3x3x5"], device=CUDA)
    differing = exact.attacks["grid-3x3x5"].correct != fast.attacks["grid-3x3x5"].correct
    assert differing.float().mean() <= 0.02


def test_an_oracle_is_evaluated_where_its_images_are() -> None:
    network, data = build_network("convnet").to(CUDA).eval(), noise(16)
    oracle = Oracle(lambda moved: Pose.zeros(len(moved), device=moved.device), network).eval()
    found = evaluate(oracle, (data.images, data.labels), attacks=["grid-2x2x2"], device=CUDA)
    plain = evaluate(network, (data.images, data.labels), attacks=["grid-2x2x2"], device=CUDA)
    assert found.attacks["grid-2x2x2"].correct.equal(plain.attacks["grid-2x2x2"].correct)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("text", ["std", "std*", "KL(rob, Wo-3)", "L2(mix, S-PGD)"])
def test_a_users_loss_waits_for_nothing_after_its_first_batch(text: str) -> None:
    model, loss = build_network("convnet").to(CUDA), RegularizedLoss(text)
    images, labels = torch.rand(8, 3, 32, 32, device=CUDA), torch.arange(8, device=CUDA)
    loss(model, images, labels).total.backward()
    try:
        torch.cuda.set_sync_debug_mode("error")
        loss(model, images, labels).total.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_users_loss_can_be_recorded_in_a_graph() -> None:
    model, generator = build_network("convnet").to(CUDA), torch.Generator(CUDA).manual_seed(0)
    loss = RegularizedLoss("KL(rob, Wo-3)", generator=generator)
    images, labels = torch.rand(8, 3, 32, 32, device=CUDA), torch.arange(8, device=CUDA)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            loss(model, images, labels).total.backward()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=stream):
        total = loss(model, images, labels).total
    values = set()
    for _ in range(3):
        graph.replay()
        values.add(total.item())
    assert len(values) == 3  # other poses each time
