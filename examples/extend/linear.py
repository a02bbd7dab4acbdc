"""A source of models: linear classifiers in ``.npz`` files, by the name ``linear:FILE.npz``."""

import numpy as np
import torch
from torch import nn

from upright.sources import Preprocess, Pretrained, model_source


@model_source("linear:FILE.npz", r"linear:(.+)", prefix=True, about="weights, bias and names")
def load_linear(file: str, *, device: torch.device) -> Pretrained:
    """Load a classifier of pixels in [-1, 1]."""
    with np.load(file, allow_pickle=False) as arrays:
        weights, bias = (torch.from_numpy(arrays[name]) for name in ("weights", "bias"))
        names = tuple(map(str, arrays["names"]))
    layer = nn.Linear(weights.shape[1], weights.shape[0])
    layer.load_state_dict({"weight": weights, "bias": bias})
    network = nn.Sequential(nn.Flatten(), layer).to(device).eval()
    return Pretrained(network, Preprocess(mean=(0.5,), std=(0.5,)), names)
