"""``upright evaluate``: the accuracy of a model on images as they are, and under attacks."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TextIO, get_args

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from upright.checks import check_at_least_1
from upright.cli.messages import is_watched, one_voice, say
from upright.cli.options import (
    STDOUT,
    attack_help,
    data_help,
    model_help,
    parse_device,
    parse_preprocess,
    parse_space,
    run_families,
    writable,
)
from upright.cli.outputs import Output, deliver, printing, written_to
from upright.cli.result import result_as_json
from upright.cli.table import roomy_console, show_classes, show_evaluation, show_poses
from upright.data import AnySplit, read_classes
from upright.evaluation import Precision, Question
from upright.evaluation.time_limit import TimeLimit
from upright.files import write_whole
from upright.measure import (
    Loaded,
    Measured,
    check_can_save,
    choose_shown,
    doubts,
    load,
    measure,
    notes,
    save_answers,
)
from upright.origin import commit
from upright.paper import with_reported
from upright.record_files import append
from upright.report.exhibition import Shown
from upright.report.saved import check_beside, check_name
from upright.sources.blame import blaming
from upright.sources.preprocess import Channels, Layout
from upright.warp import Fill, Interpolation

__all__ = ["Evaluate"]

# The text of an option that may be left out says what happens then, better than "(default: None)".
_Number = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
_Minutes = Annotated[float | None, arg(metavar="M", help_behavior_hint="")]
_Name = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
_File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
_Text = Annotated[str | None, arg(metavar="SPACE", help_behavior_hint="")]
_Limit = Annotated[str | None, arg(metavar="LIMIT", help_behavior_hint="")]
_Degrees = Annotated[float | None, arg(metavar="DEGREES", help_behavior_hint="")]
_Numbers = Annotated[str | None, arg(metavar="NUMBERS", help_behavior_hint="")]
_Folder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")]


def _one_of(words: object) -> object:
    """For help. ``Preprocess`` checks the words: the parser would offer None too."""
    return arg(metavar=f"{{{','.join(get_args(words))}}}", help_behavior_hint="")


@contextlib.contextmanager
def _kept_in(state: Path | None) -> Iterator[None]:
    """Let an interrupt say how to go on, where a state keeps what is done."""
    try:
        yield
    except KeyboardInterrupt:
        if state is None:
            raise
        raise KeyboardInterrupt(f"the same command goes on from {state}") from None


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a classifier's accuracy under the worst small transformation, of any kind."""

    model: Positional[Annotated[str, arg(metavar="MODEL", help=model_help())]]
    data: Annotated[str, arg(metavar="DATA", help=data_help())]
    attack: UseAppendAction[
        Annotated[
            tuple[str, ...],
            arg(
                metavar="NAME",
                help=attack_help(
                    "How to search for the worst pose; several times for several attacks:",
                    "Without, a grid: of the paper's space grid-775, of others with the counts "
                    "that are usual for their axes.",
                ),
                help_behavior_hint="",
            ),
        ]
    ] = ()
    include_identity: bool = False
    """Let every attack try images as they are, too: wo-K, rnd and s-pgd leave that out, as in the
    paper, so that they may end above natural accuracy."""
    top: Annotated[int, arg(metavar="K")] = 1
    """Count an answer as right where the true class is among the K largest logits."""
    space: _Text = None
    """What images are changed by, in quotes, as in "shift(10%) rotate(20) zoom(0.9..1.1)"; without,
    the paper's "shift(3px) rotate(30)". `upright families` lists what there is; one of your own is
    FILE.py:NAME."""
    families: UseAppendAction[
        Annotated[tuple[Path, ...], arg(metavar="FILE.py", help_behavior_hint="")]
    ] = ()
    """Run a file of families of your own first, as for a run that was trained on them; those that
    are attacked by may be named in SPACE as FILE.py:NAME instead."""
    max_translation: _Limit = None
    """Short for the paper's space with another farthest shift along each axis, in pixels (3) or as
    a part of the image's size (10%)."""
    max_rotation: _Degrees = None
    """The same with another largest rotation either way, in degrees."""
    fill: Annotated[Fill, arg(metavar="FILL")] = "black"
    """What a pose uncovers: black, reflection, border, or a colour in quotes, as in "#7f7f7f"."""
    interpolation: Interpolation = "bilinear"
    """How images are resampled."""
    canvas: Annotated[int, arg(metavar="PIXELS")] = 0
    """Pad all images by so many pixels on each side first, so that no pose crops them: black ones,
    or of the fill's colour."""
    view: _Number = None
    """Let the model see the central N x N pixels of the moved images, so that what comes in from
    outside them is real where images are larger. Without, as a run of `upright train` was told."""
    split: AnySplit = "test"
    """Which part of the data, where they have parts; held-out is the tenth of train that a run of
    `upright train --held-out` has not seen, kept the rest of it."""
    limit: _Number = None
    """Use the first N images only; which these are depends on the order of the data."""
    sample: _Number = None
    """Use N images that are drawn at random, by the seed; of those up to --limit, if given."""
    minutes: _Minutes = None
    """Visit images in a random order, that of --sample, begin no more of them when M minutes of
    evaluating are about to be over, and say what is known by then: accuracies of those that are
    done, with 95 % intervals. With --state, the same command goes on."""
    resize: _Number = None
    """Scale images of a folder so that their shorter side has N pixels. Without this and the next,
    images are brought to the size that the model's source, --preprocess or a run was told."""
    center_crop: _Number = None
    """Cut out the central N x N pixels of images of a folder, after resizing."""
    preprocess: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """How the model takes images: a preprocessor_config.json of Hugging Face, a data configuration
    of timm, or JSON text with mean, std, layout, channels, offset, probabilities, resize,
    center_crop; or imagenet, or inception, for their mean and std. Without, as the source says."""
    mean: _Numbers = None
    """What the model wants subtracted from images in [0, 1], as in 0.485,0.456,0.406, or one number
    for all channels, as in 127/255; this and the next go before --preprocess."""
    std: _Numbers = None
    """What it wants them divided by then."""
    layout: Annotated[str | None, _one_of(Layout)] = None
    """Whether it takes N x C x H x W or N x H x W x C; the shape of an ONNX file tells, too."""
    channels: Annotated[str | None, _one_of(Channels)] = None
    """Whether it takes red first, as most do, or blue first; --mean and --std are red first."""
    offset: _Number = None
    """Leave out the first N outputs: 1 of 1001 that begin with a background class."""
    probabilities: FlagCreatePairsOff[bool] = False
    """The model answers after the softmax: take the logarithm. Accuracies do not change by it."""
    classes: _File = None
    """The names of the model's outputs, one a line or as JSON (id2label): folders are matched by
    name. Without, as the model's source says; of 1000 outputs ImageNet's WordNet ids and names."""
    details: bool = False
    """Find the worst pose of each image and the class that is seen there, and of a grid the
    smallest pose that fools it; write them to the JSON file; show a table of the classes, too.
    Without, an image that was fooled is not tried again: the same accuracy in fewer passes."""
    precision: Precision = "float32"
    """Of the network. float16 is faster on a GPU, the more so for networks of this project, and
    nearer to float32 than bfloat16, which has the range that some networks need."""
    compile: bool = False
    """Let PyTorch compile the network, but for one of this project with kernels of its own. The
    first batches wait for the compiler, all others take less: it pays in long evaluations."""
    batch_size: _Number = None
    """At most N images at once; chosen by their size, and halved where they do not fit."""
    device: _Name = None
    """Where to compute, such as cpu or cuda; a GPU where there is one."""
    seed: _Number = None
    """Seed of the poses that attacks draw for an image by its place; without, a fixed one."""
    state: _File = None
    """Keep what is done in this file: the same command continues where it was stopped."""
    json: _File = None
    """Write the result to this file; accuracies as fractions. - is standard output; the table then
    goes to standard error."""
    record: _File = None
    """Add a line to this file, of which `upright report` makes tables: what was measured, what it
    takes to measure it again and, of a run by the paper's recipe, what the paper reports."""
    name: _Name = None
    """What tables and page call a model that was not trained here; without, as MODEL is written."""
    save: _Folder = None
    """Keep what the explorer of `upright report` shows in this folder: some images, and the answer
    and confidence at every pose of the grid. Several models go side by side."""
    save_images: Annotated[int, arg(metavar="N")] = 24
    """How many images to keep, drawn at random, the same ones for every model."""

    def __call__(self) -> None:
        """Evaluate, print a table, and write the files that are asked for."""
        commit()  # what is edited from now on is not what evaluates
        # What a user's own code prints is no part of the JSON.
        stdout, aside = sys.stdout, sys.stderr if self.json == STDOUT else sys.stdout
        with contextlib.redirect_stdout(aside):
            found, shown = self._measure()
            if found is not None:
                deliver(self._outputs(found, shown, stdout))

    def _measure(self) -> tuple[Measured | None, Shown | None]:
        """Do the work; give what was found, in the process that speaks, and the images to keep."""
        run_families(self.families)
        question, device = self._question(), parse_device(self.device)
        told = parse_preprocess(
            self.preprocess,
            mean=self.mean,
            std=self.std,
            layout=self.layout,
            channels=self.channels,
            offset=self.offset,
            probabilities=self.probabilities or None,
        )
        self._check(question)
        kept = self.record is not None or self.save is not None
        with one_voice(device, patience=timedelta(days=7)) as ranks, blaming(self.model):
            loaded = load(
                self.model,
                self.data,
                question,
                device=device,
                recorded=kept,
                called=self.name,
                preprocess=told,
                classes=None if self.classes is None else read_classes(self.classes),
            )
            shown = self._shown(loaded)
            for note in notes(self.model, loaded):
                say(note)
            in_time = self.minutes is not None
            for doubt in doubts(self.model, loaded, in_time=in_time):
                say(f"warning: {doubt}")
            with _kept_in(self.state):
                found = measure(
                    loaded,
                    minutes=self.minutes,
                    batch_size=self.batch_size,
                    state=self.state,
                    progress=ranks.leads and is_watched(),
                    ranks=ranks,
                )
        return found if ranks.leads else None, shown

    def _outputs(
        self, found: Measured, shown: Shown | None, stdout: TextIO | None
    ) -> Iterator[Output]:
        """All that is asked for; what is printed comes first."""
        yield printing(lambda: self._print(found))
        if self.json == STDOUT:
            yield written_to(stdout, lambda: self._as_json(found))
        elif self.json is not None:
            file = self.json
            yield Output(f"--json {file}", lambda: write_whole(file, self._as_json(found).encode()))
        if self.record is not None:
            yield Output(f"--record {self.record}", lambda: self._append(found))
        if self.save is not None and shown is not None:
            folder, images = self.save, shown
            yield Output(
                f"--save {folder}", lambda: save_answers(folder, found, images, name=self._title)
            )

    def _print(self, found: Measured) -> None:
        evaluation, data = found.evaluation, found.loaded.data
        console = roomy_console(stderr=self.json == STDOUT)
        title = f"{self._title} on {self.data}: {evaluation.images_in_words}"
        show_evaluation(evaluation, title=title, space=found.loaded.question.space, console=console)
        if self.details:
            show_poses(evaluation, console=console)
            show_classes(evaluation, data.classes, console=console)

    def _as_json(self, found: Measured) -> str:
        question = found.loaded.question
        sizes = {name: getattr(question, name) for name in ("resize", "center_crop", "view")}
        result = result_as_json(
            found.evaluation,
            options=asdict(self) | sizes,
            space=question.space,
            data=found.images,
            device=found.loaded.device,
        )
        return json.dumps(result, indent=1, default=str, allow_nan=False) + "\n"

    def _append(self, found: Measured) -> None:
        assert self.record is not None
        # A state is one evaluation's, however often it was stopped: it has one record. By what it
        # measured, too: a key knows nothing of code that the model imports.
        record = with_reported(found.record, also_called=self.data)
        append(
            self.record,
            record,
            once=self.state is not None,
            by=lambda each: (each.key, each.measured),
        )

    @property
    def _title(self) -> str:
        return self.name or self.model

    def _check(self, question: Question) -> None:
        """Say what is wrong before the model is loaded."""
        if self.details and self.json is None:
            raise ValueError("--details go to the JSON file; add --json FILE")
        TimeLimit.of_minutes(self.minutes)
        check_at_least_1(batch_size=self.batch_size)
        for path in (None if self.json == STDOUT else self.json, self.state, self.record):
            writable(path)
        if self.save is not None:
            writable(self.save / "shown.safetensors")
            check_at_least_1(save_images=self.save_images)
            check_can_save(question if self.minutes is None else replace(question, sample=1))

    def _shown(self, loaded: Loaded) -> Shown | None:
        """The images to keep, if any; that they may lie in the folder is checked beforehand."""
        if self.save is None:
            return None
        shown = choose_shown(loaded, explored=self.save_images)
        check_beside(self.save, shown)
        assert loaded.subject is not None  # what is saved is recorded, too
        check_name(self.save, self._title, loaded.subject.told()["recipe_hash"])
        return shown

    def _question(self) -> Question:
        """The one place where options become a question: to load, to measure and to record."""
        return Question.of(
            [name.strip().lower() for name in self.attack] or None,  # one name in all records
            space=parse_space(self.space, self.max_translation, self.max_rotation),
            only_accuracy=not self.details,
            split=self.split,
            limit=self.limit,
            sample=self.sample,
            resize=self.resize,
            center_crop=self.center_crop,
            fill=self.fill,
            interpolation=self.interpolation,
            canvas=self.canvas,
            view=self.view,
            precision=self.precision,
            compile=self.compile,
            seed=self.seed,
            top=self.top,
            include_identity=self.include_identity,
        )
