"""Preprocessing as one value: what it does around a model, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from upright import Normalised, Preprocess, evaluate
from upright.checks import SuspiciousInput
from upright.identity import Identity
from upright.sources.preprocess import AS_IT_IS

IMAGES = torch.rand(4, 3, 5, 6, generator=torch.Generator().manual_seed(0))


class TestAround:
    def test_nothing_told_is_the_model_itself(self) -> None:
        model = nn.Flatten()
        assert AS_IT_IS.around(model) is model

    def test_channels_last_are_those_of_numpy(self) -> None:
        shown: list[Tensor] = []
        model = Preprocess(layout="channels-last").around(lambda x: shown.append(x) or x[:, 0, 0])
        model(IMAGES)
        assert np.array_equal(shown[0].numpy(), np.moveaxis(IMAGES.numpy(), 1, 3))
        assert shown[0].is_contiguous()

    def test_blue_first_after_the_mean_of_red_was_taken_off(self) -> None:
        told = Preprocess(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0), channels="bgr")
        shown = told.around(nn.Identity())(IMAGES)
        blue_first = (IMAGES[:, [2, 1, 0]] - torch.tensor([0.3, 0.2, 0.1]).view(3, 1, 1)) / (
            torch.tensor([4.0, 2.0, 1.0]).view(3, 1, 1)
        )
        torch.testing.assert_close(shown, blue_first)
        both = Preprocess(channels="bgr", layout="channels-last").around(lambda x: x[:, 0, 0])
        assert torch.equal(both(IMAGES), IMAGES[:, [2, 1, 0], 0, 0])
        assert Preprocess(channels="rgb").around(told.around) == told.around

    def test_bytes_and_minus_one_to_one(self) -> None:
        """What (255 x − 127) / 128 and the like are as a mean and a std."""
        to_bytes = Preprocess(mean=(0,), std=(1 / 255,)).around(nn.Identity())
        torch.testing.assert_close(to_bytes(IMAGES), IMAGES * 255)
        lite = Preprocess(mean=(127 / 255,), std=(128 / 255,)).around(nn.Identity())
        torch.testing.assert_close(lite(IMAGES), (IMAGES * 255 - 127) / 128)

    def test_outputs_before_the_offset_are_left_out(self) -> None:
        model = Preprocess(offset=1).around(lambda images: images.mean((2, 3)))
        assert torch.equal(model(IMAGES), IMAGES.mean((2, 3))[:, 1:])
        with pytest.raises(ValueError, match="offset of 3 leaves none of the model's 3 outputs"):
            Preprocess(offset=3).around(lambda images: images.mean((2, 3)))(IMAGES)

    def test_probabilities_have_the_losses_and_accuracies_of_their_logits(self) -> None:
        layer = nn.Sequential(nn.Flatten(), nn.Linear(90, 4)).eval()
        soft = Preprocess(probabilities=True).around(nn.Sequential(layer, nn.Softmax(1)).eval())
        data = IMAGES, torch.tensor([0, 1, 2, 3])
        one, other = (evaluate(each, data, attacks=["grid-3x3x3"]) for each in (layer, soft))
        torch.testing.assert_close(one.natural_loss, other.natural_loss)
        a, b = (each.attacks["grid-3x3x3"] for each in (one, other))
        assert torch.equal(a.correct, b.correct)
        torch.testing.assert_close(a.worst_loss, b.worst_loss)

    def test_a_probability_of_zero_is_finite(self) -> None:
        model = Preprocess(probabilities=True).around(lambda _: torch.eye(3))
        assert model(IMAGES[:3]).isfinite().all()

    @pytest.mark.parametrize("row", [[-0.1, 0.6, 0.5], [0.9, 0.9, 0.1], [3.0, -1.0, 4.0]])
    def test_logits_are_no_probabilities(self, row: list[float]) -> None:
        model = Preprocess(probabilities=True).around(lambda _: torch.tensor([row]))
        for _ in range(2):
            with pytest.raises(
                ValueError, match=r"are no probabilities.*leave out --probabilities"
            ):
                model(IMAGES[:1])

    def test_probabilities_that_were_rounded_to_8_bits_are_some(self) -> None:
        rows = torch.softmax(
            torch.randn(4, 1000, generator=torch.Generator().manual_seed(1)) * 5, 1
        )
        model = Preprocess(probabilities=True).around(lambda _: (rows * 256).round() / 256)
        assert torch.equal(model(IMAGES).argmax(1), rows.argmax(1))

    def test_a_background_class_is_left_out_of_probabilities(self) -> None:
        rows = torch.softmax(torch.randn(4, 5, generator=torch.Generator().manual_seed(1)), 1)
        model = Preprocess(probabilities=True, offset=1).around(lambda _: rows)
        expected = rows[:, 1:] / rows[:, 1:].sum(1, keepdim=True)
        torch.testing.assert_close(model(IMAGES).softmax(1), expected)

    def test_all_of_it_at_once(self) -> None:
        told = Preprocess(mean=(0.5,), std=(0.5,), layout="channels-last", offset=1)
        model = told.around(lambda images: {"logits": images[:, 0, 0]})
        assert torch.equal(model(IMAGES), (IMAGES[:, 1:, 0, 0] - 0.5) / 0.5)

    @pytest.mark.parametrize("training", [True, False])
    def test_it_is_in_the_mode_of_its_network(self, training: bool) -> None:
        told = Preprocess(mean=(0,), std=(1,), layout="channels-last", offset=1)
        model = told.around(nn.Flatten().train(training))
        assert isinstance(model, nn.Module)
        assert {part.training for part in model.modules()} == {training}


class TestIdentity:
    TOLD = (
        AS_IT_IS,
        Preprocess(mean=(0.5,), std=(0.5,)),
        Preprocess(mean=(0.5,), std=(0.25,)),
        Preprocess(layout="channels-last"),
        Preprocess(channels="bgr"),
        Preprocess(offset=1),
        Preprocess(offset=2),
        Preprocess(probabilities=True),
        Preprocess(probabilities=True, offset=1),
    )

    def test_each_preprocessing_makes_another_model_of_one_network(self) -> None:
        network = nn.Linear(2, 2)
        found = {Identity.of(told.around(network)) for told in self.TOLD}
        assert len(found) == len(self.TOLD)

    def test_mean_and_std_alone_make_what_normalised_makes(self) -> None:
        network = nn.Linear(2, 2)
        told = Preprocess(mean=(0.5, 0.25), std=(1.0, 2.0), resize=256).around(network)
        assert Identity.of(told) == Identity.of(Normalised(network, (0.5, 0.25), (1.0, 2.0)))

    def test_a_state_of_another_is_refused(self) -> None:
        state = Preprocess(offset=1).around(nn.Flatten()).state_dict()  # type: ignore[attr-defined]
        other = Preprocess(offset=2).around(nn.Flatten())
        with pytest.raises(ValueError, match="this model has offset 2, and the state offset 1"):
            other.load_state_dict(state)  # type: ignore[attr-defined]

    def test_a_state_of_an_evaluation_is_not_continued(self, tmp_path: Path) -> None:
        network, data = nn.Sequential(nn.Flatten(), nn.Linear(90, 4)).eval(), (IMAGES, [0, 1, 2, 3])
        options: dict[str, Any] = {"attacks": ["wo-2"], "state": tmp_path / "state"}
        told = Preprocess(mean=(0.5,), std=(0.5,))
        evaluate(told.around(network), data, **options)
        evaluate(told.around(network), data, **options)
        with pytest.raises(ValueError, match=r"another evaluation \(other model\)"):
            evaluate(Preprocess(mean=(0.5,), std=(0.5000001,)).around(network), data, **options)


def test_one_number_goes_with_several() -> None:
    assert Preprocess(mean=(0.1, 0.2), std=(1,)) == Preprocess(mean=(0.1, 0.2), std=(1, 1))
    assert Preprocess(mean=(0,), std=(1, 2)) == Preprocess(mean=(0, 0), std=(1, 2))


def test_the_right_one_has_the_last_word() -> None:
    own = Preprocess(mean=(0.5,), std=(0.5,), resize=256, layout="channels-last")
    told = Preprocess(mean=(0.1,), std=(0.2,), offset=0)
    assert own | told == Preprocess(
        mean=(0.1,), std=(0.2,), resize=256, layout="channels-last", offset=0
    )
    assert own | AS_IT_IS == own == AS_IT_IS | own
    assert own.but_for(std=(1.0,), mean=None) == own | Preprocess(mean=(0.5,), std=(1.0,))
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \|"):
        own | {"mean": 0}


@pytest.mark.parametrize("made", [torch.tensor, np.array, list])
def test_arrays_are_numbers_too(made: Any) -> None:
    own = Preprocess(mean=made([0.5, 0.25]), std=made([1.0, 2.0]))
    assert own == Preprocess(mean=(0.5, 0.25), std=(1.0, 2.0))
    assert Preprocess(mean=torch.tensor(0.5), std=np.float32(0.5)) == Preprocess(
        mean=(0.5,), std=(0.5,)
    )


def test_a_mean_of_bytes_is_suspicious() -> None:
    with pytest.warns(SuspiciousInput, match="a mean of 127 is outside .* write 127/255"):
        Preprocess(mean=(127,), std=(128,)).around(nn.Identity())


def test_records_have_what_answers_depend_on_and_no_sizes() -> None:
    told = Preprocess(mean=(0.5,), std=(0.5,), offset=1, resize=256, center_crop=224)
    assert json.loads(json.dumps(told.as_json())) == {"mean": [0.5], "std": [0.5], "offset": 1}
    assert Preprocess.of(told.as_json()) | Preprocess(resize=256, center_crop=224) == told


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mean": (0.5,)}, "mean and std belong together"),
        ({"mean": (0.5, 0.5), "std": (0.5,) * 3}, "need one number for each channel"),
        ({"mean": (0.5,), "std": (0,)}, "a std is above 0"),
        ({"mean": "x", "std": (1,)}, "mean is 'x'; give numbers"),
        ({"mean": (float("nan"),), "std": (1,)}, "give numbers"),
        ({"mean": (), "std": ()}, "give numbers"),
        ({"layout": "NHWC"}, "layout is 'NHWC'; give channels-first or channels-last"),
        ({"channels": "gbr"}, "channels is 'gbr'; give rgb or bgr"),
        ({"offset": -1}, "offset is -1; give a whole number of at least 0"),
        ({"center_crop": 0}, "center_crop is 0"),
        ({"resize": 1.5}, r"resize is 1\.5"),
        ({"probabilities": "yes"}, "give true or false"),
    ],
)
def test_what_cannot_be_right_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocess(**fields)


@given(
    mean=st.floats(-1, 1), std=st.floats(0.01, 10), image=st.floats(0, 1), factor=st.floats(0.01, 2)
)
def test_one_for_all_channels_is_the_same_for_each(
    mean: float, std: float, image: float, factor: float
) -> None:
    images = torch.full((1, 3, 1, 1), image) * factor
    one, three = (
        Preprocess(mean=(mean,) * n, std=(std,) * n).around(nn.Identity()) for n in (1, 3)
    )
    assert torch.equal(one(images), three(images))
