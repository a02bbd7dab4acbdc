"""From the state of an evaluation that is done to what it measured."""

from __future__ import annotations

from upright.evaluation.question import Question
from upright.evaluation.result import AttackResult, Evaluation, FooledPoses
from upright.evaluation.state import State
from upright.families import Chain
from upright.pose import Pose

__all__ = ["outcome"]


def outcome(kept: State, question: Question, *, oracle: bool) -> Evaluation:
    """Put together what the pieces of a state say; ``oracle`` is whether they are of one."""
    if not kept.pieces:
        raise ValueError("the data set is empty: there is nothing to evaluate")
    return Evaluation(
        natural_correct=~kept.joined("natural_fooled"),
        natural_loss=kept.joined("natural_loss"),
        labels=kept.joined("labels"),
        classes=kept.constants["first_logits"].shape[1],
        attacks={
            name: _attack_result(kept, name, question.space.chain) for name in question.attacks
        },
        seconds=kept.total("seconds"),
        oracle=oracle,
        top=question.top,
    )


def _attack_result(kept: State, name: str, chain: Chain) -> AttackResult:
    pose, bits = kept.optional(f"{name}/pose"), kept.optional(f"{name}/bits")
    grid = kept.constants.get(f"{name}/grid")
    return AttackResult(
        attack=name,
        correct=~kept.joined(f"{name}/fooled"),
        worst_pose=None if pose is None else Pose(pose, chain),
        worst_loss=kept.optional(f"{name}/loss"),
        worst_class=kept.if_whole(f"{name}/class"),
        fooled=None if grid is None or bits is None else FooledPoses(Pose(grid, chain), bits),
        forward_passes=int(kept.total(f"{name}/passes")),
        seconds=kept.total(f"{name}/seconds"),
    )
