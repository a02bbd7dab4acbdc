"""`cifar10`, `cifar100` and `svhn` by name, from the cache that `upright data fetch` fills."""

from __future__ import annotations

from functools import partial

import torch

from upright.data.images import LabelledImages
from upright.data.known import KNOWN, known_set
from upright.data.registry import Request, data_set
from upright.data.store import open_split

__all__: list[str] = []


def _read(name: str, request: Request) -> LabelledImages:
    known = known_set(name)
    raw = open_split(known, request.split)
    images, labels = raw.images[: request.limit], raw.labels[: request.limit]
    return LabelledImages(torch.from_numpy(images), torch.from_numpy(labels), known.classes)


for _name in KNOWN:
    data_set(_name, about="from `upright data fetch`")(partial(_read, _name))
