"""A user's own loop on two processes, with torch's wrapper of the model."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rank_pool import RankPool
from upright import evaluate
from upright.objective import RegularizedLoss
from upright.ranks import Ranks, current_ranks, joined_ranks

CLASSES, STEPS = 4, 3


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    with RankPool(tmp_path_factory.mktemp("pool")) as pool:
        yield pool


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(144, CLASSES)
    )


def batch(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    images = torch.rand(6, 1, 8, 8, generator=generator)
    return images, torch.randint(CLASSES, (6,), generator=generator)


def wrapped(kind: str, options: dict[str, Any]) -> nn.Module:
    """The wrapper itself, or in another module, or compiled: for each, gradients are averaged."""
    if kind == "inside":
        return nn.Sequential(nn.Identity(), DistributedDataParallel(network(), **options))
    wrapper = DistributedDataParallel(network(), **options)
    if kind == "compiled":
        compiled: nn.Module = torch.compile(wrapper, backend="eager")  # type: ignore[assignment]
        return compiled
    return wrapper


def gradients(ranks: Ranks, text: str, kind: str, options: dict[str, Any]) -> list[Tensor]:
    """Take some steps, each rank with its own images; give the gradients of each."""
    model = wrapped(kind, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss, found = RegularizedLoss(text), []
    for step in range(STEPS):
        terms = loss(model, *batch(10 * step + ranks.rank))
        optimizer.zero_grad()
        terms.total.backward()
        found.append(flat([part.grad for part in model.parameters() if part.grad is not None]))
        optimizer.step()
    return [*found, flat(list(model.parameters()))]


def flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.detach().flatten() for part in parts])


@pytest.mark.parametrize(
    ("text", "kind", "options"),
    [
        ("L2(mix, S-PGD)", "wrapper", {}),
        ("L2(mix, S-PGD)", "wrapper", {"static_graph": True}),
        ("L2(mix, S-PGD)", "inside", {"static_graph": True}),
        ("L2(mix, S-PGD)", "compiled", {"static_graph": True}),
        ("KL(rob, Wo-3)", "wrapper", {"static_graph": True}),
    ],
)
def test_ranks_take_one_step_and_stay_together(
    pool: RankPool, text: str, kind: str, options: dict[str, Any]
) -> None:
    one, other = pool.run(gradients, text, kind, options)
    for mine, theirs in zip(one, other, strict=True):
        assert mine.abs().max() > 0
        assert torch.equal(mine, theirs)


def averaged(ranks: Ranks, text: str, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The gradient with the wrapper, and the mean over ranks of those without."""
    wrapper, bare = DistributedDataParallel(network(), **options), network()
    for model in (wrapper, bare):
        loss = RegularizedLoss(text, generator=torch.Generator().manual_seed(ranks.rank))
        loss(model, *batch(ranks.rank)).total.backward()
    with_wrapper, without = (
        flat([part.grad for part in model.parameters() if part.grad is not None])
        for model in (wrapper, bare)
    )
    return with_wrapper, ranks.sum(without) / ranks.size


@pytest.mark.parametrize("options", [{}, {"static_graph": True}], ids=["plain", "static graph"])
def test_gradients_are_the_mean_over_ranks(pool: RankPool, options: dict[str, Any]) -> None:
    for found, expected in pool.run(averaged, "L2(mix, S-PGD)", options):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def compilations(ranks: Ranks, text: str) -> list[int]:
    """How often a compiled wrapper's parts have been compiled after each of some steps."""
    del ranks
    torch._dynamo.reset()
    graphs, counts, loss = [], [], RegularizedLoss(text)

    def compiler(graph: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return graph.forward

    model: Any = torch.compile(DistributedDataParallel(network()), backend=compiler)
    for step in range(STEPS):
        loss(model, *batch(step)).total.backward()
        counts.append(len(graphs))
    return counts


def test_a_compiled_wrapper_is_compiled_once(pool: RankPool) -> None:
    for counts in pool.run(compilations, "L2(mix, S-PGD)"):
        assert counts[0] > 0
        assert set(counts) == {counts[0]}


def messages(ranks: Ranks) -> int:
    """How often the wrapper's own forward runs in one step."""
    del ranks
    model, calls = DistributedDataParallel(network()), []
    original = model._pre_forward
    model._pre_forward = lambda *rest, **more: calls.append(1) or original(*rest, **more)  # type: ignore[method-assign]
    RegularizedLoss("L2(mix, S-PGD)")(model, *batch(0)).total.backward()
    assert "forward" not in vars(model)
    return len(calls)


def test_a_search_sends_nothing_round(pool: RankPool) -> None:
    assert pool.run(messages) == [1, 1]


# --- poses ----------------------------------------------------------------------------------------


def drawn(loss: RegularizedLoss, calls: int) -> Tensor:
    images, labels = batch(0)
    found = [loss(lambda x: x.flatten(1)[:, :CLASSES], images, labels).poses for _ in range(calls)]
    return torch.stack([pose.values for poses in found for pose in poses.values()])


def resumed(ranks: Ranks, first: bytes | None) -> tuple[Tensor, bytes]:
    """Draw for five calls; or take up the state of another rank's after two, and draw the rest."""
    del ranks
    torch.manual_seed(3 if first is None else 4)
    loss = RegularizedLoss("std*")
    if first is None:
        beginning, file = drawn(loss, 2), io.BytesIO()
        torch.save(loss.state_dict(), file)
        return torch.cat((beginning, drawn(loss, 3))), file.getvalue()
    loss.load_state_dict(torch.load(io.BytesIO(first), weights_only=True))
    return drawn(loss, 3), b""


def test_ranks_draw_differently_and_all_go_on_from_the_state_of_one(pool: RankPool) -> None:
    (one, state), (other, _) = pool.run(resumed, None)
    assert not torch.isclose(one, other).any()
    for unbroken, (rest, _) in zip((one, other), pool.run(resumed, state), strict=True):
        assert torch.equal(rest, unbroken[2:])


def warned(ranks: Ranks) -> tuple[list[str], Tensor]:
    """Load rank 0's state of a generator of one's own."""
    loss = RegularizedLoss("std*", generator=torch.Generator().manual_seed(ranks.rank))
    state = ranks.gather(loss.state_dict())[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss.load_state_dict(state)
    said = [str(warning.message) for warning in caught]
    return said, drawn(loss, 1)


def test_a_generator_of_ones_own_is_not_replaced_by_that_of_another_rank(pool: RankPool) -> None:
    (none, one), (said, other) = pool.run(warned)
    assert none == []
    assert said == [
        "poses do not continue those of the saved run: the state is rank 0's; save it on each "
        "rank, or give the loss no generator"
    ]
    assert not torch.isclose(one, other).any()


def sharded(ranks: Ranks, text: str, measured: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Losses, and the gradients of the last step, with sharded weights and with the wrapper."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    split = copy.deepcopy(plain)
    fully_shard(split[1], mesh=(mesh := init_device_mesh("cpu", (ranks.size,))))
    fully_shard(split, mesh=mesh)
    found: list[list[Tensor]] = []
    for model in (split, DistributedDataParallel(plain)):
        loss, losses = RegularizedLoss(text), list[Tensor]()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            images, labels = batch(10 * step + ranks.rank)
            if measured:
                evaluate(model.eval(), (images, labels), attacks=["rnd"], only_accuracy=True)
                model.train()
            terms = loss(model, images, labels)
            optimizer.zero_grad()
            terms.total.backward()
            optimizer.step()
            losses.append(terms.total.detach())
        for weight in model.parameters():
            assert weight.grad is not None
            whole = weight.grad.full_tensor() if isinstance(weight.grad, DTensor) else weight.grad
            losses.append(whole.flatten())
        found.append(losses)
    return found[0], found[1]


@pytest.mark.parametrize(
    ("text", "measured"), [("AT(rob, Wo-3)", False), ("KL(rob, S-PGD)", False), ("std", True)]
)
def test_sharded_weights_have_the_gradients_of_whole_ones(
    pool: RankPool, text: str, measured: bool
) -> None:
    for split, whole in pool.run(sharded, text, measured):
        torch.testing.assert_close(split, whole, rtol=1e-5, atol=1e-6)


def joined_again(ranks: Ranks) -> tuple[bool, bool]:
    with joined_ranks() as joined:
        same = joined == ranks
    return same, current_ranks() == ranks  # still there for the loop that joined them


def test_ranks_that_have_joined_already_are_those_that_are_joined(pool: RankPool) -> None:
    assert pool.run(joined_again) == [(True, True), (True, True)]
