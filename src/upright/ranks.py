"""Several processes that share one job, as ``torchrun`` starts them.

Rank 0 leads: it alone writes and speaks. What all ranks must agree on goes through the few methods
here, which every rank calls in the same order. A process that works alone is the normal case, and
for it each of them does nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["ALONE", "Part", "Ranks", "current_ranks", "joined_ranks"]

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """Consecutive items out of ``whole``."""

    start: int
    stop: int
    whole: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def fraction(self) -> float:
        return len(self) / self.whole

    def take(self, items: Tensor, dim: int = 0) -> Tensor:
        """Give this part of a tensor that has all items along a dimension."""
        return items.narrow(dim, self.start, len(self))


@dataclass(frozen=True)
class Ranks:
    """This process, and how many share the job."""

    rank: int = 0
    size: int = 1

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def part(self, count: int) -> Part:
        """Give this rank's part of so many items: the parts differ by one item at most."""
        return Part(
            self.rank * count // self.size, (self.rank + 1) * count // self.size, whole=count
        )

    def sum(self, values: Tensor) -> Tensor:
        """Give the sum over all ranks of a tensor."""
        if not self.alone:
            values = values.detach().clone()
            dist.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Say to all whether it is so on any rank."""
        return bool(self.sum(torch.tensor(int(flag))))

    def gather(self, value: T) -> list[T]:
        """Give every rank the values of all, in the order of ranks."""
        if self.alone:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    def claims(self) -> Iterator[int]:
        """Count 0, 1, 2 and so on; each number goes to the one rank that asks for it first."""
        if self.alone:
            yield from itertools.count()
        name = self.lead(lambda: uuid.uuid4().hex)
        store = dist.distributed_c10d._get_default_store()
        while True:
            yield store.add(name, 1) - 1

    def lead(self, work: Callable[[], T]) -> T:
        """Do work on rank 0 only, and give its result, or its error, to all."""
        if self.alone:
            return work()
        outcome: list[tuple[T | None, Exception | None]] = [(None, None)]
        if self.leads:
            try:
                outcome = [(work(), None)]
            except (ValueError, OSError) as error:
                outcome = [(None, error)]
        dist.broadcast_object_list(outcome)
        result, failure = outcome[0]
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]


ALONE = Ranks()


def current_ranks() -> Ranks:
    """Give the processes that have joined already, by whatever means."""
    if dist.is_available() and dist.is_initialized():
        return Ranks(dist.get_rank(), dist.get_world_size())
    return ALONE


@contextlib.contextmanager
def joined_ranks(
    device: torch.device | str = "cpu", *, patience: timedelta = timedelta(minutes=30)
) -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started, or be alone where it did not.

    Those that have joined already, as in a loop of one's own, stay joined. On GPUs each process of
    a machine takes one of its own. ``patience`` is how long a rank waits for another that neither
    answers nor dies.
    """
    if not (joined := current_ranks()).alone:
        yield joined
        return
    # All three: other tools set one or two of them for reasons of their own.
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys():
        yield ALONE
        return
    ranks = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    if ranks.alone:
        yield ranks
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        _take_gpu(torch.device(device), int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=patience)
    try:
        yield ranks
    finally:
        dist.destroy_process_group()


def _take_gpu(device: torch.device, number: int) -> None:
    if ":" in str(device):
        raise ValueError(f"each process takes a GPU of its own: ask for cuda, not {device}")
    if number >= torch.cuda.device_count():
        raise ValueError(
            f"there are {torch.cuda.device_count()} GPUs for at least {number + 1} processes; "
            "start one process for each GPU"
        )
    torch.cuda.set_device(number)
