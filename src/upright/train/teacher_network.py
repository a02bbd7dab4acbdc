"""Networks that can teach, by name: that of a run, and what other rooms make known.

Their weights are known, so that a recipe can note the digest. What keeps trained networks
elsewhere, as the zoo does, registers a kind of name in ``TEACHERS``: imports point downward, and
training cannot ask it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import nn

from upright.callers import warn_caller
from upright.checks import SuspiciousInput, few
from upright.data import LabelledImages
from upright.registry import Registry
from upright.train.checkpoint import RunDirectory, load_network
from upright.train.recipe import Recipe
from upright.train.weight_files import weights_digest

__all__ = ["TEACHERS", "TeacherNetwork", "check_teacher", "find_teacher", "with_teacher_digest"]


@dataclass(frozen=True)
class TeacherNetwork:
    """What a network that can teach answers to, and how it is loaded."""

    recipe: Recipe
    """By which it was trained."""
    classes: tuple[str, ...]
    channels: int
    load: Callable[[], nn.Module]
    """Gives it in evaluation mode, from images in [0, 1] to logits."""


TEACHERS: Registry[Callable[..., TeacherNetwork]] = Registry("teacher")
"""What finds teachers, by the kinds of their names."""


@TEACHERS.register("RUN-DIRECTORY", r"(?s:(.+))", precedence=-1)
def _of_run(name: str) -> TeacherNetwork:
    path = Path(name)
    if not path.is_dir():
        raise TEACHERS.unknown(name)
    run = RunDirectory.open(path)
    if run.recipe.is_locnet:
        raise ValueError(
            f"the teacher {name} is a LocNet, which finds poses and no classes; give a classifier"
        )
    return TeacherNetwork(run.recipe, run.classes, run.channels, partial(load_network, path))


def find_teacher(name: str) -> TeacherNetwork:
    """Find a network by the folder of its run, or by another kind of name in ``TEACHERS``."""
    found = TEACHERS.find(name)
    return found.value(*found.groups)


def with_teacher_digest(recipe: Recipe) -> Recipe:
    """Note in a recipe which weights teach; others than it means are an error."""
    if not recipe.teacher:
        return recipe
    digest = weights_digest(find_teacher(recipe.teacher).load().state_dict())
    if recipe.teacher_digest not in ("", digest):
        raise ValueError(
            f"the weights of {recipe.teacher} are not those of the recipe's teacher; bring them "
            "back, or leave out teacher_digest"
        )
    return replace(recipe, teacher_digest=digest)


def check_teacher(recipe: Recipe, data: LabelledImages) -> None:
    """Check that a recipe's teacher, if any, looks at such images and knows their classes."""
    if not recipe.teacher:
        return
    teacher, channels = find_teacher(recipe.teacher), data.images.shape[1]
    if (len(teacher.classes), teacher.channels) != (len(data.classes), channels):
        raise ValueError(
            f"the teacher {recipe.teacher} has {len(teacher.classes)} classes and looks at "
            f"{teacher.channels} channels, but {recipe.data} has {len(data.classes)} classes and "
            f"{channels} channels; give one that was trained on such data"
        )
    if teacher.recipe.sizes[:2] != recipe.sizes[:2]:
        warn_caller(
            f"the teacher {recipe.teacher} was trained with another --resize or --center-crop, and "
            "may know nothing of images of this size; each has its own --view",
            SuspiciousInput,
        )
    if teacher.classes != data.classes:
        warn_caller(
            f"the teacher {recipe.teacher} calls classes {few(teacher.classes)}, {recipe.data} "
            f"calls them {few(data.classes)}; its first is taken for the first, and so on",
            SuspiciousInput,
        )
