"""Everything that determines a training run, and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from torch import nn

from upright.attacks import SpatialPGD
from upright.data import AnySplit, LabelledImages, load_data
from upright.factories import digest_of_code
from upright.kinds import check_kinds
from upright.later import LATER_IN_RECIPES, first_space, space_text, without_defaults
from upright.objective import LocNet, Objective, as_objective
from upright.space import PAPER, Space
from upright.train.plan import Plan
from upright.warp import Fill, Interpolation, check_chain

__all__ = ["Recipe", "TrainingPrecision"]

TrainingPrecision = Literal["float32", "bfloat16"]
"""In which networks train; they are evaluated in others, too."""

_OBJECTIVE = Objective.parse("KL(rob, Wo-10)")


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe(Plan):
    """A training run. The defaults are the paper's, for CIFAR-10 and SVHN.

    Two equal recipes give the same weights on a CPU, bit for bit, with the same torch and the same
    number of threads.
    """

    objective: Objective | LocNet = _OBJECTIVE
    """What is minimised; may be given as its text, in the paper's notation."""
    objective_digest: str = ""
    """SHA-256 of the code of one's own attack and penalty in it; the recipe notes it."""
    data: str = "cifar10"
    """A data set by name, see ``load_data``."""
    train_images: int | None = None
    """Use the first so many training images only."""
    held_out: bool = False
    """Leave out a tenth of the training images, the split ``held-out`` of the data: to choose by,
    where the test set must not be looked at."""
    resize: int | None = None
    """Shorter side in pixels to which images of a folder are scaled."""
    center_crop: int | None = None
    """Side in pixels of the central square that is cut out of them then."""
    model: str = "resnet32"
    """A network by name, see ``build_network``; or code of one's own, as ``FILE.py:FACTORY`` or
    ``package.module:FACTORY``."""
    model_digest: str = ""
    """SHA-256 of the file of one's own network; ``train`` notes it."""
    pretrained: str = ""
    """A file of weights, or the folder of a run, that the network starts from; else they are fresh.
    A last layer of another number of classes is fresh in any case."""
    pretrained_digest: str = ""
    """SHA-256 of these weights; ``train`` notes it."""
    space: Space = PAPER
    """The poses that the objective's attack searches; may be given as its text."""
    families_digest: str = ""
    """SHA-256 of the code of one's own families in it, and in ``jitter``; the recipe notes it."""
    interpolation: Interpolation = "bilinear"
    """How poses are applied to images, see ``warp``."""
    view: int | None = None
    """The network sees the central so many pixels of images, see ``warp``."""
    steps: int = 80_000
    """For CIFAR-100 the paper takes 120,000."""
    batch: int = 64
    """Unique images a step; their transformed copies come on top."""
    learning_rate: float = 0.1
    drops: tuple[float, ...] = (0.5, 0.75)
    """After these fractions of the steps the learning rate is divided by 10."""
    decay: float = 1.0
    """After every ``decay_every`` steps the learning rate is multiplied by this."""
    decay_every: int = 1
    """In steps. An epoch has as many as whole batches fit into the data."""
    cosine: bool = False
    """Let the learning rate fall along half a cosine to 0 instead, without drops and decay."""
    warmup: int = 0
    """Over so many first steps the learning rate rises from 0 along a line."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """SGD with momentum, or Adam that never forgets the largest square (amsgrad)."""
    momentum: float = 0.9
    """For Adam, the first of its two rates; the second is 0.999."""
    weight_decay: float = 2e-4
    """On the weights of convolutions and linear layers, not on norms and biases."""
    average: float = 0.0
    """Let the network that comes out have a running average of the weights: what this part of it
    is kept of at each step, such as 0.999. The search and the steps use the weights as they are."""
    smoothing: float = 0.0
    """So large a part of each label is spread evenly over all classes."""
    flips: bool = True
    """Mirror images left-right at random."""
    jitter: Space | None = None
    """Change images at random by a pose of this space before anything is searched, such as
    ``brightness(0.2) zoom(0.9..1.1)``; may be given as its text."""
    cutout: int = 0
    """Blacken a square of so many pixels a side, about a random place of each image."""
    mixup: float = 0.0
    """Mix into each image, and into its label, up to so large a part of another image."""
    teacher: str = ""
    """Whose network says what labels are, by its answers to the originals: the folder of a run, or
    ``zoo:DATASET/NAME``."""
    teacher_share: float = 0.0
    """So large a part of each label is what the teacher says; by default all, if there is one."""
    teacher_digest: str = ""
    """SHA-256 of the teacher's weights; ``train`` notes it."""
    max_shift: int | None = None
    """Shift images at random by up to so many whole pixels. By default 4 for ``std``, and none for
    the others, in which shifts are part of the search."""
    precision: TrainingPrecision = "float32"
    """Of the network; losses, weights and images are float32 always."""
    seed: int = 0
    """Of the weights, the order of the images and everything that is drawn."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "space", Space.of(self.space))
        object.__setattr__(self, "jitter", None if self.jitter is None else Space.of(self.jitter))
        if isinstance(self.objective, str | Objective):
            object.__setattr__(self, "objective", as_objective(self.objective))
        check_kinds(self)
        # A LocNet knows by itself which poses it can find.
        moves = self.objective if isinstance(self.objective, LocNet) else self.objective.attack
        if moves is not None:
            moves.check_space(self.space)
        check_chain(self.space.chain, self.interpolation)
        # No default that depends on another field: equal runs have equal recipes.
        shift = (4 if moves is None else 0) if self.max_shift is None else self.max_shift
        object.__setattr__(self, "max_shift", shift)
        for name, digest in _own_code(self).items():
            # What a run noted stays, as long as anything in it is one's own.
            if not (digest and getattr(self, name)):
                object.__setattr__(self, name, digest)
        if self.cosine:
            object.__setattr__(self, "drops", ())
            object.__setattr__(self, "decay", 1.0)
        if self.decay == 1:
            object.__setattr__(self, "decay_every", 1)
        if self.teacher and not self.teacher_share:
            object.__setattr__(self, "teacher_share", 1.0)
        _check_values(self)

    def learning_rate_at(self, step: int) -> float:
        """Give the learning rate of a step, counted from 0."""
        drops = sum(step >= drop * self.steps for drop in self.drops)
        decays = step // self.decay_every
        rate = float(self.learning_rate / 10**drops * self.decay**decays)
        if self.cosine:
            rate *= (1 + math.cos(math.pi * step / self.steps)) / 2
        return rate * min(1.0, (step + 1) / self.warmup) if self.warmup else rate

    def average_rate_at(self, step: int) -> float:
        """Say how far a step moves the average to its weights: a plain mean, until it is long."""
        return max(1 - self.average, 1 / (step + 1))

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Name the network's outputs: the classes of the data, or the columns of a pose."""
        return tuple(self.space.chain.column_of) if self.is_locnet else classes

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """How large images are made, and how much of them the network sees."""
        return (self.resize, self.center_crop, self.view)

    @property
    def training_data(self) -> tuple[object, ...]:
        """What says which images it trains on: runs side by side have it in common."""
        return (self.data, self.train_images, self.resize, self.center_crop, self.held_out)

    @property
    def softens_labels(self) -> bool:
        """Whether the loss gets a probability of each class, and no class numbers."""
        return bool(self.smoothing or self.mixup or self.teacher)

    @property
    def is_locnet(self) -> bool:
        """Whether it trains a network that finds poses, and no classes."""
        return self.locnet_fill is not None

    @property
    def locnet_fill(self) -> Fill | None:
        return self.objective.fill if isinstance(self.objective, LocNet) else None

    @property
    def method(self) -> str:
        return str(self.objective)

    @property
    def runs(self) -> tuple[Recipe, ...]:
        return (self,)

    def with_runs(self, runs: Sequence[Recipe]) -> Recipe:
        (only,) = runs
        return only

    def joined(self, networks: Sequence[nn.Module]) -> nn.Module:
        (only,) = networks
        return only

    def load_data(self, split: AnySplit = "train", *, limit: int | None = None) -> LabelledImages:
        """Load a part of its data, in the size and, unless told, the number that it trains on."""
        return load_data(
            self.data,
            split="kept" if self.held_out and split == "train" else split,
            limit=self.train_images if limit is None else limit,
            resize=self.resize,
            center_crop=self.center_crop,
        )

    def as_json(self) -> dict[str, Any]:
        """Give all fields in a form that JSON holds and ``from_json`` reads."""
        return json.loads(json.dumps(self._fields()))  # type: ignore[no-any-return]

    def _fields(self) -> dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        jitter = None if self.jitter is None else str(self.jitter)
        return fields | {
            "objective": str(self.objective),
            "space": str(self.space),
            "jitter": jitter,
        }

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        """All fields as they are written: an attack of somebody's own may have no ``==``."""
        return tuple(self._fields().values())

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Recipe) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Recipe:
        """Read a recipe; a field that is not known, or of the wrong kind, is named."""
        known = {field.name for field in dataclasses.fields(Recipe)}
        if unknown := sorted(set(values) - known):
            names = ", ".join(ascii(name)[1:-1] for name in unknown)
            raise ValueError(f"a recipe has no {names}; it has {', '.join(sorted(known))}")
        values = dict(values)
        try:
            if "space" in values:
                values["space"] = Space.of(space_text(values["space"]))
            if isinstance(values.get("drops"), list):
                values["drops"] = tuple(values["drops"])
            return Recipe(**values)
        except TypeError as error:
            raise ValueError(f"not a recipe: {error}") from error

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for all fields."""
        values = without_defaults(self._fields(), LATER_IN_RECIPES)
        climbs = isinstance(getattr(self.objective, "attack", None), SpatialPGD)
        if self.space == PAPER or not climbs:
            # Elsewhere than in the paper's space, S-PGD had other steps in the first days.
            values["space"] = first_space(values["space"])
        # As Python has it, 1 and 1.0 are equal: they must not differ in the text.
        fields = json.loads(json.dumps(values), parse_float=_whole_if_whole)
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def differences(self, other: Recipe) -> list[str]:
        """Name the fields in which two recipes differ."""
        mine, theirs = self.as_json(), other.as_json()
        return [
            f"{name} {theirs[name]!r} instead of {mine[name]!r}"
            for name in mine
            if mine[name] != theirs[name]
        ]


def _whole_if_whole(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


_LEAST = {
    "train_images": 1,
    "resize": 1,
    "center_crop": 1,
    "view": 1,
    "steps": 1,
    "batch": 1,
    "learning_rate": 0,
    "decay": 0,
    "decay_every": 1,
    "momentum": 0,
    "weight_decay": 0,
    "max_shift": 0,
    "warmup": 0,
    "cutout": 0,
}
_PARTS = ("average", "smoothing", "mixup", "teacher_share")


def check_own_code(recipe: Recipe) -> None:
    """Check that a recipe means the families, attack and penalty that are here now."""
    for name, digest in _own_code(recipe).items():
        if getattr(recipe, name) != digest:
            raise ValueError(
                f"the code of {name.removesuffix('_digest')} is not that of the recipe; bring the "
                f"old file back, or leave out {name}"
            )


def _own_code(recipe: Recipe) -> dict[str, str]:
    spaces = [recipe.space] + ([] if recipe.jitter is None else [recipe.jitter])
    families = [type(each) for space in spaces for each in space.chain.families]
    return {
        "families_digest": digest_of_code(*families),
        "objective_digest": digest_of_code(recipe.objective),
    }


_MOST = sys.float_info.max
_MOST_DROPS = 100


def _check_values(recipe: Recipe) -> None:
    for name, least in _LEAST.items():
        value = getattr(recipe, name)
        if value is not None and not least <= value <= _MOST:
            raise ValueError(f"{name} must be at least {least} and finite, but is {value}")
    for name in _PARTS:
        if not 0 <= getattr(recipe, name) <= 1:
            raise ValueError(f"{name} is a part, 0 to 1, but is {getattr(recipe, name)}")
    if recipe.average == 1:
        raise ValueError("average=1 would keep the first weights for ever; give 0.999, say")
    if recipe.teacher_share and not recipe.teacher:
        raise ValueError("teacher_share needs a teacher, the folder of a run or zoo:DATASET/NAME")
    if recipe.is_locnet and recipe.softens_labels:
        raise ValueError("a LocNet has no labels that could be smoothed, mixed or taught")
    if len(recipe.drops) > _MOST_DROPS or not all(0 < drop <= 1 for drop in recipe.drops):
        raise ValueError(
            f"drops must be at most {_MOST_DROPS} fractions of the steps, but are {recipe.drops}"
        )
