"""The methods of the paper's tables: what each of its names stands for.

Most names are objectives in the notation, trained with the ResNet-32. Networks of other kinds have
names of their own, with ``*`` where random poses were shown in training; and so have two networks
together, STN+: naive is the defence, trick the oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from upright.attacks import SpatialPGD
from upright.objective import LocNet, Objective

__all__ = ["Method", "spelled"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """What is trained, and how; of two networks, the classifier, behind a ``LocNet``."""

    objective: Objective
    model: str = "resnet32"
    locnet: LocNet | None = None
    oracle: bool = False
    """Whether it reads the attack's own pose: a two-stage STN with the paper's trick."""

    @staticmethod
    @cache
    def named(name: str) -> Method:
        """Read a name of the paper, with spaces or without.

        >>> Method.named("GRN*").model, str(Method.named("ALP(rob,Wo-1)").objective)
        ('gresnet44', 'ALP(rob, rnd)')
        """
        return _NAMED.get(spelled(name)) or Method(objective=Objective.parse(name))

    def canonical(self) -> Method:
        """Give the one that stands for all that train alike."""
        return replace(self, objective=self.objective.canonical())

    @property
    def baseline(self) -> str | None:
        """The method whose error this one reduces: the same search without the penalty.

        Adversarial training is compared with random augmentation, ``std*``. So is what has one
        random draw, ``rnd`` or Wo-1; and a two-stage STN, whose classifier is ``std*``, but no
        oracle, which defends against nothing. A network is compared with the ResNet-32 that was
        trained like it. The paper has no AT(rob, Wo-20), so that Wo-20 is compared with AT(rob,
        Wo-10).
        """
        if self.oracle:
            return None
        if self.locnet is not None or self.model != Method.model:
            return str(self.objective)
        if self.objective in (_STD, _STAR):
            return None
        if self.objective.penalty is None or self.objective.single_try:
            return "std*"
        return "AT(rob,S-PGD)" if self.climbs else "AT(rob,Wo-10)"

    @property
    def climbs(self) -> bool:
        """Whether it is trained with S-PGD."""
        return isinstance(self.objective.attack, SpatialPGD)


_STD, _STAR = Objective.parse("std"), Objective.parse("std*")

_NETWORKS = {
    "GRN": Method(objective=_STD, model="gresnet44"),
    # The paper does not say which depth of the classifier it took.
    "ETN": Method(objective=_STD, model="etn34"),
    "STN": Method(objective=_STD, model="stn34"),
}
_FILLS = {"c": "black", "r": "reflection"}

_NAMED = (
    _NETWORKS
    | {f"{name}*": replace(method, objective=_STAR) for name, method in _NETWORKS.items()}
    | {
        f"STN+({letter}){way}": Method(objective=_STAR, locnet=LocNet(fill), oracle=way == "trick")
        for letter, fill in _FILLS.items()
        for way in ("naive", "trick")
    }
)


def spelled(name: str) -> str:
    """Leave out the spaces of a name: the paper's tables have few, and nobody counts them."""
    return "".join(name.split())
