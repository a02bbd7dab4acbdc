"""A recorded model against the same model as it is; what needs a GPU for it says so."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

from upright import RegularizedLoss
from upright.models import Recorded, build_network
from upright.modes import evaluation_mode

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    ),
]
on_every_device = pytest.mark.parametrize("device", DEVICES)


def network(device: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_network("convnet0.5").to(device)


def some(count: int, device: str, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, 32, 32, generator=generator).to(device)


def close(found: Tensor, expected: Tensor) -> None:
    """Other kernels may be chosen for a record, and products are rounded to TF32 or less."""
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def records(model: Recorded) -> int:
    return len(model._records)


@on_every_device
def test_it_answers_as_the_model_does_for_each_shape_and_precision(device: str) -> None:
    plain = network(device).eval()
    recorded = Recorded(plain)
    kinds = [
        some(3, device),
        some(5, device, 1),
        some(3, device).contiguous(memory_format=torch.channels_last),
    ]
    with torch.no_grad():
        for images in (*kinds, *kinds, some(3, device, 2)):
            close(recorded(images), plain(images))
            with torch.autocast(device, torch.bfloat16):
                found, expected = recorded(images), plain(images)
            assert found.dtype == expected.dtype
            close(found, expected)
    assert records(recorded) == (4 if device == "cuda" else 0)


@on_every_device
def test_an_answer_is_not_changed_by_the_next(device: str) -> None:
    recorded = Recorded(network(device).eval())
    with torch.no_grad():
        first = recorded(some(3, device))
        before = first.clone()
        recorded(some(3, device, 1))
    assert torch.equal(first, before)


@on_every_device
def test_weights_that_change_or_move_are_seen(device: str) -> None:
    plain = network(device).eval()
    recorded, images = Recorded(plain), some(3, device)
    weight = next(plain.parameters())
    with torch.no_grad():
        for half in (False, True):
            with torch.autocast(device, torch.bfloat16, enabled=half):
                recorded(images)
                weight.mul_(-2)
                close(recorded(images), plain(images))
        weight.data = weight.data.clone().mul_(-0.5)
        close(recorded(images), plain(images))
    assert records(recorded) == (1 if device == "cuda" else 0)


@on_every_device
def test_training_mode_and_gradients_are_the_models_own(device: str) -> None:
    plain = network(device)
    recorded, images = Recorded(plain), some(4, device).requires_grad_()
    assert recorded.training
    recorded(images).sum().backward()  # of weights and images
    assert images.grad is not None
    with torch.no_grad():
        recorded(some(4, device))  # statistics of a batch
    with evaluation_mode(recorded):
        images.grad = None
        recorded(images).sum().backward()  # of images alone
        assert images.grad is not None
    assert records(recorded) == 0


@on_every_device
@pytest.mark.parametrize("text", ["KL(rob, Wo-4)", "L2(nat, S-PGD)", "AT(mix, Wo-3)"])
def test_a_search_by_a_recorded_model_finds_the_same(text: str, device: str) -> None:
    found = []
    for record in (False, True):
        model = network(device).train()
        search_model = Recorded(model) if record else None
        loss = RegularizedLoss(text, generator=torch.Generator(device).manual_seed(1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        totals = []
        for step in range(3):
            images, labels = some(8, device, step), torch.arange(8, device=device) % 10
            terms = loss(model, images, labels, search_model=search_model)
            optimizer.zero_grad()
            terms.total.backward()
            optimizer.step()
            totals.append(terms.total.detach())
        assert model.training
        found.append(torch.stack(totals))
    close(*found)


class LooksAtValues(nn.Module):
    """A model whose next kernel depends on a value."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, : 4 if images.max().item() > 0.1 else 5]


@on_every_device
def test_a_model_that_looks_at_values_is_asked_as_it_is(device: str) -> None:
    recorded, images = Recorded(LooksAtValues().eval()), some(2, device)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.testing.assert_close(recorded(images), images.flatten(1)[:, :4])
    assert len(told) == (1 if device == "cuda" else 0)
    assert all("cannot be recorded" in str(each.message) for each in told)


@on_every_device
def test_a_copy_has_records_of_its_own(device: str) -> None:
    recorded, images = Recorded(network(device).eval()), some(3, device)
    with torch.no_grad():
        expected = recorded(images)
        other = copy.deepcopy(recorded)
        assert records(other) == 0
        next(other.parameters()).mul_(2)
        close(recorded(images), expected)
        assert not torch.allclose(other(images), expected)
