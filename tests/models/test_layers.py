"""Layers that networks share, where the networks' own tests do not hold them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from host_kernels import needs_compiler
from upright.models.layers import largest


def test_the_largest_is_the_maximum_and_its_gradient_goes_to_one_place() -> None:
    x = torch.tensor([[1.0, 5.0, 5.0], [2.0, 0.0, 1.0]], requires_grad=True)
    found = largest(x, 1)
    found.sum().backward()
    assert found.tolist() == [5, 2]
    assert x.grad is not None
    assert x.grad.sum(1).tolist() == [1, 1]
    assert not x.grad[x != found[:, None]].any()


@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own
def test_the_gradient_of_the_largest_is_the_same_compiled_in_half_precision() -> None:
    def halved(x: Tensor) -> Tensor:
        return largest(x * 0.7 / 1.3, 1)

    x = torch.rand(8, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    plain, compiled = x.clone().requires_grad_(), x.clone().requires_grad_()
    halved(plain).sum().backward()
    torch.compile(halved)(compiled).sum().backward()
    assert plain.grad is not None
    assert compiled.grad is not None
    assert torch.equal(compiled.grad.sum(1), plain.grad.sum(1))
