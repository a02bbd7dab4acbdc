"""The zoo: what is packed comes back, names never become other paths, damage is refused."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from every_network import each_kind
from tiny_zoo import NAME
from upright import zoo
from upright.checks import SuspiciousInput
from upright.data import load_data
from upright.models import build_network
from upright.paper import INVARIANCE, wanted
from upright.sources import load_model
from upright.train import Recipe, load_network
from upright.zoo import Entry, entry_name, pack, unpack
from upright.zoo.shelf import SHIPPED


def upper_half(weights: torch.Tensor) -> torch.Tensor:
    """Round to bfloat16, the upper half of a float32, by arithmetic on its bits; ties to even."""
    bits = weights.detach().numpy().view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return torch.from_numpy(rounded.astype(np.uint32).view(np.float32).copy())


def glyphs(count: int) -> torch.Tensor:
    return load_data("glyphs", limit=count).as_float()


class TestPacking:
    @each_kind
    def test_kernels_are_rounded_to_bfloat16_and_the_rest_stays_bit_for_bit(self, name):
        network = build_network(name, classes=4, channels=1).eval()
        expected = copy.deepcopy(network)
        for weight in expected.parameters():
            if weight.ndim > 1:
                weight.data = upper_half(weight)
        back = unpack(pack(network), name, classes=4, channels=1)
        assert not any(module.training for module in back.modules())
        tensors = back.state_dict()
        assert all(torch.equal(tensors[key], kept) for key, kept in expected.state_dict().items())
        images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            torch.testing.assert_close(back(images), expected(images), rtol=0, atol=0)

    def test_logits_move_by_no_more_than_the_rounding_of_kernels(self, small_run, entry):
        with torch.no_grad():
            before = load_network(small_run.path)(glyphs(16))
            after = entry.load()(glyphs(16))
        # Each of 8 layers may add 2**-9 of what it passes on; several times that is no rounding.
        assert 0 < (after - before).abs().max() < 8 * 2**-8 * before.abs().max()

    def test_a_resnet32_takes_less_than_a_megabyte(self):
        network = build_network("resnet32")
        floats = sum(tensor.numel() for tensor in network.state_dict().values())
        assert 2 * floats < len(pack(network)) < 1_000_000

    def test_packing_leaves_the_network_as_it_is(self):
        network = build_network("convnet0.25")
        before = copy.deepcopy(network.state_dict())
        pack(network)
        assert all(torch.equal(before[key], now) for key, now in network.state_dict().items())


class TestNames:
    @pytest.mark.parametrize(
        ("objective", "name"),
        [
            ("KL(rob, Wo-10)", "cifar10/kl-rob-wo10"),
            ("std", "cifar10/std"),
            ("std*", "cifar10/std-star"),
            ("KL-C(mix, S-PGD)", "cifar10/kl-c-mix-spgd"),
            ("L2(nat, rnd)", "cifar10/l2-nat-rnd"),
            ("KL(rob, Wo-10; λ=4)", "cifar10/kl-rob-wo10-lambda-4"),
        ],
    )
    def test_a_name_is_the_objective_in_small_letters(self, objective, name):
        assert entry_name(Recipe(objective=objective)) == name

    def test_all_methods_of_the_paper_have_names_of_their_own(self):
        asked = {
            pair for each in INVARIANCE.layouts for pair in product(each.datasets, each.methods)
        }
        found = {recipe for pair in asked for recipe in wanted(*pair)}
        recipes = {recipe for recipe in found if isinstance(recipe, Recipe)}  # no two together
        methods = {replace(recipe, batch=64) for recipe in recipes}
        names = {entry_name(recipe) for recipe in methods}
        assert len(names) == len(methods) > 50
        assert all(Entry(Path(), name).name == name for name in names)

    def test_a_data_set_in_a_file_makes_a_name_too(self):
        assert entry_name(Recipe(objective="std", data="npz:../My Files/x.npz")).count("/") == 1

    @pytest.mark.parametrize(
        "name",
        [
            *("../x", "../../x/y", "x", "x/y/z", "/etc/passwd", "x/..", "x/.y", "", "a/b\n", "A/b"),
            *("x\\y", "c:/x", "a/b\0", "~/x", f"a/{'b' * 300}"),
        ],
    )
    @pytest.mark.usefixtures("entry")
    def test_what_is_no_name_never_becomes_a_path(self, name):
        for ask in (zoo.load, zoo.card, partial(Entry, Path()), lambda n: load_model(f"zoo:{n}")):
            with pytest.raises(ValueError, match=r"is no name of a model|no model is called"):
                ask(name)


class TestTaking:
    @pytest.fixture
    def files(self, entry, tmp_path):
        """Both files as one gets them from elsewhere: called as somebody liked."""
        here = tmp_path / "downloads"
        here.mkdir()
        (here / "a.net.json").write_bytes(entry.card_file.read_bytes())
        (here / "a.net.safetensors").write_bytes(entry.weights_file.read_bytes())
        return here

    @pytest.mark.parametrize("ending", ["json", "safetensors"])
    def test_an_entry_is_taken_from_its_files(self, files, entry, tmp_path, upright, ending):
        file, into = files / f"a.net.{ending}", tmp_path / "mine"
        code, out, err = upright("zoo", "add", file, "--into", into)
        assert (code, err) == (0, "")
        assert str(into / f"{NAME}.json") in "".join(out.split("\n"))
        taken = Entry(into, NAME)
        assert taken.card() == entry.card()
        assert torch.equal(taken.load()(glyphs(4)), entry.load()(glyphs(4)))
        with pytest.raises(ValueError, match="is there already"):
            zoo.take(file, into)
        assert zoo.take(file, into, name="glyphs/other").card().name == "glyphs/other"

    def test_what_is_not_whole_is_not_taken(self, files, tmp_path):
        card, weights, into = files / "a.net.json", files / "a.net.safetensors", tmp_path / "mine"
        content = weights.read_bytes()
        weights.write_bytes(content[:-1])
        with pytest.raises(ValueError, match="is not the file of its card"):
            zoo.take(card, into)
        weights.unlink()
        with pytest.raises(ValueError, match=r"net\.safetensors is not there; .* put its weights"):
            zoo.take(card, into)
        weights.write_bytes(content)
        with pytest.raises(ValueError, match="is no name of a model"):
            zoo.take(weights, into, name="../x")
        card.write_bytes(b"{}")
        with pytest.raises(ValueError, match="json is damaged"):
            zoo.take(weights, into)
        (files / "net.pt").write_bytes(content)
        with pytest.raises(ValueError, match=r"is no entry: its card is a \.json"):
            zoo.take(files / "net.pt", into)
        assert not into.exists()

    def test_what_is_no_entry_is_told_what_it_is(self, small_run, tmp_path, upright):
        checkpoint = next((small_run.path / "checkpoints").glob("*.json"))
        for file in (checkpoint, small_run.path / "run.json"):
            with pytest.raises(ValueError, match=r"is of a run, .*; give its folder"):
                zoo.take(file, tmp_path)
        code, _, err = upright("zoo", "add", tmp_path / "typo.json", "--into", tmp_path)
        assert code == 2
        assert "is not there" in " ".join(err.split())

    @pytest.mark.parametrize("more", [("--attack", "wo-2"), ("--note", "mine"), ("--compile",)])
    def test_nothing_is_measured_of_it(self, files, tmp_path, upright, more):
        code, _, err = upright("zoo", "add", files / "a.net.json", "--into", tmp_path / "z", *more)
        assert code == 2
        assert "brings its numbers" in " ".join(err.split())


class TestShelf:
    def test_a_wrong_name_lists_what_there_is(self, entry, monkeypatch):
        with pytest.raises(ValueError, match=f"has no model 'glyphs/std': it has .*{NAME}"):
            zoo.load("glyphs/std")
        monkeypatch.setattr("upright.zoo.shelf.SHIPPED", entry.folder / "nowhere")
        monkeypatch.delenv("UPRIGHT_ZOO")
        assert zoo.names() == ()
        with pytest.raises(ValueError, match="there is none in this installation"):
            zoo.load(NAME)

    def test_of_two_entries_of_one_name_the_one_in_the_earlier_folder_counts(
        self, entry, tmp_path, monkeypatch
    ):
        first = tmp_path / "first"
        card = replace(entry.card(), note="the first")
        Entry(first, NAME).write(card, entry.weights_file.read_bytes())
        folders = [first, tmp_path / "not there", entry.folder]
        monkeypatch.setenv("UPRIGHT_ZOO", os.pathsep.join(map(str, folders)))
        with pytest.warns(SuspiciousInput, match="not there, which is no folder"):
            found, card, names = zoo.folders(), zoo.card(NAME), zoo.names()
        assert found == (*folders, SHIPPED)
        assert card.note == "the first"
        assert names.count(NAME) == 1
        monkeypatch.setenv("UPRIGHT_ZOO", str(entry.folder))
        assert zoo.card(NAME).note == ""

    def test_other_files_in_a_folder_are_no_entries(self, entry):
        for name in ("notes.json", "glyphs/A Note.json", "glyphs/x.safetensors", "a/b/c.json"):
            file = entry.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        assert Entry.all_in(entry.folder) == (entry,)

    def test_a_network_comes_in_evaluation_mode_and_on_the_device(self, entry):
        network = zoo.load(NAME, device="meta")
        assert not network.training
        assert {weight.device.type for weight in network.parameters()} == {"meta"}
        averaged = load_model(f"tta-grid-1x1x1:zoo:{NAME}")
        with torch.no_grad():
            torch.testing.assert_close(averaged(glyphs(2)), entry.load()(glyphs(2)))


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(bytes(content))


class TestDamage:
    @pytest.mark.parametrize("place", [0, 100, -1])
    def test_weights_of_another_digest_are_refused(self, entry, place):
        flip(entry.weights_file, place)
        with pytest.raises(ValueError, match=r"is not the file of its card; install upright again"):
            zoo.load(NAME)

    def test_an_entry_without_its_weights_says_what_to_do(self, entry):
        entry.weights_file.unlink()
        with pytest.raises(ValueError, match=r"safetensors cannot be read; install upright again"):
            zoo.load(NAME)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"version": 2}, "of version 2, but this program reads 1"),
            ({"classes": []}, "0 classes"),
            ({"classes": [1, 2]}, "must be text"),
            ({"classes": None}, "NoneType"),
            ({"image_shape": [3, 32]}, r"shape \(3, 32\)"),
            ({"image_shape": [3, 32, 10**9]}, "shape"),
            ({"image_shape": "abc"}, "shape"),
            ({"note": None}, "must be text"),
            ({"records": []}, "nothing was measured"),
            ({"records": [{"version": 1}]}, "Record without"),
        ],
    )
    def test_a_card_that_cannot_be_is_refused(self, entry, change, reason):
        card = json.loads(entry.card_file.read_bytes())
        entry.card_file.write_text(json.dumps(card | change))
        with pytest.raises(
            ValueError, match=rf"json is damaged \(.*{reason}.*\); install"
        ) as caught:
            zoo.card(NAME)
        assert type(caught.value) is ValueError
        assert "\n" not in str(caught.value)

    def test_a_card_of_a_penalty_that_is_not_here_is_not_called_damaged(self, entry):
        content = entry.card_file.read_bytes()
        entry.card_file.write_bytes(content.replace(b"KL(rob, Wo-2)", b"Hinge(rob, Wo-2)"))
        with pytest.raises(ValueError, match=r"json: cannot read .* import the file that names it"):
            zoo.card(NAME)

    def test_a_card_of_a_family_that_is_not_here_is_not_called_damaged(self, entry):
        content = entry.card_file.read_bytes()
        entry.card_file.write_bytes(content.replace(b"shift(3px) rotate", b"wave(3px) rotate"))
        with pytest.raises(ValueError, match="json: no family is called 'wave'; there are"):
            zoo.card(NAME)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b"KL(rob, Wo-2)", b"LocNet(black)"),
            (b"KL(rob, Wo-2)", b"KL(rob"),
            (b'"shift(3px) rotate(30)"', b'"shift(3miles) rotate(30)"'),
            (b'"shift(3px) rotate(30)"', b'{"max_dx": "3"}'),
            (b'"split": "test"', b'"split": 1'),
            (b'"nat": 0.', b'"nat": 7.'),
            (b'"nat": 0.', b'"nat": NaN, "x": 0.'),
            (b"{", b"[" * 100_000),
            (b'"records"', b'"\xff"'),
        ],
    )
    def test_a_card_that_says_what_cannot_be_is_refused(self, entry, old, new):
        content = entry.card_file.read_bytes()
        assert old in content
        entry.card_file.write_bytes(content.replace(old, new))
        with pytest.raises(ValueError, match=r"json is damaged \(.+\); install") as caught:
            zoo.card(NAME)
        assert type(caught.value) is ValueError
        assert "\n" not in str(caught.value)

    def test_a_number_that_no_float_holds_is_refused(self, entry):
        card = json.loads(entry.card_file.read_bytes())
        card["records"][1]["train_seconds"] = 10**400
        entry.card_file.write_text(json.dumps(card))
        with pytest.raises(ValueError, match="json is damaged"):
            zoo.card(NAME)

    def test_records_of_several_recipes_are_refused(self, entry):
        card = entry.card()
        other = replace(card.records[1], recipe=card.records[1].recipe | {"seed": 5})
        with pytest.raises(ValueError, match="several recipes"):
            replace(card, records=(card.records[0], other))

    @pytest.mark.parametrize(
        ("old", "new"), [("resnet8x0.25", "resnet8"), ("resnet8x0.25", "x"), ('"9"', '"9", "10"')]
    )
    def test_weights_of_another_network_are_refused(self, entry, old, new):
        text = entry.card_file.read_text()
        entry.card_file.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match="does not fit its card") as caught:
            zoo.load(NAME)
        assert "\n" not in str(caught.value)
