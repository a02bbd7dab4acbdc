"""The rules of what others write, which the package's own keep where they are tested: each fault
breaks its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from upright import Pose, Space, WorstCase
from upright.attacks import Attack, Score
from upright.families import FAMILIES, Axis, Chain, OfPixels, Size, Spatial, family, matrix_of
from upright.penalties import Penalty
from upright.testing import check_attack, check_family, check_penalty


def broken(check: Callable[[], None]) -> list[str]:
    """Which rules a check says are broken."""
    with pytest.raises(AssertionError) as told:
        check()
    head, *lines = str(told.value).splitlines()
    rules = [line[2:].partition(": ")[0] for line in lines if line.startswith("- ")]
    assert re.search(rf"breaks {len(rules)} of \d+ rules:$", head)
    return rules


class TestKept:
    @pytest.mark.parametrize("text", ["rotate(30) zoom shift(10%)", "hue blur(1px) gamma", "shift"])
    def test_by_chains_and_limits_in_per_cent(self, text: str) -> None:
        check_family(text)

    @pytest.mark.parametrize("text", ["shift(20%)", "shift(50%)"])
    def test_whatever_the_size(self, text: str) -> None:
        check_family(text, size=(224, 224))

    def test_by_attacks_on_other_spaces(self) -> None:
        check_attack("Wo-3", "shift(10%) zoom")
        check_attack("s-pgd", "zoom brightness(-0.1..0)")


Apply = Callable[[Tensor, Tensor], Tensor]


def of_pixels(does: Apply) -> type[OfPixels]:
    """A family of pixels that does this."""

    class Own(OfPixels):
        name = "own"
        axes = (Axis("own", low=0.0, high=0.5),)

        def apply(self, images: Tensor, values: Tensor) -> Tensor:
            return does(images, values)

    return Own


def _dimmed(images: Tensor, values: Tensor) -> Tensor:
    return images * (1 - values[..., 0])


def _in_place(images: Tensor, values: Tensor) -> Tensor:
    return images.mul_(1 - values[..., 0])


def _rounded(images: Tensor, values: Tensor) -> Tensor:
    levels = 8 - 4 * values[..., 0].detach()
    return torch.where(values[..., 0] > 0, (images * levels).floor() / levels, images)


FAULTS_OF_PIXELS: dict[str, tuple[Apply, set[str]]] = {
    "zero is not the identity": (
        lambda images, values: (images + 1e-3 - 1e-3) * (1 - values[..., 0]),
        {"the zero pose leaves images as they are, to the last bit"},
    ),
    "an axis without effect": (
        lambda images, values: images + 0 * values[..., 0],
        {"each axis changes images", "slopes are those of small differences"},
    ),
    "out of range": (
        lambda images, values: images * (1 + values[..., 0]),
        {"images keep size, type and range"},
    ),
    "by chance": (
        lambda images, values: images * (1 - values[..., 0] * torch.rand(1).to(images)),
        {
            "the same pose gives the same image",
            "an image alone is changed as among others",
            "one image may meet many poses",
            "slopes are those of small differences",
        },
    ),
    "by its neighbours": (
        lambda images, values: images * (1 - values[..., 0] * images.mean()),
        {"an image alone is changed as among others"},
    ),
    "the pose of the first": (
        lambda images, values: images * (1 - values.flatten()[0]),
        {"an image alone is changed as among others", "one image may meet many poses"},
    ),
    "no slopes": (_rounded, {"slopes are those of small differences"}),
    "infinite slopes": (
        lambda images, values: images * (1 - values[..., 0].clamp(min=0).sqrt() / 2),
        {"slopes are finite at black, white, zero and the limits"},
    ),
}


class TestBrokenFamilies:
    @pytest.fixture(autouse=True)
    def _known_no_longer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(FAMILIES, "_entries", dict(FAMILIES._entries))

    @pytest.mark.parametrize("fault", FAULTS_OF_PIXELS)
    def test_of_pixels(self, fault: str) -> None:
        does, rules = FAULTS_OF_PIXELS[fault]
        family(of_pixels(does))
        assert set(broken(lambda: check_family("own"))) == rules

    def test_one_that_writes_into_images_breaks_all_and_is_told_why(self) -> None:
        family(of_pixels(_in_place))
        with pytest.raises(AssertionError, match=r"own\.apply writes into the images"):
            check_family("own")

    def test_one_that_rounds_is_not_asked_for_slopes_where_that_is_said(self) -> None:
        family(of_pixels(_rounded))
        check_family("own", differentiable=False)

    def test_one_that_no_text_knows_is_tried_all_the_same(self) -> None:
        rules = broken(lambda: check_family(Space(Chain((of_pixels(_dimmed)(),)))))
        assert rules == ["the text of own is read as itself"]

    def test_a_matrix_that_raises_breaks_rules_and_not_the_check(self) -> None:
        @family
        class Odd(Spatial):
            name = "odd"
            axes = (Axis("odd", low=-0.2, high=0.2),)

            def matrix(self, values: Tensor, size: Size) -> Tensor:
                raise RuntimeError(f"of no use for {len(values)} poses of {size}")

        with pytest.raises(AssertionError, match="undoes its matrix: of no use"):
            check_family("odd")

    @pytest.mark.parametrize(
        ("claim", "rule"),
        [
            ("additive", "one pose of lean after another is their sum (additive)"),
            ("conformal", "matrices of lean commute with turns (conformal)"),
        ],
    )
    def test_claims_of_matrices(self, claim: str, rule: str) -> None:
        class Lean(Spatial):
            name = "lean"
            axes = (Axis("lean_x", low=-0.2, high=0.2), Axis("lean_y", low=-0.2, high=0.2))

            def matrix(self, values: Tensor, size: Size) -> Tensor:
                del size
                x, y = values.unbind(-1)
                return matrix_of((1, x, 0), (y, 1, 0))

        family(Lean)
        check_family("lean")
        setattr(Lean, claim, True)
        assert rule in broken(lambda: check_family("lean"))

    def test_a_tilt_that_does_not_say_so(self) -> None:
        @family
        class Tilt(Spatial):
            name = "tilt"
            axes = (Axis("tilt", low=-0.2, high=0.2),)

            def matrix(self, values: Tensor, size: Size) -> Tensor:
                return matrix_of((1, 0, 0), (0, 1, 0), (values[..., 0] / size[1], 0, 1))

        assert "the last row of tilt is 0, 0, 1 (not projective)" in broken(
            lambda: check_family("tilt")
        )

    def test_sums_of_pixels(self) -> None:
        dim = family(of_pixels(_dimmed))
        check_family("own")
        dim.additive = True
        rules = broken(lambda: check_family("own"))
        assert rules == ["one pose of own after another is their sum (additive)"]


@dataclass(frozen=True)
class Own(Attack):
    """Two random draws, with one fault."""

    fault: str = ""

    @property
    def passes_per_image(self) -> int:
        if self.fault == "says too few":
            return 1
        return 4 if self.fault.startswith(("climbs", "outside, and")) else 2

    @property
    def climbs(self) -> bool:
        return self.fault == "climbs, and says so"

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        poses = self._poses(space, count, generator)
        if "climbs" in self.fault:
            at = poses.like(poses.values.detach().requires_grad_())
            torch.autograd.grad(score(at).sum(), at.values)
        scores = score(poses)
        if self.fault == "goes on in silence":
            score(poses)
        if self.fault == "outside, and put right in place":
            poses.values.copy_(space.project(poses).values)
            scores = score(poses)
        best = scores.argmin(0) if self.fault == "of another pose" else scores.argmax(0)
        worst = poses.values[best, torch.arange(count)]
        passes = (4 if self.fault.startswith(("climbs", "outside, and")) else 2) * count
        return WorstCase(poses.like(worst), scores.amax(0), passes)

    def _poses(self, space: Space, count: int, generator: torch.Generator) -> Pose:
        if self.fault == "draws elsewhere":
            return space.sample(2, count)
        if self.fault == "by the whole batch":
            drawn = torch.rand(2, count, len(space.axes), generator=generator)
            return space.at_fractions(2 * drawn - 1)
        drawn = space.sample(count, 2, generator=generator).values.transpose(0, 1)
        return Pose(1.5 * drawn if "outside" in self.fault else drawn, space.chain)


FAULTS_OF_ATTACKS = {
    "outside": {
        "each image gets a pose of the space, and the score that this has",
        "it asks for scores in the space alone",
    },
    "outside, and put right in place": {"it asks for scores in the space alone"},
    "of another pose": {"each image gets a pose of the space, and the score that this has"},
    "goes on in silence": {
        "it counts the passes that it asks for, and no more than it says",
        "the worst pose alone is that of the search",
    },
    "says too few": {
        "it counts the passes that it asks for, and no more than it says",
        "the worst pose alone is that of the search",
    },
    "draws elsewhere": {
        "the worst pose alone is that of the search",
        "the same generator gives the same search",
        "what torch draws elsewhere is left alone",
        "an image draws in a part what it draws among all",
    },
    "by the whole batch": {"an image draws in a part what it draws among all"},
    "climbs in silence": {"it needs no slopes, as it says (climbs)"},
}


class TestBrokenAttacks:
    def test_what_is_no_attack_is_told_at_once(self) -> None:
        with pytest.raises(ValueError, match="an attack is a name or an Attack, not 3"):
            check_attack(3)  # type: ignore[arg-type]

    @pytest.mark.parametrize("fault", ["", "climbs, and says so"])
    def test_without_a_fault_all_rules_are_kept(self, fault: str) -> None:
        check_attack(Own(fault))

    @pytest.mark.parametrize("fault", FAULTS_OF_ATTACKS)
    def test_each_fault_is_told(self, fault: str) -> None:
        assert set(broken(lambda: check_attack(Own(fault)))) == FAULTS_OF_ATTACKS[fault]


@dataclass(frozen=True)
class Distance(Penalty):
    """The squared distance, with one fault."""

    fault: str = ""

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        away = natural - transformed
        if self.fault == "writes":
            natural.detach().sub_(transformed.detach())
        if self.fault == "of all":
            all_of_it: Tensor = away.square().sum()
            return all_of_it.expand(transformed.shape[:-1])
        if self.fault == "not summed":
            return away.square()
        if self.fault == "by chance":
            return (away * torch.rand(()).to(away)).square().sum(-1)
        if self.fault == "a root":
            return away.square().sum(-1).sqrt()
        if self.fault == "drives apart":
            return -away.square().sum(-1)
        if self.fault == "overflows":
            return away.exp().sum(-1).log()
        if self.fault == "trains nothing":
            return away.detach().square().sum(-1)
        if self.fault == "of no weight":
            return 0 * away.square().sum(-1)
        if self.fault == "holds one side":
            return (natural.detach() - transformed).square().sum(-1)
        return away.square().sum(-1)


BROADCASTS = "one value comes for each pair, and many copies of one original broadcast"
ALONE = "a pair alone has the value that it has among others"
SLOPES = "slopes are those of small differences"
LEAST = "no pair costs less than one of equal logits"
FINITE = "values and slopes are finite where logits agree, and where they are sure"
FAULTS_OF_PENALTIES = {
    "writes": {"logits are left as they were", BROADCASTS, SLOPES},
    "of all": {BROADCASTS, ALONE},
    "not summed": {BROADCASTS, ALONE, LEAST},
    "by chance": {BROADCASTS, ALONE, SLOPES, "the same logits give the same value"},
    "a root": {FINITE},
    "overflows": {FINITE, LEAST},
    "drives apart": {LEAST},
    "trains nothing": {SLOPES, FINITE},
    "of no weight": {SLOPES},
}


class TestBrokenPenalties:
    def test_what_is_no_penalty_is_told_at_once(self) -> None:
        with pytest.raises(ValueError, match=r"a penalty is an instance of Penalty, .* not 'KL'"):
            check_penalty("KL")  # type: ignore[arg-type]

    @pytest.mark.parametrize("fault", ["", "holds one side"])
    def test_without_a_fault_all_rules_are_kept(self, fault: str) -> None:
        check_penalty(Distance(fault))

    @pytest.mark.parametrize("fault", FAULTS_OF_PENALTIES)
    def test_each_fault_is_told(self, fault: str) -> None:
        assert set(broken(lambda: check_penalty(Distance(fault)))) == FAULTS_OF_PENALTIES[fault]

    def test_a_distance_of_directions_of_zero_logits_is_finite(self) -> None:
        class Cosine(Penalty):
            def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
                return 1 - F.cosine_similarity(natural, transformed, dim=-1)

        check_penalty(Cosine())
