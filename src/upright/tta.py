"""Test-time augmentation: the mean of a model's logits over several poses of the input.

The poses are the same for all images and at every call, so that the result is a function of the
image alone, and can be attacked and evaluated as any model is.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from upright.attacks import CandidateSearch, RandomSearch, parse_attack
from upright.checks import Model, check_at_least_1
from upright.logits import ask
from upright.pose import Pose
from upright.space import PAPER, Space
from upright.warp import Fill, Interpolation, Resampling

__all__ = ["Averaged", "tta"]


class Averaged(nn.Module):
    """A model that answers with its mean logits over some poses; made by ``tta``."""

    def __init__(
        self,
        model: Model,
        poses: Pose | CandidateSearch,
        *,
        space: Space,
        seed: int,
        fill: Fill,
        interpolation: Interpolation,
    ) -> None:
        super().__init__()
        self.model, self.poses, self.space, self.seed = model, poses, space, seed
        self.resampling = Resampling(fill, interpolation)
        self.training = isinstance(model, nn.Module) and model.training

    def extra_repr(self) -> str:
        return f"{self.poses}, {self.space}, seed={self.seed}"

    def poses_for(self, height: int, width: int) -> Pose:
        """Give the poses for images of a size in pixels, in shape (M,)."""
        if isinstance(self.poses, Pose):
            return self.poses
        generator = torch.Generator().manual_seed(self.seed)
        space = self.space.in_pixels(height, width)
        return self.poses.candidates(space, 1, generator=generator)[:, 0]

    def forward(self, images: Tensor) -> Tensor:
        poses = self.poses_for(*images.shape[-2:]).to(images.device)
        # One pose after another: memory stays that of the model.
        total = self._logits(images, poses[:1])
        for place in range(1, len(poses)):
            total = total + self._logits(images, poses[place : place + 1])
        return total / len(poses)

    def _logits(self, images: Tensor, pose: Pose) -> Tensor:
        logits = ask(self.model, self.resampling(images, pose))
        # A sum of many in half precision would lose what they differ in.
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def tta(
    model: Model,
    poses: int | str | CandidateSearch | Pose = 10,
    *,
    space: Space | str = PAPER,
    seed: int = 0,
    fill: Fill = "black",
    interpolation: Interpolation = "bilinear",
) -> Averaged:
    """Wrap a model so that it averages its logits over poses of each image.

    Args:
        model: any callable from float images in [0, 1], N x C x H x W, to logits.
        poses: a number of random poses; or the name of an attack that lists its poses, such as
            ``grid-3x3x5``, or such an attack; or the poses themselves, of shape (M,).
        space: where random poses and grids come from, as a text such as ``shift(3px) rotate(30)``,
            or a ``Space``.
        seed: of random poses, which are drawn once for all images.
        fill: what a pose uncovers, see ``warp``.
        interpolation: how images are resampled, see ``warp``.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 10)).eval()
    >>> tta(model, "grid-1x1x5")(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """
    listed, box = _listed(poses), Space.of(space)
    if isinstance(listed, CandidateSearch):
        listed.check_space(box)
    return Averaged(
        model,
        listed,
        space=box,
        seed=seed,
        fill=fill,
        interpolation=interpolation,
    )


def _listed(poses: int | str | CandidateSearch | Pose) -> Pose | CandidateSearch:
    if isinstance(poses, Pose):
        if len(poses.shape) != 1 or not len(poses):
            raise ValueError(
                f"poses need the shape (M,), with M at least 1, but have {tuple(poses.shape)}"
            )
        return poses
    if isinstance(poses, int):
        check_at_least_1(poses=poses)
        return RandomSearch(poses)
    attack = parse_attack(poses) if isinstance(poses, str) else poses
    if not isinstance(attack, CandidateSearch):
        raise ValueError(
            f"{attack} finds its poses as it goes; give a number of random poses, or a grid such "
            "as grid-3x3x5"
        )
    return attack
