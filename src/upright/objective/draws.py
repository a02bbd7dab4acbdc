"""Where a loss takes its random poses from, and how a resumed loop goes on with them.

Each call has a seed of its own, computed from torch's seed (``torch.manual_seed``), the rank and
the number of the call. So two numbers are all that a checkpoint has to hold, and one checkpoint
serves every rank and every device. The global generator is not drawn from: what else comes from it,
such as dropout, stays what it would be without this loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from upright.checks import warn_that_poses_start_anew
from upright.ranks import current_ranks
from upright.seeds import seed_for

__all__ = ["Draws"]

_KEY = "_extra_state"  # as torch calls it in a state dict


class Draws(nn.Module):
    """Gives a generator for each call, and keeps in its state how to go on.

    Args:
        given: a generator of the user's own, which all calls then draw from.
    """

    def __init__(self, given: torch.Generator | None = None) -> None:
        super().__init__()
        self.given = given
        self.seed: int | None = None
        self.calls = 0
        self.register_load_state_dict_pre_hook(  # type: ignore[no-untyped-call]
            _allow_a_state_without_draws
        )

    def next(self, device: torch.device) -> torch.Generator:
        """Give the generator of the next call."""
        if self.given is not None:
            return self.given
        if self.seed is None:
            self.seed = seed_for(torch.initial_seed(), "poses", 0)
        seed = seed_for(seed_for(self.seed, "rank", current_ranks().rank), "call", self.calls)
        self.calls += 1
        return torch.Generator(device).manual_seed(seed)

    def get_extra_state(self) -> Tensor:
        """A tensor, as all else in a state dict: seed and calls, or a rank and its generator."""
        if self.given is not None:
            rank = torch.tensor([current_ranks().rank])
            return torch.cat((rank.view(torch.uint8), self.given.get_state()))
        return torch.tensor([-1 if self.seed is None else self.seed, self.calls])

    def set_extra_state(self, state: Tensor | None) -> None:
        """Go on where the state was taken, or say why that cannot be."""
        if state is None:
            return
        state = state.cpu()
        if (state.dtype == torch.uint8) != (self.given is not None):
            warn_that_poses_start_anew("give a generator now as then, or neither now nor then")
        elif self.given is not None:
            _restore(self.given, int(state[:8].view(torch.int64)), state[8:])
        else:
            seed, self.calls = state.tolist()
            self.seed = None if seed < 0 else seed


def _restore(generator: torch.Generator, rank: int, state: Tensor) -> None:
    if rank != current_ranks().rank:
        warn_that_poses_start_anew(
            f"the state is rank {rank}'s; save it on each rank, or give the loss no generator"
        )
    elif state.shape != generator.get_state().shape:
        warn_that_poses_start_anew("its generator was of another kind of device")
    else:
        generator.set_state(state.clone())  # it reads from where the tensor's memory begins


def _allow_a_state_without_draws(
    _: nn.Module, state: dict[str, Any], prefix: str, *_rest: object
) -> None:
    """Checkpoints of before draws were kept are still read."""
    state.setdefault(prefix + _KEY, None)
