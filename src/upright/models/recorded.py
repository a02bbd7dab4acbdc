"""Any model recorded on a GPU, for the searches of a training loop."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from upright.checks import Model
from upright.identity import as_module
from upright.logits import ask
from upright.tiles import is_out_of_memory

__all__ = ["Recorded"]

MOST = 4
"""Shapes of a batch that are recorded, since each keeps its activations; others are not."""


@dataclass(frozen=True)
class _Record:
    graph: torch.cuda.CUDAGraph
    images: Tensor
    logits: Tensor


class Recorded(nn.Module):
    """A model whose passes on a GPU are recorded as CUDA graphs, and replayed.

    A search asks a network about small images, or few of them, in less time than its kernels take
    to be launched one by one. A record launches all of them at once:

        search_model = Recorded(network)
        terms = loss(network, images, labels, search_model=search_model)

    A pass is recorded for each shape of images, dtype and precision in which it is asked. Weights
    are read where they lie, so what an optimiser does to them is seen; all is recorded anew where
    they were moved. A pass in training mode, one that wants gradients and one on a CPU is not
    recorded, and one that looks at values cannot be: such go to the model itself.

    Args:
        model: any callable from images to logits; one that PyTorch compiled as well.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = as_module(model)
        self.training = self.model.training
        self._records: dict[tuple[object, ...], _Record] = {}
        self._places: tuple[int, ...] = ()
        self._pool: Any = None
        self._fails = False

    def forward(self, images: Tensor) -> Tensor:
        if not self._can_replay(images):
            return ask(self.model, images)
        record = self._record_of(images)
        if record is None:
            return ask(self.model, images)
        record.images.copy_(images)
        record.graph.replay()
        return record.logits.clone()

    def _can_replay(self, images: Tensor) -> bool:
        climbs = torch.is_grad_enabled() and (images.requires_grad or self._has_gradients())
        if self._fails or climbs or not images.is_cuda or not len(images):
            return False
        return not any(module.training for module in self.model.modules())

    def _has_gradients(self) -> bool:
        return any(weight.requires_grad for weight in self.model.parameters())

    def _record_of(self, images: Tensor) -> _Record | None:
        """Give the record of such a pass, made now where there is none; None where none can be."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        places = tuple(tensor.data_ptr() for tensor in tensors)
        if places != self._places:
            self._records, self._places, self._pool = {}, places, None
        half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        kind = (images.shape, images.stride(), images.dtype, images.device, half)
        if kind not in self._records and len(self._records) < MOST:
            try:
                self._records[kind] = self._record(images, half)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                self._fails = True
                reason = str(error).partition("\n")[0]
                warnings.warn(f"the model cannot be recorded: {reason}", stacklevel=4)
        return self._records.get(kind)

    def _record(self, images: Tensor, half: torch.dtype | None) -> _Record:
        """Record a pass, on a stream of its own as recording wants it."""
        stream = torch.cuda.Stream(images.device)
        with torch.inference_mode(False), torch.no_grad(), torch.cuda.device_of(images):
            own = images.clone()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):  # which choose and compile the kernels
                    self._answer(own, half)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=stream):
                logits = self._answer(own, half)
        self._pool = graph.pool()
        return _Record(graph, own, logits)

    def __getstate__(self) -> dict[str, Any]:
        """A copy records for itself: its weights lie elsewhere."""
        return vars(self) | {"_records": {}, "_places": (), "_pool": None}

    def _answer(self, images: Tensor, half: torch.dtype | None) -> Tensor:
        """Ask the model. What autocast keeps of rounded weights would be recorded as it was."""
        with torch.autocast("cuda", half, enabled=half is not None, cache_enabled=False):
            return ask(self.model, images)
