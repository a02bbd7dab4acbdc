"""The walks through the package: what counts as entered, and in which order."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from upright import PAPER, Pose, warp
from upright.seeds import seed_for

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import walks


def test_files_are_noted_in_the_order_of_entry_and_imports_are_not():
    with walks.Walk().watching() as walk:
        seed_for(0, "name", 0)
    assert list(walk.functions) == ["seeds.py"]
    assert walk.crossings == 0
    with walks.Walk().watching() as walk:
        warp(torch.rand(1, 1, 4, 4), Pose.zeros(1))
        seed_for(0, "name", 0)
    names = list(walk.functions)
    assert {"pose.py", "warp.py", "resample.py", "seeds.py"} <= set(names)
    assert names[-1] == "seeds.py"
    assert walk.crossings > 2
    PAPER.zeros(1)
    assert "space.py" not in walk.functions  # nobody watches any more


def test_a_cell_is_filled_by_the_paper_s_room_and_without_any_model():
    walk = walks.walk(walks.one_cell, "cpu")
    rooms = {name.partition("/")[0] for name in walk.functions}
    assert {"cli", "paper", "records.py"} <= rooms
    assert not {"models", "resample_kernels.py"} & rooms
    entered = {name for name in walk.functions if name.startswith("evaluation/")}
    # What its records were asked, with attacks as text.
    assert entered == {"evaluation/question.py", "evaluation/told.py"}
