"""The question whether arrays are a split of a known set, and if so, which variant in which order.

A split is known by its content, whatever its order. Where the content of the official files is not
known, whoever can vouch for files by their published MD5 sums may have them accepted as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from upright.data.known import IMAGE_SHAPE, KNOWN, KnownSet
from upright.data.raw import RawSplit, array_names, content_digest, split_digests
from upright.data.registry import Split

__all__ = [
    "BY_MD5",
    "Recognised",
    "by_content",
    "by_digests",
    "check_form",
    "in_words",
    "recognise",
]

BY_MD5 = "by MD5"
"""The variant that is vouched for by published sums of its files: its content was not known."""


@dataclass(frozen=True)
class Recognised:
    """Which split of a known set arrays are.

    Attributes:
        name: Of the set.
        variant: `official`, `rebuilt`, or `by MD5`.
        content: The `content_digest`, which does not depend on the order.
        digests: The `split_digests`, which do.
        usual: What `digests` are in the order of the published records; None where there are none.
    """

    name: str
    variant: str
    content: str
    digests: Mapping[str, str]
    usual: Mapping[str, str] | None

    @property
    def usual_order(self) -> bool:
        """Whether the order is that of the published records."""
        return self.digests == self.usual

    def __str__(self) -> str:
        if self.variant == BY_MD5:
            return f"{BY_MD5}, in the order of its files"
        return self.variant if self.usual_order else f"{self.variant}, in another order"


def in_words(recognised: Mapping[Split, Recognised]) -> str:
    """What the splits of a set are, said once where all are the same."""
    texts = {str(found) for found in recognised.values()}
    if len(texts) == 1:
        return texts.pop()
    return "; ".join(f"{split} {found}" for split, found in recognised.items())


def recognise(
    known: KnownSet,
    split: Split,
    raw: RawSplit,
    *,
    vouched: Callable[[Recognised], bool] = lambda _: False,
) -> Recognised:
    """Say which variant of a known set's split these arrays are, or raise what tells them from it.

    Args:
        known: The set that they should be of.
        split: Which part.
        raw: The arrays.
        vouched: Asked about arrays of unknown content, where that of the official files is unknown.
    """
    check_form(known, split, raw)
    digests = split_digests(split, raw)
    if (usual := by_digests(known, split, digests)) is not None:
        return usual
    content = content_digest(raw)
    if (shuffled := by_content(known, split, content, digests)) is not None:
        return shuffled
    unknown = Recognised(known.name, BY_MD5, content, digests, usual=None)
    if known.knows_official or not vouched(unknown):
        raise ValueError(_fault(known, split, unknown))
    return unknown


def by_digests(known: KnownSet, split: Split, digests: Mapping[str, str]) -> Recognised | None:
    """The variant that has these digests in its usual order, if any."""
    for variant in known.variants:
        if digests.items() <= variant.digests.items():
            return Recognised(known.name, variant.name, variant.content[split], digests, digests)
    return None


def by_content(
    known: KnownSet, split: Split, content: str, digests: Mapping[str, str]
) -> Recognised | None:
    """The variant that has this content, if any, in an order that has these digests."""
    for variant in known.variants:
        if content == variant.content[split]:
            usual = {name: variant.digests[name] for name in array_names(split)}
            return Recognised(known.name, variant.name, content, digests, usual)
    return None


def check_form(known: KnownSet, split: Split, raw: RawSplit) -> None:
    """Check what is seen without a look at the pixels: kinds, shapes, counts, range of labels."""
    images, labels = raw.images, raw.labels
    if images.dtype != np.uint8 or images.shape[1:] != IMAGE_SHAPE:
        shape = " x ".join(map(str, images.shape[1:]))
        raise ValueError(f"{split}_images are {shape} {images.dtype}, not 3 x 32 x 32 uint8")
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ValueError(f"{split}_labels are {labels.ndim}-d {labels.dtype}, not a list of int64")
    for name, array in (("images", images), ("labels", labels)):
        if len(array) != known.counts[split]:
            count = known.counts[split]
            raise ValueError(f"{split} has {len(array)} {name}, {known.name} has {count}")
    if labels.min() < 0 or labels.max() >= len(known.classes):
        low, high = labels.min(), labels.max()
        raise ValueError(f"{split}_labels run from {low} to {high}, not over the classes")


def _fault(known: KnownSet, split: Split, found: Recognised) -> str:
    """Name the arrays that are wrong; in another order than the usual one, neither can be told."""
    wrong = [
        name
        for name, digest in found.digests.items()
        if all(digest != variant.digests[name] for variant in known.variants)
    ]
    text = f"{' and '.join(wrong)} are not those of {known.name}"
    others = [
        other.name
        for other in KNOWN.values()
        if any(found.content == variant.content[split] for variant in other.variants)
    ]
    if others:
        return f"{text} but of {others[0]}"
    return f"{text} in any order" if len(wrong) > 1 else text
