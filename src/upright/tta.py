"""Test-time augmentation: the mean of a model's logits over several poses of the input.

The poses are the same for all images and at every call, so that the result is a function of the
image alone, and can be attacked and evaluated as any model is. Mirrored, each counts twice: as it
is, and with left and right exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from upright.attacks import CandidateSearch, RandomSearch, parse_attack
from upright.checks import Model, check_at_least_1
from upright.composed import Change, Composed, each_network
from upright.devices import sent
from upright.identity import as_module
from upright.logits import ask, widened
from upright.pose import Pose
from upright.registry import UnknownNameError
from upright.space import PAPER, Space
from upright.warp import Fill, Interpolation, Resampling

__all__ = ["Averaged", "Averaging", "tta"]

_MIRROR = "mirror"
_GIVE = "give a number of random poses, a grid such as grid-3x3x5, or mirror"


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """Over what logits are averaged; its text and its object are the same thing.

    >>> str(Averaging.parse("mirror")), str(Averaging.parse("10+mirror"))
    ('mirror', '10+mirror')
    >>> Averaging.parse("grid-3x3@shift(1px)").answers
    9
    """

    poses: CandidateSearch | None = None
    """Lists the poses; None for the image as it is."""
    space: Space = PAPER
    """Where they come from."""
    mirrored: bool = False

    def __post_init__(self) -> None:
        if self.poses is not None:
            self.poses.check_space(self.space)
        elif not self.mirrored or self.space != PAPER:
            raise ValueError("without poses, all that there is to average over is the mirror image")

    @staticmethod
    def parse(text: str, *, space: Space | str = PAPER) -> Averaging:
        """Read ``POSES``, ``POSES@SPACE``, one of these and ``+mirror``, or ``mirror``.

        POSES are a number of random poses, or a grid such as ``grid-3x3x5``.
        """
        if text == _MIRROR:
            return Averaging(mirrored=True)
        listed = text.removesuffix(f"+{_MIRROR}")
        name, at, box = listed.partition("@")
        if name == _MIRROR:
            raise ValueError(f"{text!r}: a mirror image has no space; {_GIVE}")
        return Averaging(
            poses=_search(int(name) if name.isdecimal() else name),
            space=Space.of(box if at else space),
            mirrored=listed != text,
        )

    def __str__(self) -> str:
        if self.poses is None:
            return _MIRROR
        drawn = isinstance(self.poses, RandomSearch)
        name = str(self.poses.passes_per_image) if drawn else str(self.poses)
        box = "" if self.space == PAPER else f"@{self.space}"
        return f"{name}{box}{f'+{_MIRROR}' if self.mirrored else ''}"

    @property
    def answers(self) -> int:
        """How many answers of a model make one."""
        poses = 1 if self.poses is None else self.poses.passes_per_image
        return 2 * poses if self.mirrored else poses

    def __call__(self, model: Model) -> Averaged:
        """Let a model average its answers."""
        return Averaged(model, self.poses, space=self.space, mirrored=self.mirrored)


class Averaged(Composed):
    """A model that answers with its mean logits over some poses; made by ``tta``."""

    def __init__(
        self,
        model: Model,
        poses: Pose | CandidateSearch | None,
        *,
        space: Space = PAPER,
        mirrored: bool = False,
        seed: int = 0,
        resampling: Resampling = Resampling(),  # noqa: B008  a value, which nothing changes
    ) -> None:
        super().__init__()
        self.model, self.poses, self.space = as_module(model), poses, space
        self.mirrored, self.seed, self.resampling = mirrored, seed, resampling
        self.training = self.model.training

    def extra_repr(self) -> str:
        return f"{self.poses}, {self.space}, mirrored={self.mirrored}, seed={self.seed}"

    def each_network(self, change: Change) -> Averaged:
        return Averaged(
            each_network(self.model, change),
            self.poses,
            space=self.space,
            mirrored=self.mirrored,
            seed=self.seed,
            resampling=self.resampling,
        ).eval()

    def get_extra_state(self) -> tuple[str, Tensor | None]:
        """Answers depend on the poses as on weights: a stored evaluation is of one of both."""
        given = self.poses if isinstance(self.poses, Pose) else None
        listed = given.chain if given is not None else self.poses
        text = f"{listed}, {self.space}, mirrored={self.mirrored}, seed={self.seed}"
        code = (self.space if given is None else Space(given.chain)).chain.code_digest
        return f"{text}, {self.resampling} {code}", None if given is None else given.values

    def set_extra_state(self, state: tuple[str, Tensor | None]) -> None:
        if state[0] != self.get_extra_state()[0]:
            raise ValueError(f"this model is averaged otherwise than that of the state: {state[0]}")

    def poses_for(self, height: int, width: int) -> Pose:
        """Give the poses for images of a size in pixels, in shape (M,)."""
        space = self.space.in_pixels(height, width)
        if self.poses is None:
            return space.zeros(1)
        if isinstance(self.poses, Pose):
            return self.poses
        generator = torch.Generator().manual_seed(self.seed)
        return self.poses.candidates(space, 1, generator=generator)[:, 0]

    def forward(self, images: Tensor) -> Tensor:
        total, count = torch.zeros((), device=images.device), 0
        # One after another: memory stays that of the model.
        for seen in self._views(images):
            total, count = total + widened(ask(self.model, seen)), count + 1
        return total / count

    def _views(self, images: Tensor) -> Iterator[Tensor]:
        for moved in self._moved(images):
            # Both before either is seen: a model may write into what it is given.
            yield from (moved, moved.flip(-1)) if self.mirrored else (moved,)

    def _moved(self, images: Tensor) -> Iterator[Tensor]:
        if self.poses is None:
            yield images
            return
        poses = self.poses_for(*images.shape[-2:])
        poses = poses.like(sent(poses.values, images.device))
        for place in range(len(poses)):
            yield self.resampling(images, poses[place : place + 1])


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
        poses: a number of random poses; the name of an attack that lists its poses, such as
            ``grid-3x3x5``, with ``+mirror`` for the mirror images too, or ``mirror`` for the image
            and its mirror image; or such an attack; or the poses themselves, of shape (M,).
        space: where random poses and grids come from, as a text such as ``shift(3px) rotate(30)``,
            or a ``Space``.
        seed: of random poses, which are drawn once for all images.
        fill: what a pose uncovers, see ``warp``.
        interpolation: how images are resampled, see ``warp``.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 10)).eval()
    >>> tta(model, "grid-1x1x5+mirror")(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """
    resampling, box = Resampling(fill, interpolation), Space.of(space)
    if isinstance(poses, Pose):
        _check_shape(poses)
        return Averaged(model, poses, space=box, seed=seed, resampling=resampling)
    over = (
        Averaging.parse(poses, space=box)
        if isinstance(poses, str)
        else Averaging(poses=_search(poses), space=box)
    )
    return Averaged(
        model,
        over.poses,
        space=over.space,
        mirrored=over.mirrored,
        seed=seed,
        resampling=resampling,
    )


def _check_shape(poses: Pose) -> None:
    if len(poses.shape) != 1 or not len(poses):
        raise ValueError(
            f"poses need the shape (M,), with M at least 1, but have {tuple(poses.shape)}"
        )


def _search(poses: int | str | CandidateSearch) -> CandidateSearch:
    """What lists the poses that are asked for."""
    if isinstance(poses, int):
        check_at_least_1(poses=poses)
        return RandomSearch(poses)
    try:
        attack = parse_attack(poses) if isinstance(poses, str) else poses
    except UnknownNameError:
        raise ValueError(f"there is no {poses!r} to average over; {_GIVE}") from None
    if not isinstance(attack, CandidateSearch):
        raise ValueError(f"{attack} finds its poses as it goes; {_GIVE}")
    return attack
