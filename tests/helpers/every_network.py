"""The networks that tests of any network run with. A new kind of network is a new name in KINDS."""

from __future__ import annotations

import pytest

__all__ = ["KINDS", "LIBRARIES", "NETWORKS", "each_kind", "every_network"]

KINDS = [
    "resnet8x0.25",
    "resnet8x0.25-blur",
    "wideresnet10-1",
    "convnet",
    "gresnet8x0.2",
    "gresnet8x0.2-pool-invariant",
    "stn10x0.25",
    "etn10x0.25",
    "stn-affine10x0.25",
    "enlarged20:convnet0.25",
]
"""A small one of each kind, for tests that compile or train it."""

NETWORKS = [*KINDS, "resnet8", "resnet14x0.5", "resnet8x1.5", "gresnet14x0.3-pool"]
"""More depths and widths, for tests that take no time."""

LIBRARIES = ["timm:test_resnet", "torchvision:squeezenet1_1"]
"""Small ones of libraries that need not be there, for tests that ask for them."""

each_kind = pytest.mark.parametrize("name", KINDS)
every_network = pytest.mark.parametrize("name", NETWORKS)
