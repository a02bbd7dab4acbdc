"""The poses of a user's own loop: seeds, and how a resumed loop goes on with them."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noting_model import IMAGES, LABELS, NotingModel
from upright import Objective, SuspiciousInput
from upright.objective import LocNet, LocNetLoss, RegularizedLoss

RANDOM = ["std*", "AT(rob, Wo-4)", "L2(rob, S-PGD)"]


def poses(loss: nn.Module, calls: int = 1) -> list[Any]:
    """What a loss draws; a LocNet's shows in its value alone."""
    found = [loss(lambda x: x.flatten(1)[:, :5], IMAGES, LABELS).poses for _ in range(calls)]
    return [[pose.values.tolist() for pose in each.values()] for each in found]


def seeded(text: str, seed: int) -> RegularizedLoss:
    torch.manual_seed(seed)
    return RegularizedLoss(text)


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


@pytest.mark.parametrize("text", RANDOM)
def test_poses_follow_the_users_seed(text: str) -> None:
    first = poses(seeded(text, 1), calls=2)
    assert first[0] != first[1]
    assert poses(seeded(text, 1), calls=2) == first
    assert poses(seeded(text, 2)) != first[:1]


def test_the_seed_is_the_one_in_force_at_the_first_call() -> None:
    loss = seeded("std*", 1)
    torch.manual_seed(2)
    assert poses(loss) == poses(seeded("std*", 2))
    torch.manual_seed(3)
    assert poses(loss) != poses(seeded("std*", 3))


def test_poses_are_no_copy_of_what_else_is_drawn_with_that_seed() -> None:
    torch.manual_seed(1)
    others = torch.rand(3, 3)
    ((pose,),) = poses(seeded("std*", 1))
    fractions = torch.tensor(pose) / torch.tensor([6.0, 6.0, 60.0]) + 0.5
    assert not torch.isclose(fractions, others).any()


@pytest.mark.parametrize("text", RANDOM)
@pytest.mark.parametrize("own", [False, True], ids=["by default", "with a generator"])
def test_a_resumed_loop_continues_the_poses_bit_for_bit(text: str, own: bool) -> None:
    def make(seed: int) -> RegularizedLoss:
        torch.manual_seed(seed)
        return RegularizedLoss(text, generator=torch.Generator().manual_seed(seed) if own else None)

    unbroken = poses(make(1), calls=5)
    stopped = make(1)
    assert poses(stopped, calls=2) == unbroken[:2]
    resumed = make(2)
    resumed.load_state_dict(through_a_file(stopped.state_dict()))
    assert poses(resumed, calls=3) == unbroken[2:]


def test_a_locnet_too_follows_the_seed_and_is_resumed() -> None:
    def values(loss: nn.Module, calls: int) -> list[float]:
        return [float(loss(lambda x: x.flatten(1)[:, :3], IMAGES).total) for _ in range(calls)]

    def make(seed: int) -> LocNetLoss:
        torch.manual_seed(seed)
        return LocNetLoss(LocNet())

    unbroken = values(make(1), 4)
    assert values(make(2), 4) != unbroken
    stopped = make(1)
    values(stopped, 2)
    resumed = make(2)
    resumed.load_state_dict(through_a_file(stopped.state_dict()))
    assert values(resumed, 2) == unbroken[2:]


def test_a_loss_that_has_drawn_nothing_takes_the_seed_of_the_loop_that_loads_it() -> None:
    state = seeded("std*", 1).state_dict()
    loss = seeded("std*", 2)
    loss.load_state_dict(state)
    assert poses(loss) == poses(seeded("std*", 2))


def test_a_state_is_tensors_and_a_module_that_holds_the_loss_holds_it_too() -> None:
    module = nn.ModuleDict({"network": NotingModel(), "loss": seeded("std*", 1)})
    poses(module["loss"])
    state = module.state_dict()
    assert all(isinstance(value, Tensor) for value in state.values())
    other = nn.ModuleDict({"network": NotingModel(), "loss": seeded("std*", 2)})
    other.load_state_dict(state)
    assert poses(other["loss"]) == poses(module["loss"])


def test_a_checkpoint_of_before_poses_were_kept_is_still_read() -> None:
    module = nn.ModuleDict({"network": NotingModel(), "loss": seeded("std*", 1)})
    state = {name: value for name, value in module.state_dict().items() if "network" in name}
    module.load_state_dict(state)
    assert poses(module["loss"]) == poses(seeded("std*", 1))


@pytest.mark.parametrize("own", [False, True])
def test_a_state_of_another_kind_is_not_taken_up_and_that_is_said(own: bool) -> None:
    with_generator = RegularizedLoss("std*", generator=torch.Generator().manual_seed(1))
    without = seeded("std*", 1)
    expected = poses(copy.deepcopy(without)) if not own else None
    state, loss = (without, with_generator) if own else (with_generator, without)
    with pytest.warns(
        SuspiciousInput, match="poses do not continue .* give a generator now as"
    ) as w:
        loss.load_state_dict(state.state_dict())
    assert w[0].filename == __file__
    assert expected is None or poses(loss) == expected


def test_a_generator_of_another_kind_of_device_is_not_overwritten() -> None:
    loss = RegularizedLoss("std*", generator=torch.Generator().manual_seed(1))
    state = loss.state_dict()
    state["draws._extra_state"] = state["draws._extra_state"][:24]  # a GPU's generator has 16 bytes
    with pytest.warns(SuspiciousInput, match="of another kind of device"):
        loss.load_state_dict(state)


def test_copies_go_on_alike_and_apart() -> None:
    loss = seeded("AT(rob, Wo-4)", 1)
    poses(loss)
    twin = copy.deepcopy(loss)
    assert poses(twin, calls=2) == poses(loss, calls=2)


def test_objectives_that_draw_nothing_have_no_seed() -> None:
    loss = RegularizedLoss(Objective.parse("std"))
    poses(loss)
    assert loss.state_dict()["draws._extra_state"].tolist() == [-1, 0]
