"""Any text as a file name, and the names that people know: of runs, of the zoo, of figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import made_up_report as made_up
from upright.cli.options import folder_name
from upright.files import plain_name
from upright.report.saved import write_saved
from upright.train import Recipe
from upright.zoo import entry_name


@given(st.text() | st.text("./\\-:~*aλ", max_size=300))
def test_no_text_makes_a_path_or_a_hidden_file(text):
    name = plain_name(text)
    assert re.fullmatch(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?", name)
    assert len(name) <= 100
    assert plain_name(name) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cifar10", "cifar10"),
        ("npz:/data/my set.npz", "npz-data-my-set.npz"),
        ("x/../../../../escaped", "x-escaped"),
        ("..", ""),
        ("x" * 150 + "/last", "x" * 95 + "-last"),
    ],
)
def test_words_stay_and_what_parts_them_is_a_dash(text, name):
    assert plain_name(text) == name


@pytest.mark.parametrize(
    ("objective", "folder", "entry"),
    [
        ("std", "std-seed-0", "std"),
        ("std*", "std-star-seed-0", "std-star"),
        ("AT(rob, Wo-10)", "at-rob-wo-10-seed-0", "at-rob-wo10"),
        ("KL(rob, Wo-10; λ=0.5)", "kl-rob-wo-10-lambda-0.5-seed-0", "kl-rob-wo10-lambda-0.5"),
        ("KL-C(mix, S-PGD)", "kl-c-mix-s-pgd-seed-0", "kl-c-mix-spgd"),
        ("L2(nat, rnd×4)", "l2-nat-rndx4-seed-0", "l2-nat-rndx4"),
    ],
)
def test_runs_and_the_zoo_keep_their_names(objective, folder, entry):
    recipe = Recipe(objective=objective, data="cifar10")
    assert folder_name(str(recipe.objective), recipe.seed) == folder
    assert entry_name(recipe) == f"cifar10/{entry}"


def test_saved_models_that_look_alike_have_files_of_their_own(tmp_path):
    shown = made_up.shown()
    names = ("../runs/kl", "runs/kl", "runs/KL", "x" * 300 + "/kl")
    files = [write_saved(tmp_path, shown, made_up.model(shown, name)) for name in names]
    assert len(set(files)) == 4
    assert all(file.parent == tmp_path and file.is_file() for file in files)
    assert all(file.name.startswith("runs-kl-") for file in files[:3])
    assert all(len(file.name) <= 80 for file in files)
    assert Path(files[0]).suffix == ".safetensors"
