"""Any network recorded on a GPU, for the searches of a training loop."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from upright.callers import warn_caller
from upright.checks import Model
from upright.identity import Unknown, as_module
from upright.logits import ask
from upright.tiles import is_out_of_memory
from upright.tracing import is_capturing

__all__ = ["Recorded"]

MOST = 4
"""Shapes of a batch that are recorded, since each keeps its activations; others are not."""
MOST_MOVES = 8
"""How often weights may move before it is given up to follow them."""


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    images: Tensor
    logits: Tensor


class Recorded(nn.Module):
    """A network whose passes on a GPU are recorded as CUDA graphs, and replayed.

    A search asks a network about small images, or few of them, in less time than its kernels take
    to be launched one by one. A recording launches all of them at once:

        search_model = Recorded(network)
        terms = loss(network, images, labels, search_model=search_model)

    A pass is recorded for each shape of images, dtype and precision in which it is asked, for a few
    of these, and the memory of its activations stays taken. Weights are read where they lie, so
    what an optimiser does to them is seen; all is recorded anew where they were moved. What is
    Python in a pass runs once, when it is recorded: hooks, and attributes that are no weights or
    buffers, are those of then.

    A pass in training mode, one that wants gradients and one on a CPU is not recorded, and one that
    looks at values cannot be. Such go to the network itself, as do all of a function that is no
    module, of which nobody knows what is in it.

    Args:
        model: a module from images to logits; one that PyTorch compiled as well.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.training = False  # of itself: whether the network is in training is its own affair
        self.model = as_module(model)
        self._recordings: dict[tuple[object, ...], _Recording] = {}
        self._places: tuple[object, ...] = ()
        self._moves = 0
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None
        self._gave_up = False

    def forward(self, images: Tensor) -> Tensor:
        recording = self._recording_of(images) if self._may_replay(images) else None
        if recording is None:
            return ask(self.model, images)
        recording.images.copy_(images)
        recording.graph.replay()
        return recording.logits.clone()

    def _may_replay(self, images: Tensor) -> bool:
        """Whether that is a pass to be recorded, as far as the images and the modules tell."""
        if self._gave_up or not _on_gpu(images) or not len(images) or is_capturing():
            return False
        parts = self.model.modules()
        return not any(part.training or isinstance(part, Unknown) for part in parts)

    def _recording_of(self, images: Tensor) -> _Recording | None:
        """Give the recording of such a pass, made now where there is none; None where none is."""
        # Once a pass: to walk over a network takes a part of what a replay saves.
        tensors = (*self.model.parameters(), *self.model.buffers())
        climbs = any(each.requires_grad for each in (images, *tensors))
        if (climbs and torch.is_grad_enabled()) or any(map(is_lazy, tensors)):
            return None
        self._follow(tensors)
        half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        kind = (images.shape, images.stride(), images.dtype, images.device, half)
        if not self._gave_up and kind not in self._recordings and len(self._recordings) < MOST:
            made = self._record(images, half)
            if made is not None:
                self._recordings[kind] = made
        return self._recordings.get(kind)

    def _follow(self, tensors: Sequence[Tensor]) -> None:
        """Forget all recordings where weights no longer lie where these read them."""
        places = tuple((each.data_ptr(), each.shape, each.dtype) for each in tensors)
        if places == self._places:
            return
        self._moves += bool(self._places)
        self._recordings, self._places = {}, places
        self._pool = self._stream = None
        if self._moves > MOST_MOVES:
            self._give_up("its weights or buffers lie elsewhere at each pass")

    def _record(self, images: Tensor, half: torch.dtype | None) -> _Recording | None:
        """Record a pass, after some that choose and compile its kernels; or say why it cannot be.

        On a stream of its own, which recordings share as they share their memory. What fails before
        anything is recorded is the caller's to see, such as images in a dtype that is refused.
        """
        with torch.inference_mode(False), torch.no_grad(), torch.cuda.device_of(images):
            own = images.clone()
            stream = self._stream = self._stream or torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self._answer(own, half)
                try:
                    with _looks_are_errors():
                        self._answer(own, half)
                    made = self._capture(own, half, stream)
                except Exception as error:
                    if is_out_of_memory(error):
                        raise
                    self._give_up(_first_reason(error))
                    return None
            torch.cuda.current_stream().wait_stream(stream)
        return made

    def _capture(
        self, images: Tensor, half: torch.dtype | None, stream: torch.cuda.Stream
    ) -> _Recording:
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: a loader's may take memory meanwhile.
        mode = "thread_local"
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode=mode):
            logits = self._answer(images, half)
        self._pool = graph.pool()
        return _Recording(graph, images, logits)

    def _answer(self, images: Tensor, half: torch.dtype | None) -> Tensor:
        """Ask the network. What autocast keeps of rounded weights would be recorded as it was."""
        with torch.autocast("cuda", half, enabled=half is not None, cache_enabled=False):
            return ask(self.model, images)

    def _give_up(self, reason: str) -> None:
        self._gave_up, self._recordings, self._pool = True, {}, None
        warn_caller(f"the model cannot be recorded, and is asked as it is: {reason}", UserWarning)

    def __getstate__(self) -> dict[str, Any]:
        """A copy records for itself: its weights lie elsewhere."""
        mine: dict[str, Any] = {"_recordings": {}, "_places": (), "_pool": None, "_stream": None}
        return vars(self) | mine


def _on_gpu(images: Tensor) -> bool:
    return images.is_cuda


@contextlib.contextmanager
def _looks_are_errors() -> Iterator[None]:
    """Let a look at a value raise: in a recording, it would leave more behind than an error."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():  # that it does not see every look
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def _first_reason(error: BaseException) -> str:
    """Say what went wrong first: what follows only says that something had."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).partition("\n")[0]
