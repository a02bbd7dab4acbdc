"""The fast path of the ResNet on a GPU: the same network in few kernels, in Triton and CUDA."""

from upright.models.fused.evaluation import FusedResNet, can_fuse
from upright.models.fused.training import FusedTraining

__all__ = ["FusedResNet", "FusedTraining", "can_fuse"]
