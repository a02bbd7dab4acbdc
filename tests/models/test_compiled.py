"""A compiled model against the same model as it is: the same answers, few compilations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cheap_compiler import Compilations, compiled_afresh
from upright import evaluate, tta
from upright.identity import Identity
from upright.models import Compiled, in_half_precision
from upright.tiles import usual_batch

BATCH, SIDE, CLASSES = 16, 8, 5
"""A quarter of the batch is 4 images."""

pytestmark = [
    # PyTorch's compiler looks at .grad of what it is given, and hides the warning from users.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    with compiled_afresh():
        yield


def network(channels: int = 3) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        last = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES))
        return nn.Sequential(*layers, *last).eval()


def some(count: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, channels, SIDE, SIDE, generator=generator)


@pytest.mark.parametrize("seed", range(3))
def test_batches_of_any_size_in_any_order_have_the_plain_answers(seed: int) -> None:
    compiler, model = Compilations(), network()
    compiled = Compiled(model, batch_size=BATCH, backend=compiler)
    order = torch.randperm(3 * BATCH + 1, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for count in order.tolist():
            torch.testing.assert_close(compiled(some(count)), model(some(count)))
    assert sorted(compiler.sizes) == [BATCH // 4, BATCH]


@pytest.mark.parametrize(
    ("count", "asked"),
    [
        (16, [16]),
        (14, [16]),  # filled up: half a quarter is missing
        (13, [4, 4, 4, 1]),  # more would be; one alone is asked of the model as it is
        (10, [4, 4, 4]),
        (3, [4]),
        (1, [1]),
        (37, [16, 16, 4, 1]),
        (0, [0]),
    ],
)
def test_a_batch_is_taken_whole_or_cut_into_quarters(count: int, asked: list[int]) -> None:
    seen, model = list[int](), network()
    model.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    compiled = Compiled(model, batch_size=BATCH)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        compiled(some(1))  # the model is asked once whether it takes images of this dtype
        seen.clear()
        assert compiled(some(count)).shape == (count, CLASSES)
    assert seen == asked


@pytest.mark.parametrize("batch_size", range(1, 12))
def test_no_batch_is_too_small_to_have_quarters(batch_size: int) -> None:
    compiler, model = Compilations(), network()
    compiled = Compiled(model, batch_size=batch_size, backend=compiler)
    with torch.no_grad():
        for count in range(1, batch_size + 1):
            torch.testing.assert_close(compiled(some(count)), model(some(count)))
    assert len(compiler.sizes) <= 2


def test_unless_told_a_batch_is_that_of_an_evaluation() -> None:
    compiler = Compilations()
    compiled = Compiled(network(), backend=compiler)
    with torch.no_grad():
        compiled(some(most := usual_batch(some(1))))
    assert compiler.sizes == [most]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_that_lie_channels_last_do_so_when_filled_up(channels: int) -> None:
    compiler, model = Compilations(), network(channels)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled = Compiled(model, batch_size=BATCH, backend=compiler)
    with torch.no_grad():
        for count in (16, 15, 4, 3, 9):
            images = some(count, channels).contiguous(memory_format=torch.channels_last)
            torch.testing.assert_close(compiled(images), model(images))
    assert sorted(compiler.sizes) == [4, 16]


def test_gradients_of_images_are_the_model_s_also_of_those_that_fill_up() -> None:
    compiler, model = Compilations(), network()
    compiled = Compiled(model, batch_size=BATCH, backend=compiler)
    for count in (15, 11, 15, 1):
        images = [some(count).requires_grad_() for _ in range(2)]
        for one, seen in zip((compiled, model), images, strict=True):
            one(seen).square().sum().backward()
        assert images[0].grad is not None
        torch.testing.assert_close(images[0].grad, images[1].grad)
    assert sorted(compiler.sizes) == [4, 16]


class Dressed(nn.Module):
    """Answers as models of libraries do."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.network, self.kind = network(), kind
        self.eval()

    def forward(self, images: Tensor) -> Any:
        logits = self.network(images)
        answers = {"tuple": (logits, images), "dict": {"features": images, "logits": logits}}
        return answers.get(self.kind, logits[:, :, None, None])


@pytest.mark.parametrize("kind", ["tuple", "dict", "convolution"])
def test_logits_are_found_in_any_answer(kind: str) -> None:
    model = Dressed(kind)
    compiled = Compiled(model, batch_size=BATCH, backend="eager")
    with torch.no_grad():
        for count in (1, 11, 15, 16):
            torch.testing.assert_close(compiled(some(count)), model.network(some(count)))


def test_what_an_evaluation_looks_at_is_the_model_s() -> None:
    model = network()
    compiled = Compiled(model, backend="eager")
    assert [*map(id, compiled.parameters())] == [*map(id, model.parameters())]
    assert not any(part.training for part in compiled.modules())
    model.train()
    assert any(part.training for part in compiled.modules())
    known = [Identity.of(each).weights for each in (model, compiled, Compiled(network()))]
    assert len({*known[:2]}) == 2
    compiled.load_state_dict(compiled.state_dict())
    with pytest.raises(ValueError, match="this model is compiled, and the state is of one that is"):
        compiled.load_state_dict(compiled.state_dict() | {"_extra_state": "plain"})


class TestInAnEvaluation:
    data = (some(12), torch.arange(12) % CLASSES)

    @pytest.mark.parametrize("only_accuracy", [True, False])
    @pytest.mark.parametrize("attack", ["grid-3x3x3", "s-pgd", "refine-20"])
    def test_it_is_found_what_the_model_itself_gives(
        self, attack: str, only_accuracy: bool
    ) -> None:
        compiler, model = Compilations(), network()
        compiled = Compiled(model, batch_size=BATCH, backend=compiler)
        asked: Any = {"attacks": [attack], "only_accuracy": only_accuracy, "batch_size": BATCH}
        found, plain = (evaluate(one, self.data, **asked) for one in (compiled, model))
        assert found.attacks[attack].correct.equal(plain.attacks[attack].correct)
        assert len(compiler.sizes) <= 4  # two, and with gradients two more
        if not only_accuracy:
            losses = [each.attacks[attack].worst_loss for each in (found, plain)]
            torch.testing.assert_close(losses[0], losses[1])

    def test_channels_last_is_seen_and_compiled_for_no_more_than_once(self) -> None:
        compiler, model = Compilations(), network()
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        compiled = Compiled(model, batch_size=BATCH, backend=compiler)
        images, labels = self.data  # of five, three poses fill a batch
        evaluate(compiled, (images[:5], labels[:5]), attacks=["grid-3x3x3"], batch_size=BATCH)
        assert sorted(compiler.sizes) == [4, 16]

    def test_a_model_in_half_precision_gets_what_it_takes(self) -> None:
        compiler, model = Compilations(), network().to(torch.bfloat16)
        compiled = Compiled(model, batch_size=BATCH, backend=compiler)
        for _ in range(2):
            found, plain = (
                evaluate(one, self.data, attacks=["rnd"], batch_size=BATCH)
                for one in (compiled, model)
            )
            assert found.natural_correct.equal(plain.natural_correct)
        assert compiler.sizes == [4]
        assert torch._dynamo.utils.counters["frames"]["total"] == 1  # none is traced in vain

    def test_where_images_do_not_fit_fewer_are_taken(self) -> None:
        model, room = network(), 9

        def compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            del inputs

            def run(*given: Any) -> Any:
                if any(isinstance(each, Tensor) and len(each) > room for each in given):
                    raise torch.OutOfMemoryError("CUDA out of memory")
                return graph.forward(*given)

            return run

        compiled = Compiled(model, batch_size=BATCH, backend=compiler)
        found, plain = (
            evaluate(one, self.data, attacks=["grid-3x3x3"], batch_size=BATCH)
            for one in (compiled, model)
        )
        one, other = (each.attacks["grid-3x3x3"].correct for each in (found, plain))
        assert one.equal(other)

    def test_its_state_is_not_that_of_the_model_as_it_is(self, tmp_path: Path) -> None:
        model, asked = network(), {"attacks": ["rnd"], "state": tmp_path / "state"}
        compiled = Compiled(model, backend="eager")
        found = evaluate(compiled, self.data, **asked)  # type: ignore[arg-type]
        again = evaluate(compiled, self.data, **asked)  # type: ignore[arg-type]
        assert again.natural_loss.equal(found.natural_loss)
        with pytest.raises(ValueError, match="state"):
            evaluate(model, self.data, **asked)  # type: ignore[arg-type]

    def test_weights_are_out_of_reach_meanwhile(self) -> None:
        model, reached = network(), list[bool]()
        weight = model[0].weight  # type: ignore[index]
        model.register_forward_hook(lambda *_: reached.append(weight.requires_grad))
        evaluate(model, self.data, attacks=["s-pgd"])
        assert not any(reached)
        assert all(each.requires_grad for each in model.parameters())

    def test_test_time_augmentation_of_any_model(self) -> None:
        model = tta(network(), 2)
        compiled = Compiled(model, batch_size=BATCH, backend="eager")
        found, plain = (
            evaluate(one, self.data, attacks=["grid-3x3x3"], batch_size=BATCH)
            for one in (compiled, model)
        )
        assert found.attacks["grid-3x3x3"].correct.equal(plain.attacks["grid-3x3x3"].correct)


def test_what_cannot_be_compiled_is_told() -> None:
    def compiler(*_: object) -> Any:
        raise RuntimeError("no such compiler\nat a long place")

    compiled = Compiled(network(), batch_size=4, backend=compiler)
    with pytest.raises(
        ValueError, match=r"cannot be compiled \(no such compiler\); evaluate it wi"
    ):
        compiled(some(4))


def test_a_compiler_that_imports_what_it_should_not_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder beside a model may be called as a library that the compiler looks for."""
    compiled = Compiled(network(), batch_size=4, backend="eager")

    def broken(_: Tensor) -> Tensor:
        raise AttributeError("module 'z3' has no attribute 'ExprRef'")

    monkeypatch.setattr(compiled, "_compiled", broken)
    with pytest.raises(ValueError, match=r"cannot be compiled \(module 'z3' has no .*\); evaluate"):
        compiled(some(4))


def test_lack_of_memory_while_it_is_compiled_is_one() -> None:
    def compiler(*_: object) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    compiled = Compiled(network(), batch_size=4, backend=compiler)
    with pytest.raises(RuntimeError, match="out of memory"):
        compiled(some(4))


def test_wrong_channels_are_explained_as_ever() -> None:
    compiled = Compiled(network(), batch_size=4, backend="eager")
    with pytest.raises(ValueError, match="takes images of 3 channels, but these have 1"):
        compiled(some(4, channels=1))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision_is_compiled_with_the_model(precision: Any) -> None:
    half = in_half_precision(network(), precision)
    compiled = Compiled(half, batch_size=BATCH, backend="aot_eager")
    with torch.no_grad():
        for count in (3, 16):
            found, plain = compiled(some(count)), half(some(count))
            assert found.dtype == plain.dtype
            torch.testing.assert_close(found, plain, rtol=0.02, atol=0.02)


def test_gradients_by_a_compiled_backward_pass() -> None:
    model = network().requires_grad_(False)
    images = [some(3).requires_grad_() for _ in range(2)]
    compiled = Compiled(model, batch_size=4, backend="aot_eager")
    for one, seen in zip((compiled, model), images, strict=True):
        one(seen).square().sum().backward()
    torch.testing.assert_close(images[0].grad, images[1].grad)


def test_as_pytorch_itself_compiles_it() -> None:
    """Some seconds: the real compiler."""
    model = network()
    with torch.no_grad():
        torch.testing.assert_close(Compiled(model, batch_size=4)(some(4)), model(some(4)))
