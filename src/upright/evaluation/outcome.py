"""From the state of an evaluation that is done to what it measured."""

from __future__ import annotations

from torch import Tensor

from upright.evaluation.question import Question
from upright.evaluation.result import AttackResult, Evaluation, SlopeEstimate
from upright.evaluation.state import State
from upright.fooled import FooledPoses
from upright.pose import Pose
from upright.space import Space

__all__ = ["outcome"]


def outcome(kept: State, question: Question, space: Space | None, *, oracle: bool) -> Evaluation:
    """Put together what the pieces of a state say; ``oracle`` is whether they are of one.

    ``space`` is the question's with limits that fit the images, if there were any.
    """
    if space is None or not kept.pieces:
        raise ValueError("the data set is empty: there is nothing to evaluate")
    return Evaluation(
        natural_correct=~kept.joined("natural_fooled"),
        natural_loss=kept.joined("natural_loss"),
        labels=kept.joined("labels"),
        classes=kept.constants["first_logits"].shape[1],
        attacks={name: _attack_result(kept, name, space) for name in question.attacks},
        seconds=kept.total("seconds"),
        oracle=oracle,
        top=question.top,
    )


def _attack_result(kept: State, name: str, space: Space) -> AttackResult:
    pose, correct = kept.optional(f"{name}/pose"), ~kept.joined(f"{name}/fooled")
    return AttackResult(
        attack=name,
        correct=correct,
        worst_pose=None if pose is None else Pose(pose, space.chain),
        worst_loss=kept.optional(f"{name}/loss"),
        worst_class=kept.if_whole(f"{name}/class"),
        fooled=_fooled(kept, name, space),
        forward_passes=int(kept.total(f"{name}/passes")),
        seconds=kept.total(f"{name}/seconds"),
        estimate=_estimate(kept, name, correct),
    )


def _estimate(kept: State, name: str, correct: Tensor) -> SlopeEstimate | None:
    safe, early = kept.if_whole(f"{name}/safe"), kept.if_whole(f"{name}/safe_early")
    if safe is None or early is None:
        return None
    return SlopeEstimate(safe & correct, early, early & ~correct)


def _fooled(kept: State, name: str, space: Space) -> FooledPoses | None:
    grid, bits = kept.constants.get(f"{name}/grid"), kept.optional(f"{name}/bits")
    if grid is None or bits is None:
        return None
    return FooledPoses(Pose(grid, space.chain), bits, kept.joined("natural_fooled"))
