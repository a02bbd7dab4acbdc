"""A few processes on this machine that share jobs, in the way of torchrun but quicker to start."""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from other_libraries import let_torchvision_be_imported
from upright.ranks import Ranks

PATIENCE = 120.0  # seconds; for a machine that has much else to do
Job = Callable[..., Any]


class FailedError(Exception):
    """A job failed on some rank, or a rank died."""


class RankPool:
    """Ranks that wait for jobs; a job is a function of a module, called with its rank first.

    They have joined each other by a file in the folder; without one they are still to join.
    """

    def __init__(self, folder: Path | None, size: int = 2) -> None:
        # A server that has imported everything once: its children start at once, and have no trace
        # of what other tests did with autograd's threads.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["upright.cli", "torch._dynamo", "hypothesis", "pytest"])
        self.pipes, self.processes = [], []
        for rank in range(size):
            here, there = context.Pipe()
            arguments = (Ranks(rank, size), folder and folder / "store", there)
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def outcomes(self, job: Job, *arguments: Any) -> list[Any]:
        """Do a job on all ranks; give what each returned, or the error that it met."""
        for pipe in self.pipes:
            pipe.send_bytes(pickle.dumps((job, arguments)))
        return [_receive(pipe) for pipe in self.pipes]

    def run(self, job: Job, *arguments: Any) -> list[Any]:
        """Do a job on all ranks, and give what each returned."""
        outcomes = self.outcomes(job, *arguments)
        for outcome in outcomes:
            if isinstance(outcome, FailedError):
                raise outcome
        return outcomes


def _receive(pipe: Connection) -> Any:
    if not pipe.poll(PATIENCE):
        return FailedError("no answer: it hangs")
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        return FailedError("it died")


def _work(ranks: Ranks, store: Path | None, pipe: Connection) -> None:
    torch.set_num_threads(1)
    _schemas = let_torchvision_be_imported()  # as for the tests, whose settings end there
    if store is not None:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=ranks.rank,
            world_size=ranks.size,
            timeout=timedelta(seconds=PATIENCE),
        )
    while True:
        job, arguments = pickle.loads(pipe.recv_bytes())
        try:
            answer = job(ranks, *arguments)
        except Exception:
            answer = FailedError(traceback.format_exc())
        pipe.send_bytes(pickle.dumps(answer))
