"""Which model is this: what is known of it, so that what was measured of one is not another's.

A module is known by its weights, and a model that was read from a file by that file. Of any other
callable nothing can be told but by asking it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from upright.checks import Model

__all__ = [
    "NOBODY",
    "FromFile",
    "Identity",
    "Unknown",
    "as_module",
    "digest_of",
    "file_digest",
    "is_from_file",
]


class Unknown(nn.Module):
    """A callable that is no module: nothing is known of what it is a part of, but by asking."""

    def __init__(self, call: Model) -> None:
        super().__init__()
        self.call, self.training = call, False

    def forward(self, images: Tensor) -> Tensor:
        return self.call(images)


def as_module(model: Model) -> nn.Module:
    """Give a model as a part of another, so that it is seen whether all of it is known."""
    return model if isinstance(model, nn.Module) else Unknown(model)


class FromFile(nn.Module):
    """A model that was read from a file: it does what that does, and is known by the digest.

    A module, so that whatever stands around it has it among its parts.
    """

    def __init__(self, model: Model, digest: str) -> None:
        super().__init__()
        self.model, self.digest = model, digest
        # It has no mode of its own: around a model in evaluation mode nothing is in training.
        self.training = isinstance(model, nn.Module) and model.training

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images)

    def state_dict(self, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Give that of the model: what wraps it does not change how its weights are called."""
        inside = self.model
        return (inside if isinstance(inside, nn.Module) else nn.Module()).state_dict(**options)


@dataclass(frozen=True)
class Identity:
    """What is known of a model: SHA-256 sums, None where it has no such thing."""

    weights: str | None
    """Of a module's weights, buffers and extra state."""
    files: str | None
    """Of the file that it, or a part of it, was read from."""

    @staticmethod
    def of(model: object) -> Identity:
        """Look at a model, and at all that is in it."""
        if not isinstance(model, nn.Module):
            return NOBODY
        hides = any(isinstance(part, Unknown) for part in model.modules())
        tensors, files = {} if hides else model.state_dict(), list(_files(model))
        several = hashlib.sha256("".join(files).encode()).hexdigest() if files[1:] else None
        return Identity(digest_of(tensors) if tensors else None, several or next(iter(files), None))


NOBODY = Identity(None, None)
"""Nothing is known."""


def is_from_file(model: object) -> bool:
    """Whether a model, or a part of it, does what a file says."""
    return isinstance(model, nn.Module) and any(True for _ in _files(model))


def file_digest(path: Path, *beside: Path) -> str:
    """Digest a file, with the digests of those that belong to it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    for other in beside:
        digest.update(file_digest(other).encode())
    return digest.hexdigest()


def digest_of(held: dict[str, Any]) -> str:
    """Digest what a module or another object holds, by its names, to the last bit."""
    digest = hashlib.sha256()
    for name, value in held.items():
        digest.update(f"{name} {_kind(value)}\n".encode())
        for part in _content(value):
            digest.update(part)
    return digest.hexdigest()


def _files(model: nn.Module) -> Iterator[str]:
    return (part.digest for part in model.modules() if isinstance(part, FromFile))


def _kind(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if _is_plain(value) else type(value).__name__


def _content(value: object) -> Iterator[bytes]:
    """All numbers of what a module keeps; the text of a large tensor leaves most of them out."""
    if _is_plain(value):
        flat = value.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().tobytes()
    elif parts := _parts(value):
        for part in parts:
            yield f"{_kind(part)}\n".encode()
            yield from _content(part)
    else:
        yield str(value).encode()


def _parts(value: object) -> Sequence[object]:
    """What packed weights are made of; nothing where a value cannot be taken apart."""
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, dict):
        return [*value.items()]
    if not isinstance(value, Tensor) or is_lazy(value) or value.is_meta:
        return ()
    if value.is_quantized:
        return [value.int_repr(), value.dequantize()]  # the numbers, and what they stand for
    sparse = value.detach().to_sparse_coo().coalesce()
    return [sparse.indices(), sparse.values()]


def _is_plain(value: object) -> TypeGuard[Tensor]:
    if not isinstance(value, Tensor) or is_lazy(value):
        return False
    return value.layout == torch.strided and not (value.is_quantized or value.is_meta)
