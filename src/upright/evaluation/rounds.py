"""A search in rounds, driven for an evaluation: who is fooled, and who by its slopes is safe."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upright.attacks import Rounds, scored
from upright.devices import sent
from upright.evaluation.score import WorstLoss, is_fooled, may_be_fooled

__all__ = ["Driven", "drive"]

_EARLY = 4
"""The estimate that the rest of the search puts to the test is made after one part in so many."""


@dataclass(frozen=True)
class Driven:
    """What a search in rounds found of each image."""

    rounds: Rounds
    """Where the search ended, of the images that stayed."""
    fooled: Tensor
    safe: Tensor | None
    """Not fooled, nor can be, by the slopes that were seen; None where a search tells none."""
    safe_early: Tensor | None
    """The same after a quarter of the passes; all False where the search was over by then."""


def drive(
    score: WorstLoss, rounds: Rounds, alive: Tensor, passes: int, *, top: int, leave: bool
) -> Driven:
    """Search for the images ``alive`` (bool), in rounds of so many ``passes`` an image in all.

    Those that are fooled ``leave`` after each round, or are searched to the end. Who is alive, and
    all that is told, is on the host: scores are brought there once a round.
    """
    fooled, rows, tried = torch.zeros_like(alive), alive.nonzero()[:, 0], 0
    early, last = torch.zeros_like(alive), torch.zeros_like(alive)
    score.predictor.advance((len(alive) - len(rows)) * passes)
    device = score.images.device
    rounds, score = rounds.restrict(rows), score.restrict(rows)
    tells = rounds.ceiling() is not None
    while len(rows) and (poses := rounds.propose()) is not None:
        values = scored(score.ask, poses)
        found = values.detach().cpu()  # the one wait of a round
        score.check(poses, found)
        rounds.learn(values)
        was_early, tried = _EARLY * tried < passes, tried + len(values)
        fooled[rows] |= is_fooled(found).any(0)
        stay = (~fooled[rows]).nonzero()[:, 0]
        if leave and len(stay) < len(rows):
            score.predictor.advance((len(rows) - len(stay)) * (passes - tried))
            rows, score = rows[stay], score.restrict(stay)
            rounds = rounds.restrict(sent(stay, device))
        if tells and was_early and passes <= _EARLY * tried < _EARLY * passes:
            early[rows] = _is_safe(rounds, top) & ~fooled[rows]
    if not tells:
        return Driven(rounds, fooled, None, None)
    last[rows] = _is_safe(rounds, top) & ~fooled[rows]
    return Driven(rounds, fooled, last, early)


def _is_safe(rounds: Rounds, top: int) -> Tensor:
    ceiling = rounds.ceiling()
    assert ceiling is not None
    return ~may_be_fooled(ceiling, top).cpu()
