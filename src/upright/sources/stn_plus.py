"""The paper's two-stage network by name, see ``upright.train.two_stage``.

``stn-plus:LOCNET,CLASSIFIER`` names it, each a folder of a run of ``upright train``, the first with
the objective ``LocNet(black)`` or ``LocNet(reflection)``, the second in the paper with ``std*``.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from upright.checks import Model
from upright.sources.registry import model_source
from upright.sources.run import load_run
from upright.train.two_stage import StnPlus, load_locator

__all__ = ["STN_PLUS", "load_stn_plus"]

STN_PLUS = re.compile(r"stn-plus:([^,]+),([^,]+)")
"""Its name, and in it those of the two runs."""


@model_source(
    "stn-plus:LOCNET,CLASSIFIER",
    STN_PLUS.pattern,
    prefix=True,
    about="two runs, of which the first straightens images",
)
def load_stn_plus(locnet: str, classifier: str, *, device: torch.device) -> Model:
    """Load the two runs."""
    locator = load_locator(Path(locnet))
    return StnPlus(locator, load_run(classifier, device=device), locator.fill).to(device).eval()
