"""`cifar10`, `cifar100` and `svhn` by name, from the cache that `upright data fetch` fills."""

from __future__ import annotations

from functools import partial

import torch

from upright.data.images import LabelledImages
from upright.data.known import KNOWN, KnownSet
from upright.data.registry import Request, data_set
from upright.data.store import open_split

__all__: list[str] = []


def _read(known: KnownSet, request: Request) -> LabelledImages:
    raw = open_split(known, request.split)
    images, labels = raw.images[: request.limit], raw.labels[: request.limit]
    return LabelledImages(torch.from_numpy(images), torch.from_numpy(labels), known.classes)


for _known in KNOWN.values():
    data_set(_known.name)(partial(_read, _known))
