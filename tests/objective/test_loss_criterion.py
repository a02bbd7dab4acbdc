"""Label smoothing, class weights, soft labels and criteria of one's own: against losses by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noting_model import CLASSES, COUNT, IMAGES, LABELS, NotingModel
from upright.objective import LossTerms, RegularizedLoss
from upright.warp import warp

WEIGHT = torch.tensor([0.5, 2.0, 0.1, 1.0, 3.0], dtype=torch.float64)
SOFT = torch.rand(COUNT, CLASSES, generator=torch.Generator().manual_seed(2)).double().softmax(1)
OBJECTIVES = [
    "std",
    "std*",
    "AT(mix, Wo-4)",
    "KL(rob, Wo-3×2)",
    "L2(mix, S-PGD)",
    "KL-C(mix, Wo-3)",
]

Losses = Callable[[Tensor, Tensor], Tensor]


def by_hand(logits: Tensor, target: Tensor, smoothing: float, weight: Tensor) -> Tensor:
    """The cross-entropy with smoothed rows of probabilities, from its formula."""
    smooth = (1 - smoothing) * target + smoothing / CLASSES
    log_p = logits - logits.exp().sum(1, keepdim=True).log()
    return -(weight * smooth * log_p).sum(1)


def rows(labels: Tensor) -> Tensor:
    return torch.eye(CLASSES, dtype=torch.float64)[labels] if labels.ndim == 1 else labels


CASES: dict[str, tuple[Any, Tensor, float, Tensor]] = {
    "default": (None, LABELS, 0.0, torch.ones(CLASSES)),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.2), LABELS, 0.2, torch.ones(CLASSES)),
    "weighted": (nn.CrossEntropyLoss(weight=WEIGHT), LABELS, 0.0, WEIGHT),
    "both": (nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1), LABELS, 0.1, WEIGHT),
    "soft": (None, SOFT, 0.0, torch.ones(CLASSES)),
    "soft, all": (nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1), SOFT, 0.1, WEIGHT),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("text", OBJECTIVES)
def test_values_and_gradients_are_those_of_the_formula(case: str, text: str) -> None:
    criterion, labels, smoothing, weight = CASES[case]
    terms, found = gradients(text, criterion, labels)

    def expected(logits: Tensor, targets: Tensor) -> Tensor:
        losses = by_hand(logits, rows(targets), smoothing, weight)
        # Torch divides by the weights of the classes where labels name them.
        return losses.sum() / (len(losses) if targets.ndim == 2 else weight[targets].sum())

    total, wanted = by_definition(text, expected, terms, labels)
    torch.testing.assert_close(terms.total, total, rtol=0, atol=1e-12)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def gradients(text: str, criterion: Any, labels: Tensor) -> tuple[LossTerms, tuple[Tensor, ...]]:
    model = NotingModel().double().eval()
    torch.manual_seed(0)
    loss = RegularizedLoss(text, criterion=criterion)
    terms: LossTerms = loss(model, IMAGES.double(), labels)
    return terms, torch.autograd.grad(terms.total, list(model.parameters()))


def by_definition(
    text: str, cost: Losses, terms: LossTerms, labels: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The objective at the poses that were found, one call of the model for each part."""
    objective, model = RegularizedLoss(text).objective, NotingModel().double().eval()
    copies = IMAGES.double().repeat(objective.draws, 1, 1, 1)
    targets = labels.repeat(objective.draws, *[1] * (labels.ndim - 1))
    natural = model(IMAGES.double())
    moved = {target: model(warp(copies, pose)) for target, pose in terms.poses.items()}
    parts = {"nat": [(natural, labels)], "rob": [], "mix": [(natural, labels)]}[objective.batch]
    if objective.batch != "nat":
        parts.append((moved[objective.batch_target], targets))
    total = torch.stack([cost(*part) for part in parts]).mean()
    if objective.penalty is not None:
        both = natural.repeat(objective.draws, 1), moved[objective.penalty_target]
        total = total + objective.weight * objective.penalty(*both).mean()
    return total, torch.autograd.grad(total, list(model.parameters()))


@pytest.mark.parametrize("case", CASES)
def test_the_search_maximises_the_loss_of_each_image(case: str) -> None:
    criterion, labels, smoothing, weight = CASES[case]
    model = NotingModel().double().eval()
    loss = RegularizedLoss("AT(rob, grid-3x1x5)", criterion=criterion)
    pose = loss(model, IMAGES.double(), labels).poses["cross-entropy"]
    grid = loss.space.grid((3, 1, 5))
    with torch.no_grad():
        losses = torch.stack(
            [
                by_hand(
                    model(warp(IMAGES.double(), grid[i : i + 1])), rows(labels), smoothing, weight
                )
                for i in range(len(grid))
            ]
        )
    assert torch.equal(pose.values, grid.values[losses.argmax(0)])


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """A criterion of one's own: a loss for each image."""
    loss = F.cross_entropy(logits, labels, reduction="none")
    return (1 - (-loss).exp()) ** 2 * loss


@pytest.mark.parametrize("text", OBJECTIVES)
def test_a_criterion_of_ones_own_is_searched_and_averaged(text: str) -> None:
    terms, found = gradients(text, focal, LABELS)
    total, wanted = by_definition(text, lambda *args: focal(*args).mean(), terms, LABELS)
    torch.testing.assert_close(terms.total, total, rtol=0, atol=1e-12)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_torchs_criterion_is_reduced_as_it_says(reduction: str) -> None:
    criterion, model = nn.CrossEntropyLoss(reduction=reduction), NotingModel().eval()
    terms = RegularizedLoss("std", criterion=criterion)(model, IMAGES, LABELS)
    assert torch.equal(terms.total, criterion(model(IMAGES), LABELS).mean())


@pytest.mark.parametrize("text", OBJECTIVES)
def test_torchs_criterion_without_options_changes_no_bit(text: str) -> None:
    (plain, grads), (given, others) = (
        gradients(text, criterion, LABELS) for criterion in (None, nn.CrossEntropyLoss())
    )
    assert torch.equal(plain.total, given.total)
    assert all(map(torch.equal, grads, others))


@pytest.mark.parametrize(
    ("criterion", "gave"),
    [
        (F.cross_entropy, r"\(\)"),
        (nn.MultiMarginLoss(), r"\(\)"),
        (lambda *_: 1.0, "float"),
    ],
    ids=["mean", "module", "number"],
)
def test_a_criterion_that_gives_no_loss_for_each_image_is_refused(
    criterion: Any, gave: str
) -> None:
    with pytest.raises(
        ValueError,
        match=rf"one loss for each of 3 images, but gave {gave}; give it reduction='none'",
    ):
        RegularizedLoss("std", criterion=criterion)(NotingModel(), IMAGES, LABELS)


def test_a_criterion_that_gives_a_loss_for_each_class_is_told_what_it_has_not_done() -> None:
    with pytest.raises(ValueError, match=r"gave \(3, 5\); take the mean or the sum over classes"):
        RegularizedLoss("std", criterion=lambda logits, _: logits)(NotingModel(), IMAGES, LABELS)


@pytest.mark.parametrize("text", ["std", "KL(rob, Wo-2)"])
@pytest.mark.parametrize("criterion", [nn.MSELoss(), nn.BCEWithLogitsLoss(reduction="none")])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_criterion_that_takes_other_labels_is_explained(text: str, criterion: Any) -> None:
    shapes = r"takes? logits of shape \(\d+, 5\) and labels of shape \(\d+,\): .*; wrap it in a"
    with pytest.raises(ValueError, match=shapes):
        RegularizedLoss(text, criterion=criterion)(NotingModel(), IMAGES, LABELS)


def test_what_a_criterion_of_ones_own_raises_stays_what_it_is() -> None:
    def strict(_logits: Tensor, _labels: Tensor) -> Tensor:
        raise ValueError("my own words")

    with pytest.raises(ValueError, match=r"^my own words$"):
        RegularizedLoss("std", criterion=strict)(NotingModel(), IMAGES, LABELS)


def test_a_criterion_that_does_not_fit_into_memory_is_not_said_to_take_others() -> None:
    def hungry(_logits: Tensor, _labels: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        RegularizedLoss("std", criterion=hungry)(NotingModel(), IMAGES, LABELS)


def test_what_the_labels_are_a_criterion_of_ones_own_knows() -> None:
    def binary(logits: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits[:, 0], labels, reduction="none")

    loss = RegularizedLoss("KL(mix, Wo-2)", criterion=binary)
    terms = loss(NotingModel(), IMAGES, torch.tensor([0.0, 1.0, 1.0]))
    assert terms.total.isfinite()
    with pytest.raises(ValueError, match=r"3 images need as many labels, but have shape \(2,\)"):
        loss(NotingModel(), IMAGES, torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("text", OBJECTIVES)
def test_one_hot_rows_are_class_numbers(text: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    expected = RegularizedLoss(text)(NotingModel().eval(), IMAGES, LABELS)
    torch.manual_seed(0)
    one_hot = F.one_hot(LABELS, CLASSES).to(dtype)
    found = RegularizedLoss(text)(NotingModel().eval(), IMAGES, one_hot)
    torch.testing.assert_close(found.total, expected.total)
    assert found.natural_accuracy == expected.natural_accuracy
    assert found.transformed_accuracy == expected.transformed_accuracy


def test_of_a_soft_label_the_largest_class_is_the_right_one() -> None:
    model = NotingModel().eval()
    answers = model(IMAGES).argmax(1)
    right = F.one_hot(answers, CLASSES) * 0.5 + 0.1
    wrong = F.one_hot((answers + 1) % CLASSES, CLASSES) * 0.5 + 0.1
    mixed = torch.cat((right[:1], wrong[1:]))
    assert RegularizedLoss("std")(model, IMAGES, mixed).natural_accuracy == pytest.approx(1 / 3)


def test_class_weights_move_with_the_loss() -> None:
    loss = RegularizedLoss("std", criterion=nn.CrossEntropyLoss(weight=WEIGHT.float()))
    assert torch.equal(loss.state_dict()["criterion.weight"], WEIGHT.float())
    assert loss.to(torch.float64).criterion.weight.dtype == torch.float64  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("criterion", "ignored"),
    [(None, -100), (nn.CrossEntropyLoss(), -100), (nn.CrossEntropyLoss(ignore_index=255), 255)],
    ids=["default", "torch's default", "255"],
)
@pytest.mark.parametrize("text", ["std", "std*", "AT(rob, Wo-3)", "AT(mix, S-PGD)"])
def test_images_to_ignore_are_as_if_they_were_not_there(
    text: str, criterion: Any, ignored: int
) -> None:
    model = NotingModel().double().eval()
    answers = model(IMAGES.double()).argmax(1)
    labels = torch.stack((answers[0], torch.tensor(ignored), (answers[2] + 1) % CLASSES))
    torch.manual_seed(0)
    terms = RegularizedLoss(text, criterion=criterion)(model, IMAGES.double(), labels)
    kept = torch.tensor([0, 2])
    shown = [IMAGES.double()] * ("rob" not in text and text != "std*")
    shown += [warp(IMAGES.double(), pose) for pose in terms.poses.values()]
    logits = [model(images[kept]) for images in shown]
    costs = [F.cross_entropy(each, labels[kept]) for each in logits]
    torch.testing.assert_close(terms.total, torch.stack(costs).mean(), rtol=0, atol=1e-12)
    if terms.natural_accuracy is not None:
        assert terms.natural_accuracy == 0.5
    if terms.transformed_accuracy is not None:
        right = (logits[-1].argmax(1) == labels[kept]).double().mean()
        assert terms.transformed_accuracy == right


def test_the_penalty_needs_no_label() -> None:
    model, none = NotingModel().double().eval(), torch.full_like(LABELS, -100)
    penalties = []
    for labels in (LABELS, none):
        torch.manual_seed(0)
        terms = RegularizedLoss("KL(mix, Wo-2)")(model, IMAGES.double(), labels)
        penalties.append(terms.penalty)
    assert penalties[0] == penalties[1]
    assert terms.natural_accuracy is not None
    assert terms.natural_accuracy.isnan()


@pytest.mark.parametrize("label", [-1, -100, CLASSES])
def test_other_numbers_than_the_ignored_one_are_out_of_range(label: int) -> None:
    loss = RegularizedLoss("std", criterion=nn.CrossEntropyLoss(ignore_index=255))
    labels = torch.tensor([255, label, 1])
    reach = f"from {min(label, 1)} to {max(label, 1)}, but the model has 5 outputs"
    with pytest.raises(ValueError, match=reach):
        loss(NotingModel(), IMAGES, labels)


def test_how_many_images_are_ignored_is_not_looked_at() -> None:
    """Tensors without values, as later batches on a GPU should seem to be."""
    loss = RegularizedLoss("KL(mix, Wo-2)", generator=torch.Generator(), check=False)
    terms = loss(NotingModel().to("meta"), IMAGES.to("meta"), LABELS.to("meta"))
    assert terms.transformed_accuracy.is_meta
