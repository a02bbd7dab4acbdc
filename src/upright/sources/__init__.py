"""Models by name, from wherever people keep them.

A new kind of name is a new file in this folder with one function under ``@model_source``; every
module here is imported below, so nothing else needs to know of it.
"""

import pkgutil
from importlib import import_module

from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained, Trained
from upright.sources.registry import load_model, load_pretrained, model_names, model_source
from upright.train.two_stage import StnPlus, load_locator

__all__ = [
    "Preprocess",
    "Pretrained",
    "StnPlus",
    "Trained",
    "load_locator",
    "load_model",
    "load_pretrained",
    "model_names",
    "model_source",
]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
