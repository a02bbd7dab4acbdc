"""A run directory: the recipe, the log, and the last two checkpoints.

    run.json                      the recipe, and what else is needed to build the network
    log.jsonl                     one line for each log interval
    checkpoints/STEP.safetensors  weights, buffers and momentum after STEP steps
    checkpoints/STEP.json         its digest, written after it: a checkpoint without is unfinished;
                                  and what trained it, for how long, beside how many others

Every file is written whole or not at all, and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from upright.callers import warn_caller
from upright.checks import SuspiciousInput
from upright.files import remove_left_over, write_whole
from upright.records import Origin
from upright.registry import UnknownNameError
from upright.train.average import averaged_weights
from upright.train.network import build, build_with, check_code_is_here, own_code_digest
from upright.train.recipe import Recipe

__all__ = [
    "Checkpoint",
    "DamagedCheckpoint",
    "RunDirectory",
    "load_network",
]

_KEPT = 2
_MOST_CHANNELS = 1024
_DAMAGE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What JSON that is not what was written can make its reader raise."""


class DamagedCheckpoint(UserWarning):
    """A checkpoint was passed over, because it is not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after so many steps."""

    step: int
    tensors: dict[str, Tensor]
    seconds: float = 0.0
    """Of training so far, over all calls."""
    beside: int | None = None
    """The most runs that trained side by side in any call, this one included; None if unknown."""
    trained_by: tuple[Origin, ...] = ()
    """What trained it, another entry where a later call was of something else; empty if unknown."""

    def continued_by(self, origin: Origin) -> tuple[Origin, ...]:
        """Add what trains from here on; of a run whose beginning is unknown, all of it stays so."""
        differs = self.trained_by and self.trained_by[-1] != origin
        return (*self.trained_by, origin) if differs else self.trained_by

    def about(self) -> dict[str, Any]:
        """Give what is noted beside the weights, as JSON holds it."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "beside": self.beside,
            "trained_by": [asdict(origin) for origin in self.trained_by],
        }


@dataclass(frozen=True)
class RunDirectory:
    """A run's files."""

    path: Path
    recipe: Recipe
    classes: tuple[str, ...]
    channels: int
    data_digest: str = ""

    @staticmethod
    def create(
        path: Path,
        recipe: Recipe,
        *,
        classes: tuple[str, ...],
        channels: int,
        resume: bool,
        data_digest: str = "",
    ) -> RunDirectory:
        """Begin a run, or with ``resume`` continue the one that is there, if it is the same."""
        if (path / "run.json").exists():
            run = RunDirectory.open(path)
            if replace(run.recipe, model_digest=recipe.model_digest) == recipe != run.recipe:
                raise ValueError(
                    f"{path} was begun with other code than {recipe.model} has now; bring the old "
                    "file back, or choose another folder"
                )
            if differences := run.recipe.differences(recipe):
                raise ValueError(
                    f"{path} belongs to another recipe ({'; '.join(differences)}); "
                    "choose another folder"
                )
            if not resume:
                raise ValueError(
                    f"{path} holds this run already; continue it with --resume, or choose another "
                    "folder"
                )
            if run.data_digest != data_digest:
                raise ValueError(
                    f"{path} was begun with other images or labels than {recipe.data} has now; "
                    "bring the old data back, or choose another folder"
                )
            run._remove_all_but_the_newest()
            remove_left_over(path)
            return run
        run = RunDirectory(path, recipe, classes, channels, data_digest)
        if run._steps():
            raise ValueError(
                f"{path} holds checkpoints but no run.json, so that nobody knows whose they are; "
                "choose another folder"
            )
        content = {
            "recipe": recipe.as_json(),
            "classes": classes,
            "channels": channels,
            "data_digest": data_digest,
        }
        write_whole(path / "run.json", json.dumps(content, indent=1).encode())
        return run

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """Open an existing run."""
        file = path / "run.json"
        try:
            content = json.loads(file.read_text())
            recipe = Recipe.from_json(content["recipe"])
            classes, channels = tuple(content["classes"]), int(content["channels"])
            if not 1 <= channels <= _MOST_CHANNELS:
                raise ValueError(f"{channels} channels")
            return RunDirectory(path, recipe, classes, channels, str(content["data_digest"]))
        except OSError as error:
            inside = sorted(str(each.parent) for each in path.glob("*/run.json"))
            advice = f"; in it are {', '.join(inside[:8])}: name one of them" if inside else ""
            raise ValueError(
                f"{path} is not a run directory: cannot read {file.name}{advice}"
            ) from error
        except UnknownNameError as error:
            raise ValueError(f"{file}: {error}") from error
        except (*_DAMAGE, AttributeError) as error:
            raise ValueError(
                f"{file} is damaged ({error}); begin the run in another folder"
            ) from error

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then remove all but the last two, also what was left half done."""
        content = save_tensors({k: v.contiguous() for k, v in checkpoint.tensors.items()})
        name = f"{checkpoint.step:08d}"
        try:
            write_whole(self._folder / f"{name}.safetensors", content)
            about = checkpoint.about()
            about["sha256"] = _digest(content, about)
            write_whole(self._folder / f"{name}.json", json.dumps(about).encode())
        except OSError as error:
            kept = f"step {self._steps()[-1]} is kept" if self._steps() else "there is none yet"
            raise OSError(
                f"cannot write the checkpoint of step {checkpoint.step} to {self._folder} "
                f"({error.strerror}); of earlier checkpoints {kept}; make room and use --resume"
            ) from error
        self._remove_all_but_the_newest()

    def forget_after(self, step: int) -> None:
        """Remove checkpoints of later steps, before a run goes on from this one.

        They are damaged, or the run would go on from them; and what is damaged must not be one of
        the two that are kept.
        """
        self._remove_all_but(each for each in self._steps() if each <= step)

    def _remove_all_but_the_newest(self) -> None:
        self._remove_all_but(self._steps()[-_KEPT:])

    def _remove_all_but(self, steps: Iterable[int]) -> None:
        kept = {f"{step:08d}" for step in steps}
        # A digest goes before its weights: a checkpoint without weights would count as damaged.
        for file in sorted(self._folder.glob("*")):
            if file.name.partition(".")[0] not in kept:
                file.unlink(missing_ok=True)

    def load(self) -> Checkpoint | None:
        """Read the newest checkpoint that is whole, or None where the run has none yet."""
        for step in reversed(self._steps()):
            try:
                return self._read(step)
            # Not any OSError: what cannot be read for want of memory, say, is not damaged.
            except (FileNotFoundError, SafetensorError, *_DAMAGE) as error:
                message = f"the checkpoint of step {step} in {self.path} is damaged ({error})"
                warn_caller(message + "; the one before is used", DamagedCheckpoint)
        if self._steps():
            raise ValueError(f"no checkpoint in {self._folder} is whole; begin the run again")
        return None

    def trained(self) -> dict[str, Tensor]:
        """Read the weights that came out, under the names that a checkpoint has for them."""
        checkpoint = self.load()
        if checkpoint is None:
            raise ValueError(f"{self.path} has no checkpoint yet; train it first")
        return averaged_weights(checkpoint.tensors)

    @property
    def _folder(self) -> Path:
        return self.path / "checkpoints"

    def _steps(self) -> list[int]:
        names = (file.stem for file in self._folder.glob("*.json"))
        return sorted(int(name) for name in names if re.fullmatch("[0-9]{8,12}", name))

    def _read(self, step: int) -> Checkpoint:
        text = (self._folder / f"{step:08d}.json").read_text()
        # As text: a flipped bit in the last digit may leave a float what it was.
        about: dict[str, Any] = json.loads(text, parse_float=str)
        content = (self._folder / f"{step:08d}.safetensors").read_bytes()
        if _digest(content, about) != about["sha256"]:
            raise ValueError("its digest does not fit")
        if about["step"] != step or step > self.recipe.steps:
            raise ValueError("it is of a step that this run does not have")
        beside, trained_by = about.get("beside"), about.get("trained_by", ())
        if not (beside is None or isinstance(beside, int)):
            raise ValueError(f"it was trained beside {beside!r}")
        return Checkpoint(
            step,
            load_tensors(content),
            float(about["seconds"]),
            beside,
            tuple(Origin(**each) for each in trained_by),
        )


def _digest(content: bytes, about: Mapping[str, Any]) -> str:
    """Give a digest of the weights and of what is noted about them."""
    noted = f"{about['step']} {about['seconds']}"
    more = {name: about[name] for name in about if name not in ("step", "seconds", "sha256")}
    if more:  # older checkpoints have nothing else
        noted += json.dumps(more, sort_keys=True)
    return hashlib.sha256(content + noted.encode()).hexdigest()


def load_network(path: str | Path) -> nn.Module:
    """Build a run's network with the weights of its newest checkpoint, in evaluation mode."""
    run = RunDirectory.open(Path(path))
    tensors = run.trained()
    try:
        name = run.recipe.model
        check_code_is_here(name)
        if run.recipe.model_digest != own_code_digest(name):
            message = f"the code of {name} has changed since {path} was trained with it"
            warn_caller(message, SuspiciousInput)
        return build_with(
            tensors,
            name,
            classes=len(run.classes),
            channels=run.channels,
            build=build,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
