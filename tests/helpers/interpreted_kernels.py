"""The kernels of the GPU in Triton's interpreter, against what they stand for.

Run as a program, since the interpreter has to be chosen before Triton is imported. Prints the
largest relative differences as JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

from rigid_spaces import rigid
from upright import Pose, Space, warp
from upright.models.fused import FusedResNet, FusedTraining, convolution_backward_kernels
from upright.models.fused.triton_tiles import Tile, tile_for
from upright.models.resnet import ResNet
from upright.resample import NEAREST, pixels_of, resample
from upright.resample_kernels import move_alike, resample_black_bilinear
from upright.train.batch_kernels import take_rows
from upright.window import Form, Window


def few_programs(*kernel: Any, **layer: Any) -> Tile:
    """The tiles of the GPU, but for the many programs that share so few pixels."""
    return dataclasses.replace(tile_for(*kernel, **layer), splits=2)


def network(depth: int = 8, width: int = 1, outputs: int = 10) -> ResNet:
    """A network whose norms are far from their start."""
    torch.manual_seed(0)
    model = ResNet(depth=depth, width=width, classes=outputs, channels=3)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.3)
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
    return model.to(memory_format=torch.channels_last)


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def evaluation(images: Tensor, ways: Tensor) -> dict[str, float]:
    """Logits, and the gradient of images."""
    model = network(outputs=ways.shape[1]).eval()
    images = images.clone().requires_grad_()
    found = []
    for run in (model, FusedResNet(model, torch.float32)):
        logits = run(images)
        found.append((logits.detach(), torch.autograd.grad((logits * ways).sum(), images)[0]))
    with torch.no_grad():
        searched = FusedResNet(model, torch.float32)(images)
    (exact, slope), (logits, gradient) = found
    return {
        "logits": relative(logits, exact),
        "logits without gradient": relative(searched, exact),
        "gradient of images": relative(gradient, slope),
    }


def rounding(images: Tensor, ways: Tensor) -> dict[str, float]:
    """How far logits are off in float16; the interpreter has no products in bfloat16."""
    model = network(outputs=ways.shape[1]).eval()
    with torch.no_grad():
        return {"float16": relative(FusedResNet(model, torch.float16)(images), model(images))}


def warps(images: Tensor, _ways: Tensor) -> dict[str, float]:
    """Moved images and the gradient of poses: three draws for each image, and some exact ones."""
    generator = torch.Generator().manual_seed(1)
    drawn = rigid(3, 200).sample(6, generator=generator)
    zoomed = Space.of("shift(3px) rotate(200) zoom(0.5..2)").sample(6, generator=generator)
    # The last one lies between two quarter turns, and no pixel of it on another: there the slope
    # has two sides, and rounding takes one of them.
    turns = torch.tensor(
        [[0.0, 0, 0], [1, -2, 0], [0, 0, 90], [-1, 0, 180], [0, 3, -90], [0.3, 0.4, 45]]
    )
    found = {}
    for name, some in (("drawn", drawn), ("zoomed", zoomed), ("exact", Pose(turns))):
        results = []
        for run in (warp_in_turn, lambda images, pose: move_alike(images, pose.values)):
            leaf = some.values.clone().requires_grad_()
            moved = run(images, some.like(leaf))
            ways = torch.linspace(-1, 1, moved.numel()).sin().view_as(moved)
            results.append((moved.detach(), torch.autograd.grad((moved * ways).sum(), leaf)[0]))
        (exact, slope), (moved, gradient) = results
        found |= {name: relative(moved, exact), f"{name}, gradient": relative(gradient, slope)}
    still = move_alike(images, torch.zeros(2, 3))
    found |= forms(lambda form: move_alike(images, drawn.values, form))
    return found | {"unmoved": float((still - images).abs().max())}


def forms(move: Callable[[Form | None], Tensor]) -> dict[str, float]:
    """How far images that are written as a network takes them are from those brought there."""
    found, plain = {}, move(None)
    for form in (Form(torch.float32, channels_last=True), Form(torch.float16, channels_last=True)):
        moved = move(form)
        lies = moved.is_contiguous(memory_format=torch.channels_last)
        same = lies and moved.dtype == form.dtype and moved.equal(form.of(plain))
        found[f"unmoved, written as {form.dtype}"] = 0.0 if same else 1.0
    return found


def warp_in_turn(images: Tensor, poses: Pose) -> Tensor:
    """The warp of tensor operations, on a CPU."""
    copies = images.repeat(len(poses) // len(images), 1, 1, 1)
    return warp(copies, poses)


def maps(images: Tensor, _ways: Tensor) -> dict[str, float]:
    """Images seen through affine maps and perspectives, whole and in part, and slopes of maps."""
    chains = {
        "affine": "shift(2px) rotate(200) zoom(0.5..2) stretch(0.8..1.25) shear(20)",
        "projective": "shift(2px) rotate(40) perspective(0.4)",
    }
    size = min(images.shape[-2:])
    views = {"whole": None, "odd view": size - 3, "even view": size - 2}
    found = {}
    for (kind, text), (seen, view) in product(chains.items(), views.items()):
        window = Window.of(images, view)
        pose = Space.of(text).sample(6, generator=torch.Generator().manual_seed(1))
        through = pose.chain.inverse_matrix(pose.values, window.size)
        name = f"{kind}, {seen}"
        found |= compared(name, images, through, window, projective=kind == "projective")
        still = resample_black_bilinear(images, torch.eye(3).expand(2, 3, 3), window)
        found[f"unmoved, {seen}"] = float((still - window.cut(images)).abs().max())
    # A plane that is seen from its edge: some pixels are behind the viewer.
    steep = torch.eye(3).repeat(2, 1, 1)
    steep[:, 2, 0] = torch.tensor([0.4, -0.7])
    window = Window.of(images)
    through = rigid(3, 200).chain.inverse_matrix(torch.rand(6, 3), window.size)
    found |= forms(lambda form: resample_black_bilinear(images, through, window, form=form))
    return found | compared("behind the viewer", images, steep, window, projective=True)


def compared(
    name: str, images: Tensor, through: Tensor, window: Window, *, projective: bool
) -> dict[str, float]:
    """How far the kernel is from tensor operations, in images and in the slope of maps."""
    results = []
    for kernel in (False, True):
        leaf = through.clone().requires_grad_()
        if kernel:
            nearest = NEAREST if projective else 0.0
            moved = resample_black_bilinear(images, leaf, window, nearest=nearest)
        else:
            points = pixels_of(window, leaf)
            moved = resample(images, leaf, points, centre=window.centre, projective=projective)
        ways = torch.linspace(-1, 1, moved.numel()).sin().view_as(moved)
        (slope,) = torch.autograd.grad((moved * ways).sum(), leaf)
        # The last row of a map that is affine is not read.
        results.append((moved.detach(), slope if projective else slope[:, :2]))
    (exact, slope), (moved, gradient) = results
    return {name: relative(moved, exact), f"{name}, gradient": relative(gradient, slope)}


def training(images: Tensor, ways: Tensor) -> dict[str, float]:
    """Logits, gradients of parameters, and running statistics."""
    plain, fused = (network(outputs=ways.shape[1]).train() for _ in range(2))
    exact = plain(images)
    logits = FusedTraining(fused, torch.float32)(images)
    (exact * ways).sum().backward()
    (logits * ways).sum().backward()
    gradients = zip(fused.parameters(), plain.parameters(), strict=True)
    buffers = zip(fused.buffers(), plain.buffers(), strict=True)
    return {
        "logits": relative(logits.detach(), exact.detach()),
        "gradients": max(relative(mine.grad, other.grad) for mine, other in gradients),  # type: ignore[arg-type]
        "statistics": max(relative(mine, other) for mine, other in buffers),
    }


def rows(images: Tensor, _ways: Tensor) -> dict[str, float]:
    """Taken rows: images, mirrored where a draw is below a half, and labels."""
    data, labels = (255 * images).byte().repeat(3, 1, 1, 1), torch.arange(6) + 10
    chosen, draws = torch.tensor([5, 0, 3, 3]), torch.tensor([0.7, 0.0, 0.5, 0.4999])
    exact = data[chosen] / 255
    found = {}
    for name, flips in (("rows", None), ("mirrored rows", draws)):
        if flips is not None:
            exact[flips < 0.5] = exact[flips < 0.5].flip(-1)
        taken, of_rows = take_rows(data, labels, chosen, flips)
        found |= {name: relative(taken, exact)}
        found |= {f"labels of {name}": float((of_rows != labels[chosen]).sum())}
    return found


if __name__ == "__main__":
    convolution_backward_kernels.tile_for = few_programs
    torch.cuda.device_of = lambda _: contextlib.nullcontext()  # type: ignore[assignment,misc]
    height, width, outputs = map(int, sys.argv[1:])
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, 3, height, width, generator=generator)
    ways = torch.randn(2, outputs, generator=generator)
    modes = (evaluation, training, rounding, warps, maps, rows)
    print(json.dumps({mode.__name__: mode(images, ways) for mode in modes}))
