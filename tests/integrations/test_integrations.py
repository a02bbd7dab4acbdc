"""What the integrations share, and that nobody needs a framework who does not name one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import upright
from bar_images import bars, trained_network
from rigid_spaces import rigid, rigid_box
from upright import RandomSearch
from upright.integrations.measure import Measurement

PACKAGE = Path(upright.__file__).parent
FRAMEWORK = re.compile(
    r"^\s*(import|from) (pytorch_lightning|lightning|torchmetrics|transformers|"
    r"upright\.integrations)\b",
    re.MULTILINE,
)


def test_frameworks_are_imported_by_their_integrations_alone() -> None:
    files = set(PACKAGE.rglob("*.py"))
    who = {file.relative_to(PACKAGE) for file in files if FRAMEWORK.search(file.read_text())}
    assert {file.parts[0] for file in who} == {"integrations"}
    assert not FRAMEWORK.search((PACKAGE / "integrations" / "__init__.py").read_text())


def test_a_measurement_takes_every_option_of_evaluate() -> None:
    options = {"space": rigid(1, 15), "fill": "border", "limit": 20}
    network, data = trained_network(), bars(40, seed=2)
    found = Measurement(["wo-2"], options=options).evaluate(network, network, data)
    expected = upright.evaluate(network, data, attacks=["wo-2"], **options)
    assert torch.equal(found.attacks["wo-2"].correct, expected.attacks["wo-2"].correct)


@pytest.mark.parametrize("option", ["state", "device", "ranks", "colour"])
def test_options_that_are_not_for_the_caller_are_refused_at_once(option: str) -> None:
    with pytest.raises(TypeError, match=f"argument '{option}'"):
        Measurement(options={option: None})


@pytest.mark.parametrize("wrong", [{"top": 0}, {"fill": "blue"}, {"limit": 0}, {"canvas": -1}])
def test_values_that_cannot_be_right_are_refused_before_the_training(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Measurement(options=wrong)


@pytest.mark.parametrize("seed", [None, 3])
def test_a_measurement_s_question_draws_what_evaluate_draws(seed: int | None) -> None:
    """The poses of ``evaluate`` for its first chunk are those of the question's own generator."""
    generator = [None if seed is None else torch.Generator().manual_seed(seed) for _ in range(2)]
    question = Measurement(["wo-2"]).question(generator[0])
    images, labels = bars(20, seed=2)
    found = upright.evaluate(
        trained_network(), (images, labels), attacks=["wo-2"], generator=generator[1]
    ).attacks["wo-2"]
    (attack,) = question.attacks.values()
    assert isinstance(attack, RandomSearch)
    drawn = attack.candidates(rigid_box(), 20, generator=question.generator(attack, 0)).values
    assert found.worst_pose is not None
    assert (drawn == found.worst_pose.values).all(-1).any(0).all()
