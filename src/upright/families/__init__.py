"""Families of transformations: one file for each.

Each names its axes and says how to apply them: by a matrix, if it moves points, or by a map of
pixels. ``Chain`` puts families one after another. A new file in this folder is found by itself.
"""

import importlib
import pkgutil

# In the order in which messages name them.
from upright.families.shift import Shift  # isort: skip
from upright.families.rotate import Rotate, cos_sin_degrees  # isort: skip
from upright.families.zoom import Zoom  # isort: skip
from upright.families.stretch import Stretch  # isort: skip
from upright.families.shear import Shear  # isort: skip
from upright.families.perspective import Perspective  # isort: skip
from upright.families.brightness import Brightness  # isort: skip
from upright.families.contrast import Contrast  # isort: skip
from upright.families.gamma import Gamma  # isort: skip
from upright.families.saturation import Saturation  # isort: skip
from upright.families.hue import Hue  # isort: skip
from upright.families.blur import Blur  # isort: skip

from upright.families.axis import Axis
from upright.families.base import (
    FAMILIES,
    Family,
    OfPixels,
    Size,
    Spatial,
    family,
    matrix_inverse,
    matrix_of,
    matrix_product,
)
from upright.families.chain import RIGID, Chain, Stage, UnknownFamilyError, chain_of

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "FAMILIES",
    "RIGID",
    "Axis",
    "Blur",
    "Brightness",
    "Chain",
    "Contrast",
    "Family",
    "Gamma",
    "Hue",
    "OfPixels",
    "Perspective",
    "Rotate",
    "Saturation",
    "Shear",
    "Shift",
    "Size",
    "Spatial",
    "Stage",
    "Stretch",
    "UnknownFamilyError",
    "Zoom",
    "chain_of",
    "cos_sin_degrees",
    "family",
    "matrix_inverse",
    "matrix_of",
    "matrix_product",
]
