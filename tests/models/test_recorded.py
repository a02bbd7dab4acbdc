"""A recorded network against the same network as it is.

On a GPU by real recordings; on the host by ones that are no more than the network asked again,
which shows what is recorded when.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright import RegularizedLoss
from upright.models import Recorded, build_network, recorded
from upright.modes import evaluation_mode

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
on_gpu = pytest.param("cuda", marks=needs_gpu)


@pytest.fixture(params=["cpu", on_gpu])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The host with recordings of its own, or a GPU."""
    if request.param == "cpu":
        monkeypatch.setattr(recorded, "_on_gpu", lambda _: True)
        monkeypatch.setattr(Recorded, "_record", record_on_host)
        half_on_host = partial(torch.is_autocast_enabled, "cpu")
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: half_on_host())
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.bfloat16)
    return str(request.param)


class OnHost:
    """Stands in for a graph: reads the weights where they lay, as they are now."""

    def __init__(self, recording: Recorded, images: Tensor, half: torch.dtype | None) -> None:
        self.images, self.half, self.model = images, half, copy.deepcopy(recording.model)
        for own, there in zip(tensors(self.model), tensors(recording.model), strict=True):
            own.data = there.data
        self.logits = self.answer()

    def answer(self) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", self.half, enabled=self.half is not None):
            return cast(Tensor, self.model(self.images))

    def replay(self) -> None:
        self.logits.copy_(self.answer())


def record_on_host(self: Recorded, images: Tensor, half: torch.dtype | None) -> Any:
    graph = OnHost(self, images.clone(), half)
    return recorded._Recording(cast(Any, graph), graph.images, graph.logits)


def tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def network(device: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_network("convnet0.5").to(device)


def some(count: int, device: str, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, 32, 32, generator=generator).to(device)


def close(found: Tensor, expected: Tensor) -> None:
    """Other kernels may be chosen for a recording, and products are rounded to TF32 or less."""
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def count(model: Recorded) -> int:
    return len(model._recordings)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_answers_as_the_network_does(
    device: str, layout: torch.memory_format, half: bool
) -> None:
    plain = network(device).eval()
    model = Recorded(plain)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=half):
        for seed, size in enumerate((3, 5, 3, 5, 3)):
            images = some(size, device, seed).contiguous(memory_format=layout)
            found, expected = model(images), plain(images)
            assert found.dtype == expected.dtype
            close(found, expected)
    assert count(model) == 2


def test_a_few_shapes_are_recorded_and_others_asked_as_they_come(device: str) -> None:
    plain = network(device).eval()
    model = Recorded(plain)
    with torch.no_grad():
        for size in (*range(1, 8), *range(1, 8)):
            close(model(some(size, device)), plain(some(size, device)))
    assert count(model) == recorded.MOST


def test_an_answer_is_not_changed_by_the_next(device: str) -> None:
    model = Recorded(network(device).eval())
    with torch.no_grad():
        first = model(some(3, device))
        before = first.clone()
        model(some(3, device, 1))
    assert torch.equal(first, before)


@pytest.mark.parametrize("half", [False, True])
def test_weights_that_change_or_move_are_seen(device: str, half: bool) -> None:
    plain = network(device).eval()
    model, images, weight = Recorded(plain), some(3, device), next(plain.parameters())

    def asked(network: nn.Module) -> Tensor:
        # Each in a context of its own, since within one autocast rounds weights once.
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=half):
            return cast(Tensor, network(images))

    before = asked(model)
    weight.data.mul_(-2)
    close(asked(model), asked(plain))
    weight.data = weight.data.clone().mul_(-3)
    close(asked(model), asked(plain))
    assert not torch.allclose(asked(model), before, atol=0.1)
    assert count(model) == 1


def test_weights_that_always_move_are_not_followed_for_ever(device: str) -> None:
    plain = network(device).eval()
    model, images, weight = Recorded(plain), some(3, device), next(plain.parameters())
    kept = []  # or memory that was freed would be taken again

    def move_and_ask() -> None:
        kept.append(weight.data)
        weight.data = weight.data.clone()
        with torch.no_grad():
            close(model(images), plain(images))

    for _ in range(recorded.MOST_MOVES + 1):
        move_and_ask()
    with pytest.warns(UserWarning, match="lie elsewhere at each pass"):
        move_and_ask()
    move_and_ask()  # another warning would be an error
    assert count(model) == 0


def test_training_mode_and_gradients_are_the_networks_own(device: str) -> None:
    plain = network(device)
    twin = copy.deepcopy(plain)
    model, images = Recorded(plain), some(4, device)
    for each in (model, twin):
        each(images).sum().backward()  # gradients of weights; statistics of a batch
        with torch.no_grad():
            each(images)
    for one, other in zip(plain.parameters(), twin.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        close(one.grad, other.grad)
    for one, other in zip(plain.buffers(), twin.buffers(), strict=True):
        close(one, other)
    climbing = [images.clone().requires_grad_() for _ in range(2)]
    with evaluation_mode(model), evaluation_mode(twin):
        for each, start in zip((model, twin), climbing, strict=True):
            each(start).sum().backward()
    close(cast(Tensor, climbing[0].grad), cast(Tensor, climbing[1].grad))
    assert count(model) == 0


@pytest.mark.parametrize("text", ["KL(rob, Wo-4)", "L2(nat, S-PGD)", "AT(mix, Wo-3)"])
def test_a_search_by_a_recorded_network_finds_the_same(text: str, device: str) -> None:
    found = []
    for record in (False, True):
        model = network(device).train()
        search_model = Recorded(model) if record else None
        loss = RegularizedLoss(text, generator=torch.Generator(device).manual_seed(1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        totals, poses = [], []
        for step in range(3):
            images, labels = some(8, device, step), torch.arange(8, device=device) % 10
            terms = loss(model, images, labels, search_model=search_model)
            optimizer.zero_grad()
            terms.total.backward()
            optimizer.step()
            totals.append(terms.total.detach())
            poses += [pose.values.flatten() for pose in terms.poses.values()]
        assert model.training
        if search_model is not None and "Wo" in text:
            assert count(search_model) == 1
        found.append((torch.stack(totals), torch.cat(poses)))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=2e-3, atol=2e-3)
    # Of two poses that are equally bad, rounding may choose another.
    assert torch.isclose(found[0][1], found[1][1], atol=1e-3).float().mean() > 0.95


class LooksAtValues(nn.Module):
    """A network whose next kernel depends on a value."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, : 4 if images.max().item() > 0.1 else 5]


@needs_gpu
def test_a_network_that_looks_at_values_is_asked_as_it_is_and_leaves_nothing_behind() -> None:
    model, images = Recorded(LooksAtValues().eval()), some(2, "cuda")
    stream, mode = torch.cuda.current_stream(), torch.cuda.get_sync_debug_mode()
    with pytest.warns(UserWarning, match="cannot be recorded"):
        found = model(images)
    close(found, images.flatten(1)[:, :4])
    close(model(images), found)  # another warning would be an error
    assert torch.cuda.current_stream() == stream
    assert torch.cuda.get_sync_debug_mode() == mode
    assert F.dropout(torch.ones(8, device="cuda")).isfinite().all()
    other = Recorded(network("cuda").eval())
    with torch.no_grad():
        other(images)
    assert count(other) == 1


def test_images_in_a_dtype_that_is_refused_spoil_nothing(device: str) -> None:
    """A loss shows images as they are first, and then as the weights are."""
    plain = network(device).eval().bfloat16()
    model = Recorded(plain)
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            model(some(3, device))
        images = some(3, device).bfloat16()
        close(model(images), plain(images))
    assert count(model) == 1


def test_what_nobody_can_look_into_is_asked_as_it_is(device: str) -> None:
    plain = network(device).eval()
    model, images = Recorded(lambda images: plain(images)), some(3, device)
    with torch.no_grad():
        close(model(images), plain(images))
    assert count(model) == 0


def test_a_network_that_is_not_made_yet_is_asked_as_it_is(device: str) -> None:
    model = Recorded(nn.Sequential(nn.Flatten(), nn.LazyLinear(4)).to(device).eval())
    with torch.no_grad():
        first = model(some(2, device))
        close(model(some(2, device)), first)
    assert count(model) == 1


def test_a_copy_has_recordings_of_its_own(device: str) -> None:
    model, images = Recorded(network(device).eval()), some(3, device)
    with torch.no_grad():
        expected = model(images)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert count(other) == 0
            next(other.parameters()).mul_(2)
            close(model(images), expected)
            assert not torch.allclose(other(images), expected)


@needs_gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")  # inductor's advice
def test_a_compiled_network_is_recorded_as_well() -> None:
    plain = network("cuda").eval()
    model = Recorded(torch.compile(plain, dynamic=False))
    with torch.no_grad():
        for seed in range(3):
            close(model(some(4, "cuda", seed)), plain(some(4, "cuda", seed)))
    assert count(model) == 1


def test_on_a_cpu_it_is_the_network() -> None:
    plain = network("cpu").eval()
    model = Recorded(plain)
    with torch.no_grad():
        assert torch.equal(model(some(3, "cpu")), plain(some(3, "cpu")))
    assert count(model) == 0
