"""What help says of names: all that is registered, at the time when help is asked for.

Commands write these calls into the annotations of their options, which are read that late.
"""

from __future__ import annotations

from upright.attacks import ATTACKS
from upright.data.registry import DATA_SETS
from upright.models import NETWORKS, network_forms
from upright.sources.registry import SOURCES

__all__ = ["attack_help", "data_help", "model_help", "network_help"]


def attack_help(before: str, after: str) -> str:
    """List the attacks."""
    return f"{before}\n{ATTACKS.listing()}\n{after}"


def data_help() -> str:
    """List the data sets."""
    return f"The images, with their classes:\n{DATA_SETS.listing()}"


def model_help() -> str:
    """List the kinds of names that models have."""
    return (
        f"The classifier:\n{SOURCES.listing()}\n"
        "It takes images in [0, 1] and gives logits. Files of models are programs, those of ONNX, "
        "too: give only those that you trust."
    )


def network_help() -> str:
    """List the networks."""
    network_forms()  # knows them all
    return (
        f"A network for small images:\n{NETWORKS.listing()}\n"
        "Or your own, as FILE.py:FACTORY or package.module:FACTORY: a class or a function that "
        "gives an nn.Module for images in [0, 1], called with classes= (or num_classes=) and "
        "channels= (or in_channels=, in_chans=) where it has such parameters."
    )
