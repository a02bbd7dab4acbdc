"""From a run that is finished to an entry of the zoo.

The card's numbers are of the packed weights: these are evaluated, not the checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from upright.data.known import KNOWN
from upright.evaluation import Precision, Question
from upright.measure.run import measure_run
from upright.records import Record
from upright.registry import is_ours
from upright.train import FinishedRun, RunDirectory, load_network
from upright.train.network import is_brought
from upright.window import Window
from upright.zoo import Card, Entry, entry_name, pack, unpack

__all__ = ["add_to_zoo"]


def add_to_zoo(
    path: Path,
    folder: Path,
    *,
    name: str | None = None,
    attacks: tuple[str, ...] = ("grid-775",),
    limit: int | None = None,
    precision: Precision = "float32",
    compiled: bool = False,
    device: torch.device | str = "cpu",
    note: str = "",
    beside: Callable[[Record], Record] = lambda record: record,
    progress: bool = False,
) -> Entry:
    """Pack a run's weights, evaluate them on the run's test images, and write weights and card.

    Args:
        path: the run's folder.
        folder: of the zoo; the entry becomes ``folder/DATASET/NAME.json`` and ``.safetensors``.
        name: ``DATASET/NAME``; without, made of the recipe, see ``entry_name``.
        attacks: to measure beside the natural accuracy.
        limit: measure the first so many test images only; the card says so.
        precision: of the network while it is measured.
        compiled: whether it is compiled for that, see ``upright.models.Compiled``.
        device: where to evaluate.
        note: what else the card is to say.
        beside: puts what others report beside a record, as ``paper.with_reported`` does.
        progress: show a bar with the time left.
    """
    run, finished, device = RunDirectory.open(path), FinishedRun.open(path), torch.device(device)
    recipe = run.recipe
    if recipe.is_locnet:
        raise ValueError(f"{path} is a LocNet, which finds poses; the zoo has classifiers")
    if is_brought(recipe.model):
        raise ValueError(
            f"{path} trained {recipe.model}, and the zoo has networks of this package only: what "
            "others get must need no other code"
        )
    families = recipe.space.chain.families
    if own := [each.name for each in families if not is_ours(type(each))]:
        raise ValueError(
            f"{path} was trained on {', '.join(own)}, which others do not have: the zoo is of the "
            "families of this package"
        )
    if recipe.load_data("test").digest() == run.data_digest:
        raise ValueError(
            f"{recipe.data} has no test images apart from those that {path} was trained on; train "
            "on data with a split, such as an .npz file with train_images and test_images"
        )
    entry = Entry(folder, name or entry_name(recipe))
    entry.check_free()
    weights = pack(load_network(path))
    network = unpack(weights, recipe.model, classes=len(run.classes), channels=run.channels)
    measured = measure_run(
        replace(finished, packed=True),
        network.to(device),
        Question.of(attacks, limit=limit, precision=precision, compile=compiled),
        device=device,
        progress=progress,
    )
    images = recipe.load_data("test", limit=1).images
    height, width = Window.of(images, recipe.view).size
    card = Card(
        name=entry.name,
        classes=run.classes,
        image_shape=(run.channels, height, width),
        train_digest=run.data_digest,
        weights_digest=hashlib.sha256(weights).hexdigest(),
        records=tuple(beside(each.record) for each in measured),
        note=note,
        data_terms=KNOWN[recipe.data].terms if recipe.data in KNOWN else "",
    )
    entry.write(card, weights)
    return entry
