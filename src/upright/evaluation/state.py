"""The state of a long evaluation on disk, so that it continues where it was stopped.

One safetensors file: the arrays measured so far, and as its metadata what the evaluation was asked.
A state is not continued with another question or other data, nor with another model: a module is
known by a digest of its weights, any other callable by its answers to the first images.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from upright.evaluation.stream import Chunk
from upright.files import write_whole

__all__ = ["State", "digest_of", "load_state", "save_state"]


@dataclass
class State:
    """What was measured so far: arrays by name, each a list of one tensor for each chunk."""

    question: dict[str, object]
    arrays: dict[str, list[Tensor]] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    done: int = 0
    checksum: int = 0

    def keep(self, **arrays: Tensor) -> None:
        """Keep one chunk's arrays."""
        for name, array in arrays.items():
            self.arrays.setdefault(name, []).append(array.detach().cpu())

    def add(self, name: str, amount: float) -> None:
        """Add to a running total."""
        self.totals[name] = self.totals.get(name, 0) + amount

    def once(self, name: str, array: Tensor) -> Tensor:
        """Keep an array that is the same for all chunks, and give the one that was kept first."""
        return self.arrays.setdefault(name, [array.detach().cpu()])[0]

    def joined(self, name: str) -> Tensor:
        try:
            return torch.cat(self.arrays[name])
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"the state has no whole {name}; remove it") from error

    def total(self, name: str) -> float:
        if name not in self.totals:
            raise ValueError(f"the state has no {name}; remove it")
        return self.totals[name]

    def optional(self, name: str) -> Tensor | None:
        return self.joined(name) if name in self.arrays else None


def checksum(chunk: Chunk, before: int) -> int:
    """Continue a checksum of images and labels."""
    for part in (chunk.images, chunk.labels):
        content = part.detach().cpu().contiguous().view(torch.uint8).numpy()
        before = zlib.crc32(content.tobytes(), before)
    return before


def digest_of(model: object) -> str | None:
    """Give a digest of a module's weights and buffers; None for any other callable."""
    if not isinstance(model, nn.Module):
        return None
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        if isinstance(tensor, Tensor):
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _digest(metadata: dict[str, str], arrays: dict[str, Tensor]) -> str:
    """Give a digest of all that a state holds."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_state(path: Path, state: State) -> None:
    """Write a state whole or not at all."""
    metadata = {
        "question": json.dumps(state.question, sort_keys=True),
        "totals": json.dumps(state.totals),
        "done": str(state.done),
        "checksum": str(state.checksum),
    }
    arrays = {name: state.joined(name).contiguous() for name in state.arrays}
    write_whole(path, save(arrays, metadata | {"sha256": _digest(metadata, arrays)}))


def _check(asked: object, totals: object, done: int, arrays: dict[str, Tensor]) -> None:
    """Refuse what no evaluation has written, although its digest fits."""
    numbers = totals.values() if isinstance(totals, dict) else [None]
    if not isinstance(asked, dict) or not all(isinstance(each, int | float) for each in numbers):
        raise ValueError("it has no question or no totals")
    for name, array in arrays.items():
        once = name == "first_logits" or name.endswith("/grid")
        wrong = array.ndim == 0 or (not once and len(array) != done)
        if wrong or (name.endswith("fooled") and array.dtype != torch.bool):
            raise ValueError(f"{name} are not those of {done} images")


def load_state(path: Path, question: dict[str, object]) -> State:
    """Read a state, or begin one where there is no file."""
    if not path.exists():
        return State(question)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.pop("sha256") != _digest(metadata, arrays):
            raise ValueError("its digest does not fit")
        asked, totals = json.loads(metadata["question"]), json.loads(metadata["totals"])
        done = int(metadata["done"])
        _check(asked, totals, done, arrays)
        pieces = {name: [array] for name, array in arrays.items()}
        state = State(question, pieces, totals, done, int(metadata["checksum"]))
    except (SafetensorError, KeyError, ValueError, OSError, RecursionError) as error:
        raise ValueError(
            f"{path} is not the state of an evaluation ({error}); remove it"
        ) from error
    if asked != json.loads(json.dumps(question)):
        differing = sorted(key for key in question if asked.get(key) != question[key])
        raise ValueError(
            f"{path} belongs to another evaluation (other {', '.join(differing) or 'settings'}); "
            "remove it or name another file"
        )
    return state
