"""How the paper lays out its tables: methods are columns, data sets and metrics are rows."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LAYOUTS", "PAPER_NAMES", "Layout", "table_names"]

PAPER_NAMES = {"svhn": "SVHN", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
"""The data sets, as we and as the paper spell them."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One block of columns; most tables have one, ``regspat`` has two."""

    name: str
    """The paper's label."""
    part: str = ""
    title: str
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    metrics: tuple[str, ...] = ("nat", "grid-775")


_TWO = ("svhn", "cifar10")
_THREE = ("svhn", "cifar10", "cifar100")

LAYOUTS = (
    Layout(
        name="regspat",
        part="methods",
        title="Regularised adversarial training beside standard and adversarial training",
        methods=(
            "std",
            "std*",
            "AT(rob,Wo-10)",
            "KL(rob,Wo-10)",
            "L2(rob,Wo-10)",
            "ALP(rob,Wo-10)",
            "KL-C(mix,S-PGD)",
            "ALP(rob,S-PGD)",
        ),
        datasets=_TWO,
    ),
    Layout(
        name="regspat",
        part="networks",
        title="Networks built to be equivariant; with * also trained on random rotations",
        methods=("GRN", "GRN*", "ETN", "ETN*", "STN", "STN*"),
        datasets=_TWO,
    ),
    Layout(
        name="comparereg",
        title="Penalties with Wo-10 on natural batches, and with random augmentation",
        methods=(
            "KL(nat,Wo-10)",
            "L2(nat,Wo-10)",
            "ALP(nat,Wo-10)",
            "std*",
            "L2(nat,rnd)",
            "KL(nat,rnd)",
            "L2(rob,rnd)",
            "KL(rob,rnd)",
        ),
        datasets=_TWO,
    ),
    Layout(
        name="two-stage-eval",
        title="Two-stage STN; trick reads the attack's own parameters: an oracle, not a defence",
        methods=("STN+(c) trick", "STN+(r) trick", "STN+(c) naive", "STN+(r) naive"),
        datasets=_TWO,
    ),
    Layout(
        name="compareadv1",
        title="Training without a penalty",
        methods=("std", "std*", "AT(rob,Wo-10)", "AT(mix,Wo-10)"),
        datasets=_THREE,
    ),
    Layout(
        name="compareadv2",
        title="The KL penalty",
        methods=(
            "KL(nat,rnd)",
            "KL(nat,Wo-10)",
            "KL(rob,Wo-10)",
            "KL-C(mix,S-PGD)",
            "KL(nat,S-PGD)",
        ),
        datasets=_TWO,
    ),
    Layout(
        name="compareadv3",
        title="The l2 penalty, and adversarial logit pairing",
        methods=(
            "L2(nat,Wo-10)",
            "L2(rob,Wo-10)",
            "ALP(mix,Wo-10)",
            "ALP(rob,Wo-10)",
            "ALP(mix,Wo-20)",
            "ALP(rob,S-PGD)",
            "ALP(mix,S-PGD)",
        ),
        datasets=_THREE,
    ),
    Layout(
        name="wok_diffk",
        title="One, ten and twenty random tries",
        methods=(
            "KL(nat,Wo-1)",
            "KL(nat,Wo-10)",
            "KL(nat,Wo-20)",
            "ALP(rob,Wo-1)",
            "ALP(rob,Wo-10)",
            "ALP(rob,Wo-20)",
        ),
        datasets=("cifar10",),
    ),
    Layout(
        name="compareadv4",
        title="Random augmentation, without and with a penalty",
        methods=(
            "std*",
            "L2(nat,rnd)",
            "KL(nat,rnd)",
            "ALP(rob,rnd)",
            "KL(rob,rnd)",
            "ALP(mix,rnd)",
        ),
        datasets=_TWO,
    ),
    Layout(
        name="compareadv5",
        title="What the search of the penalty maximises: cross-entropy or the penalty",
        methods=("ALP(nat,Wo-10)", "L2(nat,Wo-10)", "KL-C(nat,Wo-10)", "KL(nat,Wo-10)"),
        datasets=_TWO,
    ),
    Layout(
        name="fo_supp",
        title="Training with S-PGD: strong under the grid, although S-PGD is a weak attack",
        methods=("AT(mix,S-PGD)", "AT(rob,S-PGD)", "ALP(mix,S-PGD)"),
        datasets=_THREE,
        metrics=("nat", "grid-775", "S-PGD"),
    ),
    Layout(
        name="finer_grid",
        title="A grid of 775 and one of 7,500 poses",
        methods=("AT(mix,Wo-10)", "AT(rob,Wo-10)", "ALP(mix,Wo-10)"),
        datasets=_THREE,
        metrics=("grid-775", "grid-7500"),
    ),
)


def table_names() -> tuple[str, ...]:
    """The tables' labels, in the order of the paper."""
    return tuple(dict.fromkeys(layout.name for layout in LAYOUTS))
