"""What was asked of an evaluation: names, settings, the model and the data it is about."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bar_images import bars, trained_network
from upright import Attack, GridSearch, Pose, RandomSearch, SuspiciousInput, evaluate
from upright.evaluation.score import Predictor, WorstLoss
from upright.tiles import Room


class Nameless(Attack):
    """An attack whose author forgot its name."""

    passes_per_image = 1
    search = RandomSearch.search


class Twin(RandomSearch):
    """Another attack under a name that is taken."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = RandomSearch.__hash__


def test_results_have_the_names_that_were_asked_for() -> None:
    found = evaluate(trained_network(), bars(6, 3), attacks=["grid-5x5x31", "Wo-2", "wo-1"])
    assert list(found.attacks) == ["grid-5x5x31", "Wo-2", "wo-1"]


def test_spelling_of_a_name_does_not_change_the_draws() -> None:
    network, data = trained_network(), bars(8, 3)
    one = evaluate(network, data, attacks=["wo-3"]).attacks["wo-3"]
    other = evaluate(network, data, attacks=["WO-3"]).attacks["WO-3"]
    assert one.worst_pose is not None
    assert other.worst_pose is not None
    assert torch.equal(one.worst_pose.values, other.worst_pose.values)


def test_attack_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="Nameless has no name"):
        evaluate(trained_network(), bars(4, 3), attacks=[Nameless()])


def test_two_attacks_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two attacks are called 'wo-2'"):
        evaluate(trained_network(), bars(4, 3), attacks=[RandomSearch(2), Twin(2)])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"canvas": -1}, "canvas must be at least 0 pixels, but is -1"),
        ({"fill": "white"}, "fill 'white' is not one of black"),
        ({"interpolation": "cubic"}, "'cubic' is not one of nearest"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(trained_network(), bars(4, 3), **setting)


def test_state_is_not_continued_with_slightly_other_weights(tmp_path: Path) -> None:
    network = copy.deepcopy(trained_network())
    evaluate(network, bars(6, 3), attacks=["wo-2"], state=tmp_path / "state")
    with torch.no_grad():
        next(network.parameters()).add_(1e-6)
    with pytest.raises(ValueError, match="another evaluation"):
        evaluate(network, bars(6, 3), attacks=["wo-2"], state=tmp_path / "state")


def test_part_left_in_training_mode_is_told() -> None:
    network = nn.Sequential(nn.BatchNorm2d(2).double(), trained_network()).eval()
    network[0].train()
    with pytest.warns(SuspiciousInput, match="a part of it, is in training mode"):
        evaluate(network, bars(4, 3), attacks=[])


def test_warning_names_the_line_that_called() -> None:
    soft = nn.Sequential(trained_network(), nn.Softmax(1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate(soft.eval(), bars(4, 3), attacks=[])
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


def bytes_as_floats(kind: str) -> Any:
    images, labels = bars(4, 3)
    whole = 255 * images / images.max(), labels
    return {"arrays": whole, "a data set": TensorDataset(*whole), "batches": [whole]}[kind]


@pytest.mark.parametrize("kind", ["arrays", "a data set", "batches"])
def test_a_warning_about_bytes_names_the_line_that_called(kind: str) -> None:
    """Of arrays, a thread looks at the pixels."""
    data = bytes_as_floats(kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        evaluate(trained_network(), data, attacks=[])
    (warning,) = caught
    assert "divide by 255" in str(warning.message)
    assert (warning.filename, warning.lineno) == (__file__, line)


def test_a_warning_of_a_thread_is_told_once_for_each_line_and_can_be_made_an_error() -> None:
    data = bytes_as_floats("arrays")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            evaluate(trained_network(), data, attacks=[])
        evaluate(trained_network(), data, attacks=[])
    first, second = caught
    assert second.lineno == first.lineno + 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=re.escape(__name__))
        with pytest.raises(SuspiciousInput, match="divide by 255"):
            evaluate(trained_network(), data, attacks=[])


def test_data_set_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    evaluate(trained_network(), TensorDataset(*bars(6, 3)), attacks=["wo-2"])
    assert torch.equal(torch.get_rng_state(), before)


def test_numpy_arrays_are_data() -> None:
    images, labels = bars(6, 3)
    given = evaluate(trained_network(), (images.numpy(), labels.numpy()), attacks=["grid-1x1x3"])
    expected = evaluate(trained_network(), (images, labels), attacks=["grid-1x1x3"])
    assert torch.equal(given.natural_loss, expected.natural_loss)
    assert given.classes == 4


def test_shared_poses_have_a_slope_for_each_image() -> None:
    images, labels = bars(5, 3)
    score = WorstLoss(Predictor(trained_network(), Room(4)), images, labels)
    shared = torch.tensor([[0.3, 0.2, 5.0], [-0.4, 0.1, -7.0]], dtype=torch.float64)
    position = shared[:, None].requires_grad_()
    each = shared[:, None].repeat(1, 5, 1).requires_grad_()
    (slope,) = torch.autograd.grad(score(Pose(position)).sum(), position)
    (slopes,) = torch.autograd.grad(score(Pose(each)).sum(), each)
    assert torch.allclose(slope, slopes.sum(1, keepdim=True))


def test_results_show_themselves_in_a_line() -> None:
    found = evaluate(trained_network(), bars(6, 3), attacks=[GridSearch((1, 1, 3))])
    assert repr(found).startswith("Evaluation(6 images: natural ")
    assert "grid-1x1x3" in repr(found)
    assert len(repr(found)) < 100
