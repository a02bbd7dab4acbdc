"""``upright train``: train a classifier by one of the paper's objectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import DisallowNone, Positional, arg

from upright.cli.messages import is_watched, one_voice, say
from upright.cli.options import (
    data_help,
    folder_name,
    network_help,
    parse_device,
    parse_seeds,
    parse_space,
)
from upright.interrupts import INTERRUPTED
from upright.objective import Objective, parse_objective
from upright.space import Space
from upright.terminal import tell
from upright.train import (
    Recipe,
    Speed,
    TrainingPrecision,
    published,
    published_settings,
    train_together,
)
from upright.warp import Interpolation

__all__ = ["Train"]

_Number = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
_Optimizer = Literal["sgd", "adam"] | None

_LEFT_OPEN = (
    "steps",
    "batch",
    "learning_rate",
    "cosine",
    "optimizer",
    "weight_decay",
    "flips",
)
"""Options that are None unless they are given: --published must not overrule what is."""


def _as_in_recipe(name: str) -> object:
    """For help: the default of an option that is left open."""
    return arg(help_behavior_hint=f"(default: {getattr(Recipe, name)})")


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a classifier that stays upright. The defaults are the paper's recipe.

    Ctrl-C or SIGTERM writes a checkpoint and stops; the same command with --resume continues.
    """

    objectives: Positional[Annotated[tuple[str, ...], arg(metavar="OBJECTIVE [OBJECTIVE ...]")]]
    """std, std*, or Reg(batch, def) as in the paper: "KL(rob, Wo-10)", "KL-C(mix, S-PGD)"; or
    "LocNet(black)", the first stage of stn-plus.
    Several are trained side by side, each in a folder of its own below DIR."""
    data: Annotated[str, arg(metavar="DATA", help=data_help())]
    out: Annotated[Path, arg(metavar="DIR")]
    """The run's folder: recipe, log and checkpoints."""
    model: Annotated[str, arg(metavar="NETWORK", help=network_help())] = "resnet32"
    pretrained: Annotated[str, arg(metavar="FILE")] = ""
    """Weights for the network to start from: a .safetensors file, a state dict of torch.save, or
    the folder of a run. A last layer of another number of classes starts fresh."""
    steps: Annotated[DisallowNone[int | None], _as_in_recipe("steps")] = None
    batch: Annotated[DisallowNone[int | None], _as_in_recipe("batch")] = None
    """Unique images a step."""
    learning_rate: Annotated[DisallowNone[float | None], _as_in_recipe("learning_rate")] = None
    """Divided by 10 after half and after three quarters of the steps."""
    cosine: Annotated[DisallowNone[bool | None], _as_in_recipe("cosine")] = None
    """Let the learning rate fall along half a cosine to 0 instead."""
    warmup: Annotated[int, arg(metavar="STEPS")] = 0
    """Let it rise along a line over the first steps."""
    optimizer: Annotated[DisallowNone[_Optimizer], _as_in_recipe("optimizer")] = None
    """SGD with momentum 0.9, or Adam (amsgrad), which wants a lower rate, such as 0.002."""
    weight_decay: Annotated[DisallowNone[float | None], _as_in_recipe("weight_decay")] = None
    average: Annotated[float, arg(metavar="DECAY")] = 0.0
    """Let the network that comes out have a running average of the weights, as by 0.999."""
    smoothing: float = 0.0
    """Spread so large a part of each label evenly over all classes, as 0.1."""
    weight: Annotated[float | None, arg(name="lambda", metavar="λ", help_behavior_hint="")] = None
    """Weight of the penalty; without, 8 for KL and 1 for L2."""
    space: Annotated[str | None, arg(metavar="SPACE", help_behavior_hint="")] = None
    """What images are changed by, in quotes, as in "shift(10%) rotate(20) zoom(0.9..1.1)"; without,
    the paper's "shift(3px) rotate(30)". `upright families` lists what there is; one of your own is
    FILE.py:NAME."""
    max_translation: Annotated[str | None, arg(metavar="LIMIT", help_behavior_hint="")] = None
    """Short for the paper's space with another farthest shift along each axis, in pixels (3) or as
    a part of the image's size (10%)."""
    max_rotation: Annotated[float | None, arg(metavar="DEGREES", help_behavior_hint="")] = None
    """The same with another largest rotation either way, in degrees."""
    view: _Number = None
    """Let the network see the central N x N pixels of moved images, so that what comes in from
    outside them is real where images are larger."""
    interpolation: Interpolation = "bilinear"
    """How images are resampled; bilinear-twice turns and then shifts, as the authors do."""
    flips: Annotated[DisallowNone[bool | None], _as_in_recipe("flips")] = None
    """Mirror images left-right at random."""
    jitter: Annotated[str | None, arg(metavar="SPACE", help_behavior_hint="")] = None
    """Change images at random before anything is searched, as by "brightness(0.2) zoom(0.9..1.1)".
    """
    cutout: Annotated[int, arg(metavar="PIXELS")] = 0
    """Blacken a square of this side at a random place of each image."""
    mixup: Annotated[float, arg(metavar="SHARE")] = 0.0
    """Mix into each image, and its label, up to this share of another image."""
    teacher: Annotated[str, arg(metavar="DIR|zoo:NAME")] = ""
    """Whose network says what labels are, by its answers to the originals: the folder of a run, or
    one of `upright zoo list`."""
    teacher_share: Annotated[float | None, arg(metavar="SHARE", help_behavior_hint="")] = None
    """How much of each label the teacher says, above 0; without, all of it."""
    published: bool = False
    """Train stn, etn and stn-affine as was published: Adam, 300 epochs, no augmentation, in place
    of the options for that; --steps may still be given. Other networks keep theirs, by default
    the paper's."""
    train_images: _Number = None
    """Use the first N training images only."""
    held_out: bool = False
    """Leave out a tenth of the training images, to choose by: evaluate's --split held-out."""
    resize: _Number = None
    """Scale images of a folder so that their shorter side has N pixels."""
    center_crop: _Number = None
    """Cut out the central N x N pixels of images of a folder, after resizing."""
    precision: TrainingPrecision = "float32"
    """Of the network."""
    seed: int = 0
    seeds: Annotated[str | None, arg(metavar="A-B", help_behavior_hint="")] = None
    """Seeds of several runs side by side, as in 0-4 or 0,2,3; in place of --seed."""
    resume: bool = False
    """Continue the run in the folder."""
    device: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """Where to compute, such as cpu or cuda; a GPU where there is one."""
    graph: bool = True
    """On a GPU, record the whole step once and replay it."""
    compile: bool = True
    """On a GPU, compile the network."""
    kernels: bool = True
    """On a GPU, run a ResNet in bfloat16 by kernels of its own."""
    checkpoint_every: Annotated[int, arg(metavar="STEPS")] = 1000
    log_every: Annotated[int, arg(metavar="STEPS")] = 100
    tensorboard: bool = False
    """Write TensorBoard events too."""
    sync_batch_norm: bool = False
    """Under torchrun: let batch norms see the images of all processes, as in a single one."""

    def __call__(self) -> None:
        """Train, and say where the run is."""
        self._check_published()
        device = parse_device(self.device)
        with one_voice(device) as ranks:
            recipes = self._recipes()
            if self.published:
                count = len(next(iter(recipes.values())).load_data())
                recipes = {
                    path: published(each, count, steps=self.steps) for path, each in recipes.items()
                }
            runs = train_together(
                recipes,
                resume=self.resume,
                device=device,
                speed=Speed(graph=self.graph, compile=self.compile, kernels=self.kernels),
                checkpoint_every=self.checkpoint_every,
                log_every=self.log_every,
                progress=ranks.leads and is_watched(),
                tensorboard=self.tensorboard,
                ranks=ranks,
                sync_batch_norm=self.sync_batch_norm,
            )
            for run in runs:
                tell(f"{run.recipe.objective}: {run.step} steps in {run.path}, {run.seconds:.0f} s")
            if not all(run.finished for run in runs):
                say(f"stopped before step {runs[0].recipe.steps}; --resume continues")
                raise SystemExit(INTERRUPTED)

    def _check_published(self) -> None:
        """Refuse options in place of which --published would put others."""
        settings = published_settings(self.model) if self.published else {}
        given = self._given
        other = [name for name in given if given[name] != settings.get(name, given[name])]
        if other:
            raise ValueError(
                f"--published trains {self.model} with {_as_options(settings, other)}; leave out "
                f"{_as_options(given, other)}, or leave out --published"
            )

    @property
    def _given(self) -> dict[str, Any]:
        """Options that may be left open, and were not."""
        options = {name: getattr(self, name) for name in _LEFT_OPEN}
        return {name: value for name, value in options.items() if value is not None}

    def _recipes(self) -> dict[Path, Recipe]:
        seeds = [self.seed] if self.seeds is None else parse_seeds(self.seeds)
        recipes = [self._recipe(name, seed) for name in self.objectives for seed in seeds]
        self._check_weight(recipes)
        if len(recipes) == 1:
            return {self.out: recipes[0]}
        named = {
            self.out / folder_name(str(recipe.objective), recipe.seed): recipe for recipe in recipes
        }
        if not recipes or len(named) < len(recipes):
            raise ValueError("name at least one objective, and each objective and seed once")
        return named

    def _check_weight(self, recipes: list[Recipe]) -> None:
        """Of several objectives, a weight is for those that have a penalty."""
        objectives = [each.objective for each in recipes]
        penalised = any(isinstance(each, Objective) and each.penalty for each in objectives)
        if self.weight is not None and objectives and not penalised:
            raise ValueError(
                f"--lambda is the weight of a penalty, and {objectives[0]} has none; leave it out, "
                'or train by an objective that has one, such as "KL(rob, Wo-10)"'
            )

    def _recipe(self, objective: str, seed: int) -> Recipe:
        if self.teacher_share == 0:
            raise ValueError("--teacher-share 0 leaves a teacher nothing to say; leave it out")
        return Recipe(
            objective=parse_objective(objective, weight=self.weight),
            data=self.data,
            train_images=self.train_images,
            resize=self.resize,
            center_crop=self.center_crop,
            model=self.model,
            pretrained=self.pretrained,
            space=parse_space(self.space, self.max_translation, self.max_rotation),
            view=self.view,
            interpolation=self.interpolation,
            warmup=self.warmup,
            average=self.average,
            smoothing=self.smoothing,
            jitter=None if self.jitter is None else Space.of(self.jitter),
            cutout=self.cutout,
            mixup=self.mixup,
            teacher=self.teacher,
            teacher_share=self.teacher_share or 0.0,
            held_out=self.held_out,
            precision=self.precision,
            seed=seed,
            **self._given,
        )


def _as_options(values: Mapping[str, object], names: Iterable[str]) -> str:
    """Some values, as they are typed."""
    return " ".join(_as_option(name.replace("_", "-"), values[name]) for name in names)


def _as_option(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"
