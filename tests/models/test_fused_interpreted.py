"""The GPU's kernels compute what the network does, in Triton's interpreter: no GPU is needed."""

from __future__ import annotations

import pytest

from triton_interpreter import needs_interpreter, said_in_interpreter


@needs_interpreter
@pytest.mark.parametrize("size", [(8, 8, 10), (9, 7, 3)])
def test_kernels_give_logits_gradients_and_statistics_of_the_network(
    size: tuple[int, int, int],
) -> None:
    """Height, width, and outputs: those of ten classes, and those of a LocNet."""
    found = said_in_interpreter("interpreted_kernels.py", *map(str, size))
    assert 1e-5 < found.pop("rounding")["float16"] < 1e-3
    for mode, differences in found.items():
        for name, difference in differences.items():
            assert difference < 1e-5, (mode, name)
