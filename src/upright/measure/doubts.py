"""What is suspicious about a model that is evaluated on these data, by what trained it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from upright.checks import few
from upright.data import LabelledImages, has_parts
from upright.identity import FromFile
from upright.measure.classes import IMAGENET
from upright.measure.measured import Loaded
from upright.sources import Trained

__all__ = ["doubts", "notes"]


def doubts(model: str, loaded: Loaded, *, in_time: bool = False) -> Iterator[str]:
    """Say what probably was not meant, one line each.

    Args:
        model: as it was asked for.
        loaded: the model, the data that were read, and what is asked.
        in_time: whether as much is to be measured as there is time for.
    """
    data_name, split = loaded.data_name, loaded.question.split
    if split != "test" and not has_parts(data_name):
        same = "the same images as" if split == "train" else "some images of"
        yield f"{data_name} has no parts: --split {split} reads {same} test"
    yield from _of_outputs(loaded)
    every = (_of_training(model, each, loaded, in_time=in_time) for each in loaded.trained)
    yield from dict.fromkeys(doubt for some in every for doubt in some)


def _of_training(model: str, trained: Trained, loaded: Loaded, *, in_time: bool) -> Iterator[str]:
    """What the training of one part says."""
    data_name, data, fill = loaded.data_name, loaded.data, loaded.question.fill
    split, in_part = loaded.question.split, in_time or loaded.question.sample is not None
    if split == "test" and _is_seen(trained, data_name, data, whole=not in_part):
        yield (
            f"{model} was trained on these very images, so this is no test; give images that it "
            "has not seen, such as a folder with train/ and test/, or an .npz with test_images"
        )
    if split == "held-out" and not trained.recipe.held_out:
        yield f"{model} was trained on these images; with --held-out, it would not have been"
    # The classes of an .npz file are numbers.
    if trained.classes != data.classes and not data_name.startswith("npz:"):
        yield (
            f"{model} was trained for {few(trained.classes)}, but {data_name} has "
            f"{few(data.classes)}; check --data"
        )
    if trained.locnet_fill not in (None, fill):
        yield (
            f"the LocNet learned from {trained.locnet_fill} fill and has never seen "
            f"{fill}: the paper's attack would have --fill {trained.locnet_fill}"
        )


def notes(model: str, loaded: Loaded) -> Iterator[str]:
    """Say what was taken for granted, one line each."""
    asked, there = loaded.question.sample, len(loaded.data)
    if asked is not None and asked > there:
        yield f"there are {there} images, and no {asked} to draw from: all are measured"
    if loaded.in_order:
        order = few([f"{number} {name}" for number, name in enumerate(loaded.data.classes)], 10)
        yield (
            f"what the outputs of {model} are called is not known, so folders are its classes by "
            f"their order: {order}; --classes FILE names the outputs"
        )
    parts = loaded.model.modules() if isinstance(loaded.model, nn.Module) else ()
    if loaded.preprocess.mean is None and any(isinstance(part, FromFile) for part in parts):
        yield (
            f"{model} is shown images in [0, 1]; if it was trained on others, give --mean and "
            "--std, or --preprocess imagenet (--mean 0 --std 1 says that these are right)"
        )


def _of_outputs(loaded: Loaded) -> Iterator[str]:
    """What the number of outputs says; named classes were looked at when they were matched."""
    outputs, classes = loaded.outputs, len(loaded.data.classes)
    if outputs is None or outputs == classes:
        return
    if outputs == IMAGENET + 1 and not loaded.preprocess.offset:
        yield (
            f"the model has {outputs} outputs: if the first is a background class, as of models "
            "from TensorFlow, give --offset 1"
        )
    elif outputs == classes - 1 and not (loaded.data.labels == 0).any():
        yield (
            f"the model has {outputs} outputs, and no label is 0: labels probably count from 1, "
            "but must from 0; subtract 1 from them"
        )
    elif outputs < classes:
        yield (
            f"the model has {outputs} outputs, but the data have {classes} classes: its outputs "
            "mean something else than the labels; give data with the classes of the model"
        )


def _is_seen(trained: Trained, data_name: str, data: LabelledImages, *, whole: bool) -> bool:
    """Whether a run was trained on these images: by their digest, or a name that has no parts.

    The name, since the digest of some of them is another; and who wants a part does not wait until
    the whole is read.
    """
    same_name = trained.recipe.data == data_name and not has_parts(data_name)
    return same_name or (whole and trained.data_digest == data.digest())
