"""Compilers for tests: they capture a network as PyTorch's own does, and leave it as it is."""

from __future__ import annotations

import contextlib
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["Compilations", "compiled_afresh", "compiled_cheaply"]


class Compilations:
    """Notes of each graph for how many images it is, by their height and width."""

    def __init__(self, side: int = 8) -> None:
        self.sizes: list[int] = []
        self._side = side

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        tensors = (each for each in inputs if isinstance(each, Tensor) and each.ndim == 4)
        self.sizes += [len(each) for each in tensors if each.shape[-1] == self._side]
        return graph.forward


@contextlib.contextmanager
def compiled_afresh() -> Iterator[None]:
    """Forget what was compiled before; what is set meanwhile is put back."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch._dynamo.config.patch(recompile_limit=torch._dynamo.config.recompile_limit):
        yield


@contextlib.contextmanager
def compiled_cheaply(side: int = 8) -> Iterator[Compilations]:
    """Let ``torch.compile`` compile in no time, whatever it is told; give what notes it."""
    compiler, compile_ = Compilations(side), torch.compile

    def cheaply(model: Any, **options: Any) -> Any:
        return compile_(model, **(options | {"backend": compiler}))

    with compiled_afresh(), unittest.mock.patch.object(torch, "compile", cheaply):
        yield compiler
