"""Data sets: labelled images by name, from a file, or from a folder.

A new data set is a new file in this folder with one function under `@data_set("name")`. Every
module here is imported below, so that nothing else needs to know of it.
"""

import pkgutil
from importlib import import_module

from upright.data.class_names import ClassNames, imagenet_classes, read_classes
from upright.data.images import LabelledImages
from upright.data.registry import (
    AnySplit,
    Request,
    Split,
    data_names,
    data_set,
    has_parts,
    load_data,
)

__all__ = [
    "AnySplit",
    "ClassNames",
    "LabelledImages",
    "Request",
    "Split",
    "data_names",
    "data_set",
    "has_parts",
    "imagenet_classes",
    "load_data",
    "read_classes",
]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
