"""What determines a mean of answers: of several runs, over poses of the image, or both.

A record of such a mean has this in place of a recipe. So nothing that looks for a network's own
records can take it for one of a member's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any

from torch import nn

from upright.ensemble import ensemble
from upright.train.plan import Plan
from upright.train.recipe import Recipe
from upright.tta import Averaging
from upright.warp import Fill

__all__ = ["Mean"]


@dataclass(frozen=True, kw_only=True)
class Mean(Plan):
    """The mean of the logits of some models, each asked as often as is averaged over."""

    members: tuple[Plan, ...]
    """Recipes and pairs: of means, ``of`` takes the members."""
    over: Averaging | None = None
    """What else is averaged over; None for the image as it is."""

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("a mean needs a member; name at least one run")
        if any(isinstance(member, Mean) for member in self.members):
            raise ValueError("a mean of means; name the members of all of them")
        if any(member.is_oracle for member in self.members):
            raise ValueError("an oracle reads the attack's own pose, and has no part in a mean")
        if any(member.main.is_locnet for member in self.members):
            raise ValueError("a LocNet finds poses and no classes; name classifiers")
        if self.over is not None and self.over.space.chain.code_digest:
            raise ValueError(
                f"{self.over}: a record takes families of this package alone, since it would not "
                "know whether the code of your own has changed"
            )
        if len({run.sizes for run in self.runs}) > 1:
            raise ValueError("the runs of a mean need images of one size")
        if len({member.locnet_fill for member in self.members}) > 1:
            raise ValueError("the LocNets of a mean need the same fill: an attack has one")
        if len(self.members) == 1 and self.over is None:
            raise ValueError("a mean of one is no mean; name several runs, or what to average over")

    @staticmethod
    def of(plans: Sequence[Plan], over: Averaging | None = None) -> Mean:
        """Make the mean of plans; that of means has all their members, where that is the same."""
        means = [each for each in plans if isinstance(each, Mean)]
        if not means:
            return Mean(members=tuple(plans), over=over)
        alike = len({(each.over, len(each.members)) for each in means}) == 1
        if len(means) < len(plans) or not alike or (over and means[0].over):
            raise ValueError(
                "a mean of means that average otherwise cannot be recorded; average all runs at "
                "once, as in tta-mirror:mean:RUN,RUN"
            )
        members = (member for each in means for member in each.members)
        return Mean(members=tuple(members), over=over or means[0].over)

    @property
    def runs(self) -> tuple[Recipe, ...]:
        return tuple(run for member in self.members for run in member.runs)

    def with_runs(self, runs: Sequence[Recipe]) -> Mean:
        left = iter(runs)
        members = [member.with_runs([*islice(left, len(member.runs))]) for member in self.members]
        return replace(self, members=tuple(members))

    def joined(self, networks: Sequence[nn.Module]) -> nn.Module:
        """Let the models of the members answer as one."""
        left = iter(networks)
        models = [member.joined([*islice(left, len(member.runs))]) for member in self.members]
        together = models[0] if len(models) == 1 else ensemble(*models)
        return together if self.over is None else self.over(together)

    @property
    def method(self) -> str:
        counted = [(name, len([*same])) for name, same in groupby(m.method for m in self.members)]
        names = [name if count == 1 else f"{count} x {name}" for name, count in counted]
        over = [] if self.over is None else [str(self.over)]
        return f"mean({'; '.join([', '.join(names), *over])})"

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for all recipes, and what is averaged over."""
        text = " ".join([*sorted(member.hash for member in self.members), str(self.over)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def as_json(self) -> dict[str, Any]:
        over = None if self.over is None else str(self.over)
        return {"members": [member.as_json() for member in self.members], "over": over}

    @property
    def locnet_fill(self) -> Fill | None:
        return self.members[0].locnet_fill

    @property
    def seeds_fit(self) -> bool:
        return all(member.seeds_fit for member in self.members)

    @property
    def answers(self) -> int:
        return 1 if self.over is None else self.over.answers
