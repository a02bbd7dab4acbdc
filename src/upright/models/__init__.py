"""Networks: one for each file, normalisation inside."""

from upright.models.registry import build_network, network, network_forms
from upright.models.resnet import ResNet, resnet

__all__ = ["ResNet", "build_network", "network", "network_forms", "resnet"]
