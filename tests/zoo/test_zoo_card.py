"""Cards of the zoo: their numbers hold, their text follows, and what is shipped is whole."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from made_up_records import EVALUATION, made_up_record
from upright import evaluate, zoo
from upright.cli import main
from upright.data import load_data
from upright.data.known import KNOWN
from upright.measure import add_to_zoo
from upright.models import build_network
from upright.paper import INVARIANCE, reported
from upright.paper.cells import evaluated_as_in_the_paper
from upright.train import Recipe, RunDirectory, train
from upright.zoo import Card, Entry, entry_name, pack, to_markdown
from upright.zoo.card import read_card, write_card
from upright.zoo.shelf import SHIPPED


def card_of(recipe: Recipe, **changes: object) -> Card:
    return Card(
        name=entry_name(recipe),
        classes=KNOWN["cifar10"].classes,
        image_shape=(3, 32, 32),
        train_digest="00",
        weights_digest="00",
        records=(made_up_record(recipe, {"nat": 0.9125, "grid-775": 0.775}, **changes),),
    )


class TestCard:
    def test_its_numbers_are_those_of_the_packed_weights(self, entry):
        data, card = load_data("glyphs", limit=12), zoo.card(entry.name)
        again = evaluate(entry.load(), data, attacks=["grid-3x3x3", "s-pgd"], only_accuracy=True)
        assert {metric: record.measured[metric] for metric, record in card.measured.items()} == {
            "nat": again.natural_accuracy,
            "grid-3x3x3": again.attacks["grid-3x3x3"].accuracy,
            "s-pgd": again.attacks["s-pgd"].accuracy,
        }
        assert {record.images for record in card.records} == {12}

    def test_it_has_the_run_s_recipe_and_data(self, small_run, entry):
        card = entry.card()
        assert card.recipe == small_run.recipe
        assert card.classes == tuple("0123456789")
        assert card.image_shape == (3, 32, 32)
        assert card.train_digest == load_data("glyphs", split="train", limit=32).digest()
        assert card.records[0].train_seconds > 0

    def test_it_is_read_as_it_was_written(self, entry):
        card = entry.card()
        assert read_card(card.name, write_card(card)) == card

    def test_what_two_records_have_the_first_tells(self, entry):
        first, second = entry.card().records
        assert ("nat" in first.measured, "nat" in second.measured) == (True, True)
        other = replace(second, measured={"nat": 0.0, "s-pgd": 0.0})
        assert replace(entry.card(), records=(first, other)).measured["nat"] is first

    def test_rounded_weights_fill_no_cell_of_the_paper(self, entry):
        assert evaluated_as_in_the_paper(INVARIANCE, EVALUATION)
        asked = entry.card().records[0].evaluation
        assert not evaluated_as_in_the_paper(INVARIANCE, asked)
        assert evaluated_as_in_the_paper(
            INVARIANCE, {k: v for k, v in asked.items() if k != "weights"}
        )


class TestText:
    def test_it_tells_the_numbers_with_the_paper_s(self):
        recipe = Recipe(objective="KL(rob, Wo-10)")
        paper = {
            name: reported("cifar10", str(recipe.objective), name) for name in ("nat", "grid-775")
        }
        text = to_markdown(card_of(recipe, reported=paper))
        assert re.search(r"\| nat \| 91\.25 \| 90\.41( ± \d\.\d\d)? \| 10,000 \|", text)
        assert re.search(r"\| grid-775 \| 77\.50 \| 77\.47( ± \d\.\d\d)? \| 10,000 \|", text)
        assert "`KL(rob, Wo-10)` on `cifar10`" in text
        assert "| λ | 8.0 |" in text
        assert "shift by at most 3 px, rotate by at most 30 degrees" in text
        assert "airplane, automobile" in text
        assert "Images of 32 x 32 pixels" in text
        assert "of seed 0" in text
        assert "Not all images" not in text

    def test_it_tells_what_holds_for_some_models_only(self):
        std = to_markdown(card_of(Recipe(objective="std")))
        assert "Trained without rotations" in std
        assert "| λ |" not in std
        some = to_markdown(card_of(Recipe(), evaluation={"limit": 10_000}))
        assert "Not all images were measured" in some
        noted = replace(card_of(Recipe()), note="The best of three seeds.")
        assert "\n\nThe best of three seeds.\n\n" in to_markdown(noted)
        rows = ("teacher", "jitter", "cutout", "held_out", "families_digest")
        taught = Recipe(teacher="runs/large", jitter="hue(5)", cutout=8, cosine=True)
        added = to_markdown(card_of(taught))
        assert not any(f"| {row}" in some for row in rows)
        for row in ("teacher | runs/large", "teacher_share | 1.0", "jitter | hue(5)", "cutout | 8"):
            assert f"\n| {row} |" in added
        for text in (some, added):
            assert "\n| optimizer | sgd |" in text
        assert ("| drops |" in some, "| drops |" in added) == (True, False)
        many = replace(card_of(Recipe()), classes=tuple(map(str, range(100))))
        assert "100 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 90 more." in to_markdown(many)


class TestAdding:
    def test_an_entry_that_is_there_is_not_written_over(self, small_run, entry):
        before = entry.card_file.read_bytes(), entry.weights_file.read_bytes()
        with pytest.raises(ValueError, match="is there already; remove it, or choose another name"):
            add_to_zoo(small_run.path, entry.folder, limit=2)
        assert (entry.card_file.read_bytes(), entry.weights_file.read_bytes()) == before

    def test_what_fails_leaves_no_entry(self, small_run, tmp_path):
        for options in ({"attacks": ("no-such-attack",)}, {"name": "../x"}):
            with pytest.raises(ValueError, match=r"no-such-attack|is no name"):
                add_to_zoo(small_run.path, tmp_path / "zoo", limit=2, **options)
        assert not (tmp_path / "zoo").exists()

    def test_only_a_finished_classifier_goes_in(self, small_run, tmp_path):
        recipe = Recipe(
            objective="LocNet(black)", data="glyphs", train_images=8, model="convnet0.25", steps=1
        )
        train(replace(recipe, batch=4), tmp_path / "locnet")
        with pytest.raises(ValueError, match="is a LocNet"):
            add_to_zoo(tmp_path / "locnet", tmp_path / "zoo")
        unfinished = RunDirectory.create(
            tmp_path / "stopped", small_run.recipe, classes=("a",), channels=3, resume=False
        )
        for path, message in ((unfinished.path, "at step 0 of 20"), (tmp_path, "is not a run")):
            with pytest.raises(ValueError, match=message):
                add_to_zoo(path, tmp_path / "zoo")


class TestTerms:
    def test_a_card_without_terms_says_that_they_are_not_known(self):
        """As those have that were written before, and those of data of one's own."""
        card = card_of(Recipe(objective="std"))
        content = json.loads(write_card(card))
        del content["data_terms"]
        old = read_card(card.name, json.dumps(content).encode())
        assert old == card
        assert "allow is not known here: ask where they come from" in to_markdown(old)

    def test_svhn_is_not_for_commercial_use(self, capsys):
        assert main(["zoo", "show", "svhn/std-star"]) == 0
        assert "SVHN is for non-commercial use only" in capsys.readouterr().out

    def test_terms_that_are_no_text_are_refused(self):
        with pytest.raises(ValueError, match="the note and the terms must be text"):
            replace(card_of(Recipe(objective="std")), data_terms=3)

    def test_the_notice_names_what_every_shipped_network_was_made_from(self):
        words = " ".join((Path(__file__).parents[2] / "NOTICE").read_text().split())
        for folder in {entry.card_file.parent.name for entry in Entry.all_in(SHIPPED)}:
            assert f"entries/{folder}: " in words
            assert KNOWN[folder].page in words


def check_shipped(entry: Entry) -> None:
    """What has to hold for every entry that comes with the package."""
    card = entry.card()
    assert isinstance(entry.load(), nn.Module)
    assert entry.weights_file.stat().st_size < 10_000_000
    known = KNOWN[entry.name.partition("/")[0]]
    assert card.classes == known.classes
    assert card.data_terms == known.terms != ""
    assert known.terms in to_markdown(card)
    assert set(card.measured) >= {"nat", "grid-775"}
    for record in card.records:
        assert record.dataset == card.recipe.data == known.name
        assert record.images == known.counts["test"]
        usual = known.variants[0].digests
        assert record.data_digest == {name: usual[name] for name in ("test_images", "test_labels")}
        assert record.commit is not None
        assert not record.commit.endswith("+dirty")
        assert record.evaluation["weights"] == "bfloat16"
    assert card.name in to_markdown(card)


@pytest.mark.parametrize("entry", Entry.all_in(SHIPPED), ids=lambda entry: entry.name)
def test_what_is_shipped_is_whole_and_was_measured_on_all_of_the_known_test_images(entry):
    check_shipped(entry)


def test_the_page_of_the_zoo_lists_what_is_shipped_with_the_numbers_of_the_cards():
    page = (Path(__file__).parents[2] / "docs" / "zoo.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| `[a-z0-9]+/", line)]
    expected = set()
    for shipped in Entry.all_in(SHIPPED):
        card = shipped.card()
        shown = [f"{100 * card.measured[m].measured[m]:.2f}" for m in ("nat", "grid-775")]
        expected.add(f"| `{card.name}` | `{card.recipe.objective}` | {' | '.join(shown)} |")
    assert set(rows) == expected


def test_the_check_of_what_is_shipped_sees_what_is_wrong(entry):
    with pytest.raises(KeyError, match="glyphs"):
        check_shipped(entry)
    weights = pack(build_network("resnet8x0.25"))
    whole = replace(
        card_of(Recipe(objective="std", model="resnet8x0.25"), evaluation={"weights": "bfloat16"}),
        weights_digest=hashlib.sha256(weights).hexdigest(),
        data_terms=KNOWN["cifar10"].terms,
    )
    shipped = Entry(entry.folder, "cifar10/std")
    shipped.write(whole, weights)
    assert Entry.all_in(entry.folder) == (shipped, entry)
    check_shipped(shipped)
    for change in ({"images": 9_999}, {"commit": "0123+dirty"}, {"data_digest": {}}):
        record = replace(whole.records[0], **change)
        shipped.card_file.write_bytes(write_card(replace(whole, records=(record,))))
        with pytest.raises(AssertionError):
            check_shipped(shipped)
