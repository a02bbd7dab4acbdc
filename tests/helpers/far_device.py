"""A device that is far, as a GPU is: who looks at a value there, or copies without care, waits.

Its name is "meta", and its tensors lie on the CPU. Operations on tensors of both places are
refused, as they are with a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = ["FAR", "FarDevice"]

FAR = torch.device("meta")
_LOOKS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select")
_INDEXED = ("aten::index", "aten::index_put", "aten::index_put_")


class _FarTensor(Tensor):
    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> _FarTensor:
        made: _FarTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=FAR,
        )
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise RuntimeError(f"{operation} on the far device, which nobody has turned on")


class FarDevice(TorchDispatchMode):
    """Makes the device there, and notes each wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        far = any(isinstance(each, _FarTensor) for each in tensors)
        goes_to, name = kwargs.get("device"), operation.overloadpacket._qualified_op_name
        if goes_to is not None:
            kwargs["device"] = torch.device("cpu")
        ends_far = far if goes_to is None else torch.device(goes_to) == FAR
        some = not tensors or any(each.numel() for each in tensors)
        if some and self._waits(name, args, kwargs, from_far=far, ends_far=ends_far):
            self.waits.append(name)
        if far and name not in ("aten::_to_copy", "aten::copy_"):
            _refuse_both(name, tensors)
        answer = operation(
            *tree_map_only(_FarTensor, _here, args), **tree_map_only(_FarTensor, _here, kwargs)
        )
        if name.endswith("_") and isinstance(args[0], Tensor):
            return args[0]
        return tree_map_only(Tensor, _FarTensor, answer) if ends_far else answer

    @staticmethod
    def _waits(
        name: str, args: Any, kwargs: dict[str, Any], *, from_far: bool, ends_far: bool
    ) -> bool:
        if name == "aten::copy_":
            return isinstance(args[0], _FarTensor) != isinstance(args[1], _FarTensor)
        if name == "aten::_to_copy" and from_far != ends_far:
            return from_far or not kwargs.get("non_blocking", False)
        if name in _INDEXED:
            masks = [each for each in tree_leaves(args[1]) if each is not None]
            return from_far and any(each.dtype in (torch.bool, torch.uint8) for each in masks)
        return from_far and name in _LOOKS


def _here(tensor: _FarTensor) -> Tensor:
    return tensor.here


def _refuse_both(name: str, tensors: list[Tensor]) -> None:
    """Refuse tensors of both places, but numbers, which are of any."""
    if any(each.ndim and not isinstance(each, _FarTensor) for each in tensors):
        raise RuntimeError(f"{name}: tensors of two devices")
