"""Networks: one for each file, normalisation inside."""

from upright.models.compiled import Compiled, settle_compiler
from upright.models.fused import FusedResNet, FusedTraining, can_fuse
from upright.models.layout import laid_as_usual, lay_as_usual, lay_channels_last
from upright.models.precision import InHalfPrecision, in_half_precision
from upright.models.recorded import Recorded
from upright.models.registry import (
    NETWORKS,
    build_network,
    builder_of,
    is_network,
    network,
    network_forms,
)
from upright.models.resnet import ResNet, resnet

__all__ = [
    "NETWORKS",
    "Compiled",
    "FusedResNet",
    "FusedTraining",
    "InHalfPrecision",
    "Recorded",
    "ResNet",
    "build_network",
    "builder_of",
    "can_fuse",
    "in_half_precision",
    "is_network",
    "laid_as_usual",
    "lay_as_usual",
    "lay_channels_last",
    "network",
    "network_forms",
    "resnet",
    "settle_compiler",
]
