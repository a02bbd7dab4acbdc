"""What every network owes to the rest: compilation, checkpoints, the same run twice, resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from every_network import KINDS, LIBRARIES, each_kind
from tiny_runs import colours, newest, tiny_recipe
from upright.models import NETWORKS, build_network
from upright.objective import evaluation_mode
from upright.train import load_network, train
from upright.train.learner import Learner


def noise(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def tiny_train(name: str, path: Path, **options: Any) -> nn.Module:
    recipe = tiny_recipe(model=name, steps=4)
    return train(recipe, path, data=colours(side=16), checkpoint_every=2, **options).model


def test_each_registered_network_is_among_those_that_are_tested() -> None:
    ours = [each for each in NETWORKS.entries if each.value.__module__.startswith("upright.")]
    assert ours
    for known in ours:  # other tests may have registered networks of their own
        assert any(known.pattern.fullmatch(name) for name in KINDS + LIBRARIES), known.form


# PyTorch's compiler warns of what it does itself.
@pytest.mark.filterwarnings("ignore:.* should not be instantiated:DeprecationWarning")
@each_kind
def test_compiled_whole_it_gives_the_same_logits_and_gradients(name: str) -> None:
    torch._dynamo.reset()
    model, images, labels = build_network(name), noise(4, 3, 16, 16), torch.arange(4)
    # The compiler's front alone: what it cannot capture, it refuses here.
    compiled = torch.compile(model, fullgraph=True, dynamic=False, backend="aot_eager")
    gradients = []
    for one in (model, compiled):
        torch.manual_seed(0)  # both drop the same values, where a network drops any
        loss = F.cross_entropy(one(images), labels)
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    for plain, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)
    with evaluation_mode(model), torch.no_grad():
        torch.testing.assert_close(compiled(images), model(images), rtol=1e-4, atol=1e-5)


@each_kind
def test_half_precision_and_channels_last_change_logits_by_rounding_alone(name: str) -> None:
    model, images = build_network(name).eval(), noise(4, 3, 16, 16)
    with torch.no_grad():
        exact = model(images)
        model.to(memory_format=torch.channels_last)
        last = images.to(memory_format=torch.channels_last)
        torch.testing.assert_close(model(last), exact, rtol=1e-4, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            half = model(last).float()
    assert (half - exact).norm() < 0.03 * exact.norm()


@each_kind
def test_the_logits_of_an_image_do_not_depend_on_its_company(name: str) -> None:
    model, images = build_network(name).double().eval(), noise(5, 3, 16, 16).double()
    alone = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(model(images), alone, rtol=0, atol=1e-10)


@each_kind
def test_a_run_comes_out_the_same_twice_and_its_checkpoint_has_its_logits(
    name: str, tmp_path: Path
) -> None:
    model, images = tiny_train(name, tmp_path / "one"), noise(3, 3, 16, 16)
    torch.manual_seed(5)
    tiny_train(name, tmp_path / "other")
    assert newest(tmp_path / "one") == newest(tmp_path / "other")
    loaded = load_network(tmp_path / "one")
    for key, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor), key
    torch.testing.assert_close(loaded(images), model(images), rtol=1e-4, atol=1e-5)


@each_kind
def test_a_run_that_was_broken_off_ends_where_the_unbroken_one_ends(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_train(name, tmp_path / "unbroken")
    step = Learner.step

    def fail_at_3(learner: Learner, number: int) -> None:
        if number == 3:
            raise ZeroDivisionError
        step(learner, number)

    monkeypatch.setattr(Learner, "step", fail_at_3)
    with pytest.raises(ZeroDivisionError):
        tiny_train(name, tmp_path / "broken")
    monkeypatch.undo()
    tiny_train(name, tmp_path / "broken", resume=True)
    assert newest(tmp_path / "broken") == newest(tmp_path / "unbroken")
