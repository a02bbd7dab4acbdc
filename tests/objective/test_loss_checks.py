"""Bad input to a loss: every case says what is wrong and what to do, as in an evaluation."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import upright
from noting_model import CLASSES, IMAGES, LABELS, SEARCHES, NotingModel
from upright import Attack, Normalised, Score, Space, SuspiciousInput, WorstCase, evaluate
from upright.objective import LossTerms, Objective, RegularizedLoss

EVERY = ["std", "std*", *SEARCHES, "ALP(nat, grid-2x1x2)"]


def step(
    images: Any = IMAGES,
    labels: Any = LABELS,
    model: Callable[[Tensor], Any] | None = None,
    text: str = "KL(rob, Wo-2)",
    **options: Any,
) -> LossTerms:
    terms: LossTerms = RegularizedLoss(text, **options)(model or NotingModel(), images, labels)
    return terms


@pytest.mark.parametrize("text", EVERY)
def test_good_input_passes_without_a_warning(text: str) -> None:
    loss, model = RegularizedLoss(text), NotingModel()
    for _ in range(3):
        loss(model, IMAGES, LABELS).total.backward()


class TestWhatCannotBeRight:
    @pytest.mark.parametrize("text", EVERY)
    @pytest.mark.parametrize(
        ("images", "labels", "says"),
        [
            (IMAGES, LABELS + 1, r"from 1 to 5, but the model has 5 outputs: .* in 0\.\.4; check"),
            (IMAGES, LABELS - 1, r"labels reach from -1 to 3, .* must lie in 0\.\.4"),
            (IMAGES, LABELS[:2], r"3 images need 3 labels in one axis, but have shape \(2,\)"),
            (IMAGES, LABELS.float(), r"must be class numbers \(int64\), .*torch\.float32"),
            (
                IMAGES,
                nn.functional.one_hot(LABELS),
                r"or 3 rows of float probabilities, .* torch\.int64 .*labels\.argmax\(1\)",
            ),
            (IMAGES, torch.rand(3, 7).softmax(1), "soft labels have 7 classes, .* has 5 outputs"),
            (IMAGES[:0], LABELS[:0], "a batch is empty: there is nothing to learn from"),
            (IMAGES[:, 0], LABELS, r"must be float, N x C x H x W, but are .* \(3, 8, 8\)"),
            (
                IMAGES[:, 0],
                LABELS,
                r"images\[None\], grey images as images\[:, None\]",
            ),
            (IMAGES[None], LABELS, "give them these four dimensions"),
            ((255 * IMAGES).byte(), LABELS, r"torch\.uint8 .* use images\.float\(\) / 255"),
            (
                IMAGES.permute(0, 2, 3, 1),
                LABELS,
                r"N x H x W x C, .*permute\(0, 3, 1, 2\)",
            ),
            (IMAGES.numpy(), LABELS, "images must be a tensor, but are ndarray"),
            (IMAGES, LABELS.tolist(), "labels must be a tensor, but are list"),
        ],
        ids=lambda value: value[:20] if isinstance(value, str) else "",
    )
    def test_it_is_said_by_every_objective(
        self, text: str, images: Any, labels: Any, says: str
    ) -> None:
        with pytest.raises(ValueError, match=says):
            step(images, labels, text=text)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_logits_that_are_no_numbers(self, value: float) -> None:
        model = NotingModel()
        with pytest.raises(ValueError, match="NaN or infinite logits; check its weights"):
            step(model=lambda images: model(images) + value - value)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_images_that_are_no_numbers(self, value: float) -> None:
        images = IMAGES.clone()
        images[1, 0, 2, 2] = value
        with pytest.raises(ValueError, match="images contain NaN or infinite values; check what"):
            step(images)

    @pytest.mark.parametrize("text", EVERY)
    def test_a_grey_network_on_colour_images(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"takes images of 1 channel, but these have 2; wrap"):
            step(model=NotingModel(channels=1), text=text)

    @pytest.mark.parametrize("text", EVERY)
    @pytest.mark.parametrize("shape", [(CLASSES - 1,), (1, CLASSES)])
    def test_class_weights_of_another_number_of_classes(self, text: str, shape: Any) -> None:
        criterion = nn.CrossEntropyLoss(weight=torch.ones(shape))
        with pytest.raises(ValueError, match=r"weight has shape .* has 5 outputs: give one number"):
            step(text=text, criterion=criterion)

    def test_it_is_looked_for_in_later_batches_on_a_cpu(self) -> None:
        loss, model = RegularizedLoss("std*"), NotingModel()
        loss(model, IMAGES, LABELS)
        with pytest.raises(ValueError, match="labels reach from 1 to 5"):
            loss(model, IMAGES, LABELS + 1)
        with pytest.warns(SuspiciousInput, match="images reach from"):
            loss(model, IMAGES - 0.5, LABELS)

    def test_logits_are_looked_at_until_they_were_good_once(self) -> None:
        loss, model = RegularizedLoss("std"), NotingModel()
        for _ in range(2):
            with pytest.raises(ValueError, match="NaN or infinite"):
                loss(lambda images: model(images) * torch.nan, IMAGES, LABELS)
        loss(model, IMAGES, LABELS)
        loss(lambda images: model(images) * torch.nan, IMAGES, LABELS)  # a loop may deal with it


class TestWhatIsSuspicious:
    @pytest.mark.parametrize("text", EVERY)
    @pytest.mark.parametrize(
        ("images", "reach", "advice"),
        [
            (IMAGES * 255, r"\S+ to 25\d", "divide by 255"),
            (IMAGES * 4 - 2, r"-1\.\d+ to 2", "move the normalisation"),
        ],
        ids=["0 to 255", "normalised"],
    )
    def test_images_outside_0_to_1(
        self, text: str, images: Tensor, reach: str, advice: str
    ) -> None:
        with pytest.warns(
            SuspiciousInput,
            match=rf"images reach from {reach}, but should lie in \[0, 1\]: {advice}",
        ) as caught:
            step(images, text=text)
        assert {warning.filename for warning in caught} == {__file__}

    def test_images_that_a_loader_normalised_and_how_to_go_on(self) -> None:
        """What the warning says to write is Python, and is not warned of."""
        mean, std = [0.4, 0.5], [0.2, 0.3]
        network: nn.Module = NotingModel()
        own = Normalised(network, mean, std)
        images = (IMAGES - own.mean) / own.std
        with pytest.warns(SuspiciousInput, match=r"move the normalisation") as caught:
            step(images, model=network)
        advice = re.search(r"take model = (.+) and give it (.+)", str(caught[0].message))
        assert advice is not None
        names = {"upright": upright, "model": network, "mean": mean, "std": std, "images": images}
        names["model"] = eval(advice[1], names)
        step(eval(advice[2], names), model=names["model"])  # type: ignore[arg-type]

    @pytest.mark.parametrize("text", EVERY)
    def test_outputs_that_look_like_probabilities(self, text: str) -> None:
        model, loss = nn.Sequential(NotingModel(), nn.Softmax(1)), RegularizedLoss(text)
        with pytest.warns(SuspiciousInput, match="look like probabilities; return logits, before"):
            loss(model, IMAGES, LABELS)
        loss(model, IMAGES, LABELS)  # said once

    @pytest.mark.parametrize("labels", [2 * torch.eye(CLASSES)[LABELS], -torch.eye(3, CLASSES)])
    def test_soft_labels_that_are_no_probabilities(self, labels: Tensor) -> None:
        with pytest.warns(SuspiciousInput, match=r"soft labels .*; divide each row by its sum"):
            step(labels=labels)


@pytest.mark.parametrize(
    ("images", "labels", "model"),
    [
        (IMAGES * 255, LABELS, None),
        (IMAGES, LABELS, lambda model: nn.Sequential(model, nn.Softmax(1))),
        (IMAGES, LABELS + 1, None),
    ],
    ids=["0 to 255", "softmax", "labels from 1"],
)
def test_the_words_are_those_of_an_evaluation(images: Tensor, labels: Tensor, model: Any) -> None:
    network = NotingModel().eval() if model is None else model(NotingModel()).eval()
    asked = [
        lambda: step(images, labels, network, "std"),
        lambda: evaluate(network, (images, labels), attacks=[]),
    ]
    first, second = map(words, asked)
    assert first == second


def words(work: Callable[[], object]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            work()
        except ValueError as error:
            return str(error)
    return str(caught[0].message)


# --- what must not be looked at -------------------------------------------------------------------

# Gradients cannot come back from tensors without values to a pose that was drawn with them.
WITHOUT_CLIMBS = [text for text in EVERY if "S-PGD" not in text]


def without_values(loss: RegularizedLoss, labels: Tensor = LABELS) -> LossTerms:
    """Take a step with tensors that have a shape and no values: a look at one is an error."""
    model = NotingModel().to("meta")
    terms: LossTerms = loss(model, IMAGES.to("meta"), labels.to("meta"))
    terms.total.backward()
    return terms


@pytest.mark.parametrize("text", WITHOUT_CLIMBS)
@pytest.mark.parametrize("labels", [LABELS, torch.eye(CLASSES)[LABELS]], ids=["hard", "soft"])
def test_later_batches_on_another_device_than_a_cpu_are_judged_by_their_shapes(
    text: str, labels: Tensor
) -> None:
    loss = RegularizedLoss(text, generator=torch.Generator().manual_seed(0))
    loss(NotingModel(), IMAGES, labels)
    without_values(loss, labels)
    with pytest.raises(ValueError, match="3 images need 3"):
        without_values(loss, labels[:2])


@pytest.mark.parametrize("text", WITHOUT_CLIMBS)
def test_a_loss_that_is_to_check_nothing_looks_at_no_value(text: str) -> None:
    without_values(RegularizedLoss(text, generator=torch.Generator(), check=False))


# --- what models answer ---------------------------------------------------------------------------


@dataclass
class ModelOutput:
    """As Hugging Face's: what was not computed is None."""

    logits: Tensor
    loss: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class ImageClassifier(nn.Module):
    """As Hugging Face's: pixel_values in, a ModelOutput out."""

    def __init__(self) -> None:
        super().__init__()
        self.network = NotingModel()

    def forward(self, pixel_values: Tensor) -> ModelOutput:
        return ModelOutput(self.network(pixel_values))


@pytest.mark.parametrize("text", EVERY)
def test_a_model_that_answers_as_hugging_faces_do_is_trained_as_any_other(text: str) -> None:
    batch = {"pixel_values": IMAGES, "labels": LABELS}
    found = {}
    for kind, model in (("plain", NotingModel()), ("wrapped", ImageClassifier())):
        torch.manual_seed(0)
        terms = RegularizedLoss(text)(model, batch["pixel_values"], batch["labels"])
        terms.total.backward()
        found[kind] = [part.grad for part in model.parameters()]
    for one, other in zip(*found.values(), strict=True):
        assert one is not None
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_may_be_integers_of_any_size(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    expected = step(text="KL(mix, Wo-3)").total
    torch.manual_seed(0)
    assert step(labels=LABELS.to(dtype), text="KL(mix, Wo-3)").total == expected


# --- what models take -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", EVERY)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_model_gets_images_in_the_dtype_of_its_weights(text: str, dtype: torch.dtype) -> None:
    """As in an evaluation: after the warp, and found out once."""
    found, asked = [], []
    for wraps in (False, True):
        network = NotingModel().to(dtype)
        model = (lambda images, own=network: own(images.to(dtype))) if wraps else network
        network.eval()
        torch.manual_seed(0)
        loss = RegularizedLoss(text)
        found.append([loss(model, IMAGES, LABELS).total for _ in range(2)])
        asked.append(sum(images.dtype == dtype for images in network.seen))
        refused = len(network.seen) - asked[-1]
        assert refused == (not wraps)
    assert found[0] == found[1]
    assert asked[0] == asked[1]


def test_a_model_that_takes_images_as_they_are_gets_them_so() -> None:
    class Careful(nn.Module):
        """Normalises in full precision, and computes in half."""

        def __init__(self) -> None:
            super().__init__()
            self.network, self.seen = NotingModel().bfloat16(), set[torch.dtype]()

        def forward(self, images: Tensor) -> Tensor:
            self.seen.add(images.dtype)
            answer: Tensor = self.network(images.bfloat16())
            return answer

    loss, careful = RegularizedLoss("KL(rob, Wo-2)"), Careful()
    loss(NotingModel().bfloat16(), IMAGES, LABELS)  # what is known of one says nothing of another
    loss(careful, IMAGES, LABELS)
    assert careful.seen == {torch.float32}


def test_a_loss_that_has_asked_may_be_saved_whole() -> None:
    loss = RegularizedLoss("KL(rob, Wo-2)")
    loss(NotingModel().double(), IMAGES, LABELS)
    twin = pickle.loads(pickle.dumps(loss))
    model = NotingModel().double().eval()
    assert twin(model, IMAGES, LABELS).total == loss(model, IMAGES, LABELS).total


class Wandering(Attack):
    """Gives poses out of the box, of another shape, or none at all."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __str__(self) -> str:
        return "wandering"

    @property
    def passes_per_image(self) -> int:
        return 1

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        poses = space.sample(count, generator=generator)
        if self.fault == "tuple":
            return poses, score(poses)  # type: ignore[return-value]
        if self.fault == "far":
            poses = poses.like(3 * poses.values.abs() + 3)
        return WorstCase(poses[:-1] if self.fault == "few" else poses, score(poses), count)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("far", r"search of wandering gives dx .*, which lies outside .*; space\.project"),
        ("few", r"gives poses of shape \(3,\), but \(4,\) is asked"),
        ("tuple", "search of wandering gives tuple; let it return a WorstCase"),
    ],
)
def test_an_attack_of_one_s_own_is_looked_at_in_training_too(fault: str, message: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    images, labels = torch.rand(4, 3, 4, 4), torch.arange(4)
    loss = RegularizedLoss(Objective(batch="rob", attack=Wandering(fault)), "shift(1px)")
    with pytest.raises(ValueError, match=message):
        loss(model, images, labels)
    good = RegularizedLoss(Objective(batch="rob", attack=Wandering("")), "shift(1px)")
    assert good(model, images, labels).total.isfinite()
