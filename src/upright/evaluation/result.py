"""What an evaluation measured."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from upright.evaluation.oracle import ORACLE
from upright.fooled import FooledPoses
from upright.intervals import Interval, wilson_interval
from upright.pose import Pose

__all__ = [
    "AttackResult",
    "ClassAccuracy",
    "Evaluation",
    "SlopeEstimate",
]


@dataclass(frozen=True, eq=False, repr=False)
class SlopeEstimate:
    """How low accuracy may be, by the slopes of the loss that a search saw: no bound.

    A finer search may go below it. How often it does was measured on the way: the estimate that the
    first quarter of the passes gives was held against what the rest of them found.
    """

    safe: Tensor
    """bool, one for each image: not fooled, and by slopes no pose between those tried fools it."""
    safe_early: Tensor
    """bool: what was called so after a quarter of the passes."""
    went_below: Tensor
    """bool: of these, what the rest of the search fooled."""

    def __repr__(self) -> str:
        return f"SlopeEstimate({self.accuracy:.4f}, {self.error_rate})"

    @property
    def accuracy(self) -> float:
        return float(self.safe.double().mean())

    @property
    def error_rate(self) -> str:
        """How often a finer search went below the early estimate."""
        return f"{int(self.went_below.sum())} of {int(self.safe_early.sum())} images"

    @property
    def in_words(self) -> str:
        """Say it with its error rate; empty where too few passes tell none."""
        if not self.safe_early.any():
            return ""
        return (
            f"by observed slopes perhaps as low as {100 * self.accuracy:.2f} % (the same estimate "
            f"after a quarter of the passes: a finer search went below it on {self.error_rate})"
        )

    def summary(self) -> dict[str, object]:
        """Give the figures in a form that JSON holds."""
        return {
            "accuracy": self.accuracy,
            "safe_after_a_quarter": int(self.safe_early.sum()),
            "of_these_fooled_later": int(self.went_below.sum()),
        }


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult:
    """What one attack did to all images. Tensors lie on the CPU, in the order of the data."""

    attack: str
    correct: Tensor
    """bool, one for each image: it stays correctly classified under all that was tried."""
    worst_pose: Pose | None
    """The misclassified pose of highest loss, or the pose of highest loss where none is
    misclassified; None when only the accuracy was asked."""
    worst_loss: Tensor | None
    """The cross-entropy at that pose."""
    worst_class: Tensor | None
    """int64: the class of the largest logit at that pose; None when only the accuracy was asked, or
    where a state of an older version has none."""
    fooled: FooledPoses | None
    """For attacks that try the same poses on all images: which of them fool which images, and what
    follows from that. None when only the accuracy was asked."""
    forward_passes: int
    """Images sent through the model."""
    seconds: float
    estimate: SlopeEstimate | None = None
    """For refining searches: how much lower the truth may be, by the slopes that were seen. None
    for others, and where a state of an older version has none."""

    def __repr__(self) -> str:
        return f"AttackResult({self.attack}: {self.accuracy:.4f}, {self.forward_passes} passes)"

    @property
    def accuracy(self) -> float:
        return float(self.correct.double().mean())

    @property
    def interval(self) -> Interval:
        return wilson_interval(int(self.correct.sum()), len(self.correct))


@dataclass(frozen=True)
class ClassAccuracy:
    """Accuracies over the images of one class, as fractions."""

    label: int
    images: int
    natural: float
    attacks: dict[str, float]
    """By the name of the attack."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Natural accuracy, and what each attack left of it."""

    natural_correct: Tensor
    natural_loss: Tensor
    labels: Tensor
    classes: int
    """Outputs of the model."""
    attacks: dict[str, AttackResult]
    seconds: float
    oracle: bool = False
    """Whether it is of an ``Oracle``, and says nothing about a defence."""
    top: int = 1
    """Among how many of the largest logits the true class has to be for an answer to be right."""
    places: Tensor | None = None
    """Of a random part of the data: which images it has, int64, in the order of the data."""
    of_images: int | None = None
    """Out of how many images the part was drawn; None where it was not."""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        under = "".join(f", {name} {found.accuracy:.4f}" for name, found in self.attacks.items())
        of, note = f", top-{self.top}" if self.top > 1 else "", f"; {ORACLE}" if self.oracle else ""
        natural = f"natural {self.natural_accuracy:.4f}"
        return f"Evaluation({self.images_in_words}{of}: {natural}{under}{note})"

    @property
    def images_in_words(self) -> str:
        """Say how many images there are, and of a random part, of how many."""
        if self.of_images in (None, len(self)):
            return f"{len(self)} image{'' if len(self) == 1 else 's'}"
        return f"{len(self)} of {self.of_images} images, drawn at random"

    @property
    def natural_accuracy(self) -> float:
        return float(self.natural_correct.double().mean())

    @property
    def natural_interval(self) -> Interval:
        return wilson_interval(int(self.natural_correct.sum()), len(self))

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be said wherever the figures are shown."""
        above = [
            name for name, result in self.attacks.items() if result.accuracy > self.natural_accuracy
        ]
        # Words for the terminal, where it is an option, and for Python, where it is an argument.
        never = "does not try images as they are, unless the identity is included"
        notes = [f"{name} is above natural accuracy: it {never}" for name in above]
        estimates = [
            f"{name}: {100 * result.accuracy:.2f} %; {result.estimate.in_words}"
            for name, result in self.attacks.items()
            if result.estimate is not None and result.estimate.in_words
        ]
        return (*([ORACLE] if self.oracle else []), *self._of_part, *notes, *estimates)

    @property
    def _of_part(self) -> list[str]:
        if self.of_images in (None, len(self)):
            return []
        return [f"{self.images_in_words}: the intervals are where accuracy over all of them lies"]

    def per_class(self) -> list[ClassAccuracy]:
        """Give the accuracies of each class that has images, in the order of classes."""
        return [self._of_class(label) for label in self.labels.unique().tolist()]

    def _of_class(self, label: int) -> ClassAccuracy:
        its = self.labels == label
        under = {
            name: float(result.correct[its].double().mean())
            for name, result in self.attacks.items()
        }
        natural = float(self.natural_correct[its].double().mean())
        return ClassAccuracy(label, images=int(its.sum()), natural=natural, attacks=under)

    def summary(self) -> dict[str, object]:
        """Give the figures in a form that JSON holds; accuracies are fractions."""
        return {
            "images": len(self),
            **({} if self.of_images is None else {"of_images": self.of_images}),
            "natural_accuracy": self.natural_accuracy,
            "natural_interval": _pair(self.natural_interval),
            "attacks": {
                name: {
                    "accuracy": result.accuracy,
                    "interval": _pair(result.interval),
                    "forward_passes": result.forward_passes,
                    "seconds": round(result.seconds, 3),
                    **({"estimate": result.estimate.summary()} if result.estimate else {}),
                }
                for name, result in self.attacks.items()
            },
            "seconds": round(self.seconds, 3),
            **({"top": self.top} if self.top > 1 else {}),
            **({"note": "; ".join(self.notes)} if self.notes else {}),
        }


def _pair(interval: Interval) -> list[float]:
    return [interval.low, interval.high]
