"""How a model is asked without a trace: no statistics, no gradients of weights, no messages.

And how it is asked once about several batches, in whichever precision a caller's loop computes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

__all__ = [
    "climbing",
    "evaluation_mode",
    "joined",
    "ordinary",
    "out_of_reach",
    "without_synchronisation",
]


@contextlib.contextmanager
def climbing() -> Iterator[None]:
    """Let an attack climb, under ``torch.inference_mode`` too, where a caller may be.

    Gradients are those that the attack asks for, and no others.
    """
    with torch.inference_mode(False), torch.no_grad():
        yield


def ordinary(tensor: Tensor) -> Tensor:
    """Give a tensor that gradients may pass: one of inference mode as a copy, made outside it."""
    return tensor.clone() if tensor.is_inference() else tensor


@contextlib.contextmanager
def evaluation_mode(model: object) -> Iterator[None]:
    """Put a module into evaluation mode, its parameters out of reach of gradients; and undo both.

    Each part goes back to its own mode.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        with out_of_reach(model):
            yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


@contextlib.contextmanager
def out_of_reach(model: object) -> Iterator[None]:
    """Put the parameters of a module out of reach of gradients; and undo it.

    A compiled network would compute their gradients beside those of the pose. Sharded weights stay:
    ``fully_shard`` would keep those it gathers meanwhile, without gradients, for the training pass.
    """
    weights: Iterator[nn.Parameter] = iter(())
    if isinstance(model, nn.Module) and not _is_sharded(model):
        weights = model.parameters()
    parameters = [each for each in weights if each.requires_grad and not _is_inference(each)]
    try:
        for parameter in parameters:
            parameter.requires_grad = False
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad = True


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


def joined(batches: Sequence[Tensor]) -> Tensor:
    """Put batches of one dtype one after another, in that dtype.

    Autocast would bring them to a dtype of its own, and knows no way from one half precision to
    the other.
    """
    device = batches[0].device.type
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return torch.cat([*batches])
    with torch.autocast(device, enabled=False):
        return torch.cat([*batches])


def _is_sharded(model: nn.Module) -> bool:
    """Whether ``fully_shard`` has a part in it; where it was not imported, it has none."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(fsdp, "FSDPModule", None)
    return kind is not None and any(isinstance(part, kind) for part in model.modules())


def _is_inference(parameter: nn.Parameter) -> bool:
    """Whether it was made in inference mode: it gives no gradients, nor may it be told to."""
    return not is_lazy(parameter) and parameter.is_inference()


def _forward(wrapper: DistributedDataParallel, *inputs: Any, **options: Any) -> Any:
    """Call the network in a wrapper, with the inputs where the wrapper would bring them."""
    if wrapper.device_ids:
        device = wrapper.device
        inputs = tuple(x.to(device) if isinstance(x, Tensor) else x for x in inputs)
    return wrapper.module(*inputs, **options)
