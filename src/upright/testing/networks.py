"""Numbers for how far a network is from invariant or equivariant, for tests of your own networks.

A network f is equivariant under a transformation T if f(T x) = T f(x), and invariant if
f(T x) = f(x). Errors are the largest absolute difference between the two sides, in the unit of the
outputs. Ask in float64, where an exact network errs by 1e-12 and a broken one still by 0.1:

>>> images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
>>> blur = torch.nn.AvgPool2d(3, stride=1, padding=1).eval()
>>> assert_equivariant(blur, images, quarter_turns(mirrors=True))
>>> invariance_error(lambda x: blur(x).mean((2, 3)), images, quarter_turns()) < 1e-12
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from upright.checks import Model, warn_if_training
from upright.models.group_conv import P4, P4M
from upright.pose import Pose
from upright.warp import Fill, Interpolation, Resampling

__all__ = [
    "Transformation",
    "assert_equivariant",
    "assert_invariant",
    "equivariance_error",
    "invariance_error",
    "moved_by",
    "quarter_turns",
]

ImageMap = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Transformation:
    """How images are moved and, for equivariance, how outputs have to move with them.

    >>> upside_down = Transformation("upside down", lambda images: images.flip(-2))
    """

    name: str
    on_images: ImageMap
    on_outputs: ImageMap | None = None
    """None if outputs move as images do."""


def quarter_turns(*, mirrors: bool = False, planes: bool = False) -> tuple[Transformation, ...]:
    """List the turns by 90, 180 and 270 degrees, each of them exact.

    Args:
        mirrors: also the mirror image and its turns.
        planes: outputs are features of ``upright.models.group_conv``, whose planes turn too: those
            of ``P4M`` with mirrors, those of ``P4`` without.

    >>> [turn.name for turn in quarter_turns()]
    ['turned by 90 degrees', 'turned by 180 degrees', 'turned by 270 degrees']
    """
    group = P4M if mirrors else P4
    return tuple(
        Transformation(
            _element_name(element),
            partial(group.act, element=element),
            partial(group.act_on_planes, element=element) if planes else None,
        )
        for element in range(1, group.planes)
    )


def moved_by(
    poses: Pose, *, fill: Fill = "black", interpolation: Interpolation = "bilinear"
) -> tuple[Transformation, ...]:
    """List the motions by each of some poses, of shape (M,), as ``upright.warp`` makes them.

    Poses of any space come from it: ``space.grid((3, 3, 5))``, ``space.sample(10, generator=g)``.
    What leaves the image is lost and what is resampled is blurred, so that no network is exact.

    >>> [turn.name for turn in moved_by(Pose.of(angle=[-30.0, 30.0]))]
    ['at dx 0 px, dy 0 px, angle -30 degrees', 'at dx 0 px, dy 0 px, angle 30 degrees']
    """
    return tuple(
        Transformation(
            f"at {poses[place].in_words()}",
            partial(Resampling(fill, interpolation), pose=poses[place : place + 1]),
        )
        for place in range(len(poses))
    )


def invariance_error(
    model: Model, images: Tensor, transformations: Iterable[Transformation]
) -> float:
    """Give the largest change of an output of the model over all images and transformations.

    >>> images = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    >>> invariance_error(lambda x: x.flatten(1)[:, :1], images, quarter_turns()) > 0.1
    True
    """
    return max(_errors(model, images, transformations, invariant=True).values())


def equivariance_error(
    model: Model, images: Tensor, transformations: Iterable[Transformation]
) -> float:
    """Give the largest difference between outputs for moved images and moved outputs.

    The model is any function of images whose outputs can be moved: a network's features.

    >>> images = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    >>> equivariance_error(lambda x: x[..., ::2, ::2], images, quarter_turns()) > 0.1
    True
    """
    return max(_errors(model, images, transformations, invariant=False).values())


def assert_equivariant(
    model: Model,
    images: Tensor,
    transformations: Iterable[Transformation],
    *,
    tolerance: float = 1e-9,
) -> None:
    """Raise ``AssertionError`` where outputs do not move with the images, and say under what."""
    errors = _errors(model, images, transformations, invariant=False)
    _judge(errors, tolerance, "outputs do not move with the images")


def assert_invariant(
    model: Model,
    images: Tensor,
    transformations: Iterable[Transformation],
    *,
    tolerance: float = 1e-9,
) -> None:
    """Raise ``AssertionError`` where outputs change when images are moved, and say under what."""
    errors = _errors(model, images, transformations, invariant=True)
    _judge(errors, tolerance, "outputs do not stay as they are")


def _errors(
    model: Model, images: Tensor, transformations: Iterable[Transformation], *, invariant: bool
) -> dict[str, float]:
    """The largest difference under each transformation, by its name."""
    warn_if_training(model)
    listed: Sequence[Transformation] = tuple(transformations)
    if not listed:
        raise ValueError("there is no transformation to try; give at least one")
    with torch.no_grad():
        outputs = model(images)
        return {
            one.name: _difference(
                model(one.on_images(images)),
                outputs if invariant else (one.on_outputs or one.on_images)(outputs),
                one.name,
            )
            for one in listed
        }


def _difference(found: Tensor, expected: Tensor, name: str) -> float:
    if found.shape != expected.shape:
        raise ValueError(
            f"{name}, images give outputs of shape {tuple(found.shape)}, not "
            f"{tuple(expected.shape)}; give square images, or say with on_outputs how outputs move"
        )
    return float((found - expected).abs().max())


def _judge(errors: dict[str, float], tolerance: float, wrong: str) -> None:
    # A NaN is not within any tolerance.
    beyond = {name: error for name, error in errors.items() if not error <= tolerance}
    if not beyond:
        return
    worst = max(beyond, key=lambda name: (beyond[name] != beyond[name], beyond[name]))
    hint = ""
    if min(beyond.values()) > 1e-4:
        hint = ". Usual reasons: a stride on an even size, padding or pooling from one side only"
    elif tolerance < 1e-4:
        hint = ". It is of the size of rounding errors: give the model and the images in float64"
    raise AssertionError(
        f"{wrong}: {worst}, they are off by {beyond[worst]:.3g} where {tolerance:.3g} is allowed; "
        f"{len(beyond)} of {len(errors)} transformations fail ({', '.join(beyond)}){hint}"
    )


def _element_name(element: int) -> str:
    turn = f"turned by {90 * (element % 4)} degrees" if element % 4 else ""
    return ", ".join(filter(None, ("mirrored" if element >= 4 else "", turn)))
