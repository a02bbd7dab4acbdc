"""An entry of the zoo: its name, and the two files that it consists of.

Its weights take half the size of a checkpoint's, or less. Kernels and matrices are rounded to
bfloat16. Norms, biases and buffers stay as they are: they are few, and statistics of batch norms
may span more digits than bfloat16 has.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from upright.attacks import Attack, RandomSearch, SpatialPGD
from upright.files import plain_name, write_whole
from upright.objective import Objective
from upright.registry import UnknownNameError
from upright.train import Recipe
from upright.train.network import build_with, is_brought, model_tensors
from upright.zoo.card import Card, read_card, write_card

__all__ = ["ENDINGS", "Entry", "entry_name", "pack", "take", "unpack"]

ENDINGS = (".json", ".safetensors")
"""Of the files of an entry: the card, the weights."""

_PART = r"[a-z0-9][a-z0-9._-]{0,99}"
_NAME = re.compile(f"{_PART}/{_PART}")
_MEND = "install upright again, or make or fetch the entry again"


def entry_name(recipe: Recipe) -> str:
    """Name an entry after what its network was trained on, and how.

    >>> entry_name(Recipe(objective="KL(rob, Wo-10)", data="cifar10"))
    'cifar10/kl-rob-wo10'
    >>> entry_name(Recipe(objective="std*", data="svhn", model="gresnet44"))
    'svhn/std-star-gresnet44'
    """
    objective = recipe.objective
    words = objective.text(_short) if isinstance(objective, Objective) else str(objective)
    if recipe.model != Recipe.model:
        words += f" {recipe.model}"
    return f"{plain_name(recipe.data)}/{plain_name(words)}"


def _short(attack: Attack) -> str:
    if isinstance(attack, RandomSearch) and attack.tries > 1:
        return f"wo{attack.tries}"
    return "spgd" if isinstance(attack, SpatialPGD) else str(attack)


@dataclass(frozen=True)
class Entry:
    """Where a model of the zoo lies, or is to lie."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        # What is no name of an entry must not become a path: it could lead out of the folder.
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} is no name of a model; write DATASET/NAME in small letters, "
                "digits, dots, dashes and underscores, as in cifar10/kl-rob-wo10"
            )

    @staticmethod
    def all_in(folder: Path) -> tuple[Entry, ...]:
        """The entries of a folder, by name; a folder that is not there has none."""
        found = (file.relative_to(folder).with_suffix("") for file in folder.glob("*/*.json"))
        names = sorted(name.as_posix() for name in found)
        return tuple(Entry(folder, name) for name in names if _NAME.fullmatch(name))

    @property
    def card_file(self) -> Path:
        """Where its card lies."""
        return self.folder / f"{self.name}.json"

    @property
    def weights_file(self) -> Path:
        """Where its weights lie."""
        return self.folder / f"{self.name}.safetensors"

    def card(self) -> Card:
        """Read the card."""
        return _read(self.name, self.card_file)

    def load(self, *, device: torch.device | str = "cpu") -> nn.Module:
        """Build the network with its weights, in evaluation mode; their digest is checked."""
        return _network(self.card(), self.weights_file, _content(self.weights_file)).to(device)

    def check_free(self) -> None:
        """Check that no entry is there yet."""
        if self.card_file.exists():
            raise ValueError(
                f"{self.card_file} is there already; remove it, or choose another name or folder"
            )

    def write(self, card: Card, weights: bytes) -> None:
        """Write both files, the card last: an entry without a card does not count."""
        self.check_free()
        write_whole(self.weights_file, weights)
        write_whole(self.card_file, write_card(card))


def take(file: Path, folder: Path, *, name: str | None = None) -> Entry:
    """Copy an entry into a zoo, from its two files that lie side by side; each is checked.

    Args:
        file: the card or the weights.
        folder: of the zoo.
        name: ``DATASET/NAME``; without, made of the recipe, see ``entry_name``.
    """
    if file.suffix not in ENDINGS:
        raise ValueError(f"{file} is no entry: its card is a .json, its weights a .safetensors")
    for run in file.absolute().parents[:2]:
        if (run / "run.json").exists():
            raise ValueError(f"{file} is of a run, which is no entry yet; give its folder, {run}")
    # A name with dots of its own loses none of them: the ending alone is changed.
    card_file, weights_file = (file.with_suffix(ending) for ending in ENDINGS)
    for part, what in ((card_file, "card"), (weights_file, "weights")):
        if not part.is_file():
            raise ValueError(f"{part} is not there; an entry is two files: put its {what} there")
    card = _read(card_file.stem, card_file)
    entry, content = Entry(folder, name or entry_name(card.recipe)), _content(weights_file)
    entry.check_free()
    _network(card, weights_file, content)
    entry.write(card, content)
    return entry


def _read(name: str, file: Path) -> Card:
    try:
        return read_card(name, file.read_bytes())
    except OSError as error:
        raise ValueError(f"{file} cannot be read; {_MEND}") from error
    except UnknownNameError as error:
        raise ValueError(f"{file}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}); {_MEND}") from error


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} cannot be read; {_MEND}") from error


def _network(card: Card, file: Path, content: bytes) -> nn.Module:
    """Build a card's network with the weights of a file, which must be the card's."""
    if hashlib.sha256(content).hexdigest() != card.weights_digest:
        raise ValueError(f"{file} is not the file of its card; {_MEND}")
    channels = card.image_shape[0]
    try:
        return unpack(content, card.recipe.model, classes=len(card.classes), channels=channels)
    except ValueError as error:
        raise ValueError(f"{file} does not fit its card ({error})") from error


def pack(network: nn.Module) -> bytes:
    """Give the content of a file of weights: safetensors, in which nothing can be run."""
    rounded = {weight.data_ptr() for weight in network.parameters() if weight.ndim > 1}
    packed = {
        name: tensor.to(torch.bfloat16 if tensor.data_ptr() in rounded else tensor.dtype)
        for name, tensor in model_tensors(network).items()
    }
    return save({name: tensor.cpu().contiguous() for name, tensor in packed.items()})


def unpack(content: bytes, model: str, *, classes: int, channels: int) -> nn.Module:
    """Build the network of that name with packed weights, in float32 and in evaluation mode."""
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise ValueError(f"not a file of weights: {error}") from error
    if is_brought(model):  # of which a few bytes could ask for one that fills all memory
        raise ValueError(f"{model} is not of this package, and the zoo has no others")
    return build_with(tensors, model, classes=classes, channels=channels)
