"""How a model is asked without a trace: no statistics, no gradients of weights, no messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import MethodType
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

__all__ = ["evaluation_mode", "without_synchronisation"]


@contextlib.contextmanager
def evaluation_mode(model: object) -> Iterator[None]:
    """Put a module into evaluation mode, its parameters out of reach of gradients; and undo both.

    Each part goes back to its own mode. Out of reach, since a compiled network would compute the
    gradients of its parameters beside those of the pose.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    wanted = [parameter.requires_grad for parameter in parameters]
    try:
        for module in modules:
            module.training = False
        for parameter in parameters:
            parameter.requires_grad = False
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for parameter, flag in zip(parameters, wanted, strict=True):
            parameter.requires_grad = flag


@contextlib.contextmanager
def without_synchronisation(model: object) -> Iterator[None]:
    """Let every ``DistributedDataParallel`` in a model call its network as if it were not there.

    It takes each pass with gradients for one that ends in gradients of weights. After a pass of a
    search, which ends in those of a pose, it would wait for the others or, with ``static_graph``,
    never average gradients again. It would also send the buffers round at every pass.
    """
    modules = model.modules() if isinstance(model, nn.Module) else []
    wrappers = [module for module in modules if isinstance(module, DistributedDataParallel)]
    before = [vars(wrapper).get("forward") for wrapper in wrappers]
    try:
        for wrapper in wrappers:
            wrapper.forward = MethodType(_forward, wrapper)  # type: ignore[method-assign]
        yield
    finally:
        for wrapper, forward in zip(wrappers, before, strict=True):
            del wrapper.forward
            if forward is not None:
                wrapper.forward = forward  # type: ignore[method-assign]


def _forward(wrapper: DistributedDataParallel, *inputs: Any, **options: Any) -> Any:
    """Call the network in a wrapper, with the inputs where the wrapper would bring them."""
    if wrapper.device_ids:
        device = wrapper.device
        inputs = tuple(x.to(device) if isinstance(x, Tensor) else x for x in inputs)
    return wrapper.module(*inputs, **options)
