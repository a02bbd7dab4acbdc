"""Several models as one: the mean of their logits, whatever kinds of models they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from upright import Preprocess, ensemble, evaluate, tta
from upright.composed import each_network
from upright.identity import NOBODY, Identity
from upright.models import build_network, in_half_precision
from upright.sources import load_model
from upright.sources.pretrained import Pretrained
from upright.sources.registry import SOURCES, load_pretrained, model_source


def network(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_network("resnet8x0.25").eval()


def noise(count: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(count))


def test_it_is_the_mean_of_the_logits() -> None:
    first, second, images = network(1), network(2), noise(3)
    found = ensemble(first, second, lambda seen: {"logits": first(seen)})(images)
    torch.testing.assert_close(found, (2 * first(images) + second(images)) / 3)
    torch.testing.assert_close(ensemble(first)(images), first(images))


def test_its_weights_are_those_of_all_members() -> None:
    first, second = network(1), network(2)
    both = ensemble(first, second)
    assert sum(1 for _ in both.parameters()) == 2 * sum(1 for _ in first.parameters())
    assert Identity.of(both) != Identity.of(ensemble(second, first))
    assert not both.training
    assert ensemble(first, network(2).train()).training


def test_each_member_has_its_own_half_precision() -> None:
    first, second, images = network(1), network(2), noise(3)
    half = each_network(ensemble(first, second), lambda net: in_half_precision(net, "bfloat16"))
    by_hand = [in_half_precision(net, "bfloat16")(images).float() for net in (first, second)]
    assert half(images).dtype == torch.float32
    torch.testing.assert_close(half(images), torch.stack(by_hand).mean(0))


def test_it_is_evaluated_as_any_model() -> None:
    data = (noise(6), torch.arange(6) % 3)
    found = evaluate(ensemble(network(1), network(2)), data, attacks=["grid-2x2x3", "s-pgd"])
    assert set(found.attacks) == {"grid-2x2x3", "s-pgd"}


def test_members_of_other_classes_lists_and_none_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="the same classes, but answer with 10 and 4"):
        ensemble(network(1), lambda images: torch.zeros(len(images), 4))(noise(1))
    for models in ((), ([network(1), network(2)],)):
        with pytest.raises(ValueError, match="one by one"):
            ensemble(*models)  # type: ignore[arg-type]


LOOKED_INTO = {
    "exported": lambda model, images: torch.export.export(model, (images,)).module()(images),
    "traced": lambda model, images: torch.jit.trace(model, images)(images),
    "mapped": lambda model, images: torch.func.vmap(lambda each: model(each[None])[0])(images),
    "compiled": lambda model, images: torch.compile(model, fullgraph=True, backend="eager")(images),
}


@pytest.mark.parametrize("way", LOOKED_INTO)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_it_can_be_looked_into_before_it_was_asked(way: str) -> None:
    """No value is there to say whether members answer with probabilities."""
    first, second, images = network(1), network(2), noise(3)
    found = LOOKED_INTO[way](ensemble(first, second), images)
    torch.testing.assert_close(found, ensemble(first, second)(images))


def test_members_may_want_images_in_other_dtypes() -> None:
    first, second, images = network(1), network(2), noise(3)
    found = ensemble(first, second.double())(images)
    torch.testing.assert_close(found.float(), ensemble(first, second.float())(images))


def test_of_functions_among_the_members_nothing_is_known() -> None:
    known, functions = network(1), (torch.sin, torch.cos)
    mixed = [ensemble(known, lambda images, do=do: do(known(images))) for do in functions]
    assert [Identity.of(each) for each in mixed] == [NOBODY, NOBODY]
    averaged = [tta(lambda images, do=do: do(known(images)), "mirror") for do in functions]
    assert [Identity.of(each) for each in averaged] == [NOBODY, NOBODY]


def fake_source(monkeypatch: pytest.MonkeyPatch, **made: Pretrained) -> None:
    monkeypatch.setattr(SOURCES, "_entries", dict(SOURCES._entries))

    @model_source("fake:NAME", r"fake:(\w+)", prefix=True)
    def load(name: str, *, device: torch.device) -> Pretrained:
        del device
        return made[name]


def test_what_is_told_of_preprocessing_is_told_of_each_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, told = Preprocess(mean=(0.2,), std=(2.0,)), Preprocess(mean=(0.5,), std=(0.5,))
    fake_source(monkeypatch, a=Pretrained(network(1), own), b=Pretrained(network(2)))
    images = noise(2)
    for preprocess in (None, told):
        alone = [load_model(f"fake:{name}", preprocess=preprocess)(images) for name in "ab"]
        both = load_model("mean:fake:a, fake:b", preprocess=preprocess)
        torch.testing.assert_close(both(images), torch.stack(alone).mean(0))
        mirrored = load_model("tta-mirror:mean:fake:a,fake:b", preprocess=preprocess)
        seen = (both(images) + both(images.flip(-1))) / 2
        torch.testing.assert_close(mirrored(images), seen)


def test_names_and_sizes_are_those_of_whichever_member_has_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small, large = (Preprocess(resize=side, center_crop=side) for side in (24, 32))
    fake_source(
        monkeypatch,
        plain=Pretrained(network(1)),
        named=Pretrained(network(1), small, ("cat", "dog")),
        turned=Pretrained(network(1), small, ("dog", "cat")),
        large=Pretrained(network(1), large, ("cat", "dog")),
    )
    for order in ("plain,fake:named", "named,fake:plain"):
        found = load_pretrained(f"mean:fake:{order}")
        assert (found.classes, found.preprocess) == (("cat", "dog"), small)
    with pytest.raises(ValueError, match="other classes, or in another order"):
        load_pretrained("mean:fake:plain,fake:named,fake:turned")
    with pytest.raises(ValueError, match="images of several sizes"):
        load_pretrained("mean:fake:named,fake:large")


@pytest.mark.parametrize("name", ["mean:zoo:cifar10/std", "mean:a.py:make,", "mean:,"])
def test_a_mean_of_one_is_told(name: str) -> None:
    with pytest.raises(ValueError, match="name two models or more, with commas"):
        load_model(name)


def test_models_by_name_are_one_by_their_mean() -> None:
    names = ("zoo:cifar10/std", "zoo:cifar10/std-star")
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    by_hand = sum(load_model(name)(images) for name in names) / 2
    torch.testing.assert_close(load_model(f"mean:{','.join(names)}")(images), by_hand)
    mirrored = load_model(f"tta-mirror:mean:{','.join(names)}")
    again = load_model(f"mean:tta-mirror:{names[0]},tta-mirror:{names[1]}")
    torch.testing.assert_close(mirrored(images), again(images))


def test_names_of_models_with_other_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="have other classes"):
        load_model("mean:zoo:cifar10/std,zoo:svhn/std-star")
