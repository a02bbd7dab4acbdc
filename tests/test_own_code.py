"""Code of a user's own is part of what was asked and of what was trained: edited, it is another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MethodType, ModuleType

import pytest
import torch
from torch import nn

from tiny_runs import colours, register_tiny, tiny_recipe
from upright.attacks import ATTACKS, GridSearch, RefiningClimb, SpatialPGD, attack_name
from upright.evaluation import Question
from upright.factories import digest_of_code, run_file
from upright.models import network, network_forms
from upright.models.registry import NETWORKS
from upright.objective import Objective
from upright.penalties import L2
from upright.registry import Registry
from upright.space import PAPER, Space
from upright.train import RunDirectory, train
from upright.train.network import is_registered_by_user
from upright.warp import warp

CODE = """
from dataclasses import dataclass
from upright.attacks import RandomSearch
from upright.families import Axis, OfPixels
from upright.families.base import family
from upright.penalties import L2

def strength():
    return 1.0

class Base(OfPixels):
    axes = (Axis("own_fog", "", 0.0, 0.5),)

    def apply(self, images, values):
        return images + strength() * values[..., 0]

class Fog(Base):
    name = "own-fog"

@dataclass(frozen=True)
class Search(RandomSearch):
    def __str__(self):
        return f"own-{self.tries}"

@dataclass(frozen=True)
class Distance(L2):
    pass

def build(width, *, classes, channels):
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))
"""
EDITED = CODE.replace("return 1.0", "return 2.0")


def module(folder: Path, code: str) -> ModuleType:
    (folder / "own.py").write_text(code)
    return run_file(str(folder / "own.py"))


def digests(code: ModuleType) -> dict[str, str]:
    """By each way in which the file gets into what is asked and trained."""
    space = Space(type(PAPER.chain)((code.Fog(),)))
    attack = code.Search(3)
    attack_name("own-K (as in own-3)", r"own-(\d+)")(lambda tries: code.Search(int(tries)))
    penalty = Objective(batch="nat", attack=GridSearch((1, 1, 3)), penalty=code.Distance())
    asked = Question(space=space, attacks={"own-3": attack}).for_record()
    return {
        "family": space.chain.code_digest,
        "families of a question": asked["code_of_families"],
        "attacks of a question": asked["code_of_attacks"],
        "attack of a state": str(Question(attacks={"own-3": attack}).for_state()["attacks"]),
        "objective's attack": tiny_recipe(objective="AT(rob, own-3)").objective_digest,
        "objective's penalty": digest_of_code(penalty),
        "jitter": tiny_recipe(jitter=space).families_digest,
        "within another": digest_of_code([{"inside": attack}]),
    }


def test_a_helper_beside_a_class_is_part_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))
    first, again = digests(module(tmp_path, CODE)), digests(module(tmp_path, CODE))
    edited = digests(module(tmp_path, EDITED))
    assert first == again
    for name in first:
        assert first[name] not in ("", edited[name]), name


def test_a_class_s_own_bases_in_other_files_are_too(tmp_path: Path) -> None:
    base = module(tmp_path, CODE).Base

    class Elsewhere(base):  # type: ignore[misc, valid-type]
        name = "own-elsewhere"

    before = digest_of_code(Elsewhere)
    (tmp_path / "own.py").write_text(EDITED)
    assert digest_of_code(Elsewhere) != before


def test_a_network_by_a_name_of_one_s_own_is_told_from_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network_forms()  # all of ours are there, and stay
    monkeypatch.setattr(NETWORKS, "_entries", dict(NETWORKS._entries))
    network("ownnet-W (as in ownnet-2)", r"ownnet-(\d+)")(module(tmp_path, CODE).build)
    for name in ("ownnet-2", "enlarged64:ownnet-2"):
        assert is_registered_by_user(name)
    for name in ("resnet32", "timm:resnet18", "own.py:build", "nothing"):
        assert not is_registered_by_user(name)


@dataclass(frozen=True)
class Plain:
    numbers: tuple[int, ...] = (1, 2)


def test_of_what_is_ours_python_s_or_installed_nothing_is_digested() -> None:
    ours = (L2(), RefiningClimb(20, SpatialPGD()), GridSearch((1, 1, 3)), PAPER.chain, L2)
    others = (1, "text", torch.zeros(3), nn.Linear(1, 1), nn.Linear, Path, warp, [2.0], {"a": 3})
    assert digest_of_code(*ours, *others) == ""
    assert digest_of_code(Plain()) == digest_of_code(Plain) != ""


def test_the_order_of_what_is_asked_does_not_matter(tmp_path: Path) -> None:
    code = module(tmp_path, CODE)
    assert digest_of_code(code.Fog, Plain) == digest_of_code(Plain, code.Fog)


def test_what_was_typed_in_is_known_by_its_name() -> None:
    space: dict[str, object] = {"__name__": "typed_in"}
    exec(CODE, space)
    fog, search = space["Fog"], space["Search"]
    assert "" != digest_of_code(fog) != digest_of_code(search) != ""


def test_two_files_of_one_name_are_two(tmp_path: Path) -> None:
    """Where Python looks up the file of a class, one must not take the other's place."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    first = module(tmp_path / "one", CODE).Fog
    before = digest_of_code(first)
    second = module(tmp_path / "two", EDITED).Fog
    assert digest_of_code(first) == before != digest_of_code(second)
    families: Registry[object] = Registry("family")
    families.register("own-fog")(first)
    with pytest.raises(ValueError, match="another family is called 'own-fog'"):
        families.register("own-fog")(second)


def test_what_holds_itself_or_is_called_in_part_is_looked_through(tmp_path: Path) -> None:
    code = module(tmp_path, CODE)
    holder = Plain()
    object.__setattr__(holder, "numbers", (holder,))
    assert digest_of_code(holder) == digest_of_code(Plain)
    search = code.Search(3)
    for each in (partial(code.build, "2"), {"a": [code.build]}, MethodType(code.build, search)):
        assert digest_of_code(each) == digest_of_code(code.build) != ""


def test_a_recipe_that_noted_other_code_is_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))
    register_tiny(monkeypatch)
    code = module(tmp_path, CODE)
    attack_name("own-K (as in own-3)", r"own-(\d+)")(lambda tries: code.Search(int(tries)))
    recipe = tiny_recipe(objective="AT(rob, own-3)", steps=1)
    train(recipe, tmp_path / "run", data=colours())
    stored = RunDirectory.open(tmp_path / "run").recipe
    assert stored.objective_digest == recipe.objective_digest
    (tmp_path / "own.py").write_text(EDITED)
    for folder, resume in (("run", True), ("another", False)):
        with pytest.raises(ValueError, match="the code of objective is not that of the recipe"):
            train(stored, tmp_path / folder, data=colours(), resume=resume)
    # What is left without it is a recipe like any other.
    assert replace(stored, objective="std*").objective_digest == ""
    without = replace(tiny_recipe(jitter=Space(type(PAPER.chain)((code.Fog(),)))), jitter=None)
    assert without == tiny_recipe()
