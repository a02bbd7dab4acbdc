"""Several models as one: the mean of their logits, whatever kinds of models they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from upright import ensemble, evaluate
from upright.evaluation.composed import each_network
from upright.identity import Identity
from upright.models import build_network, in_half_precision
from upright.sources import load_model


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


def test_members_of_other_classes_and_none_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="the same classes, but answer with 10 and 4"):
        ensemble(network(1), lambda images: torch.zeros(len(images), 4))(noise(1))
    with pytest.raises(ValueError, match="at least one"):
        ensemble()


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
