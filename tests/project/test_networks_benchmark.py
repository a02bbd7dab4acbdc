"""The table of specialised networks runs at a tiny size, and continues where it was stopped."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def networks() -> Any:
    return importlib.import_module("networks")


def job(networks: Any, folder: Path, steps: int = 2) -> Any:
    recipe = replace(networks._recipe("resnet8x0.25", "std*", steps), train_images=64)
    return networks.Job(recipe, folder, 4)


def test_a_job_is_not_done_twice(
    networks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = networks.outcome_of(job(networks, tmp_path))
    assert 0 <= first.grid <= first.natural <= 1
    assert first.parameters > 1000
    monkeypatch.setattr(networks, "train", None)
    assert networks.outcome_of(job(networks, tmp_path)) == first


def test_the_table_has_a_line_for_each_network(
    networks: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def done(jobs: list[Any], _workers: int) -> dict[Path, Any]:
        return {
            each.folder: networks.Outcome(
                each.recipe.model, str(each.recipe.objective), 1234, 0.5, 0.25, 1.0
            )
            for each in jobs
        }

    monkeypatch.setattr(networks, "_run", done)
    networks.main(["--out", str(tmp_path), "--networks", "stn10x0.25", "etn10x0.25"])
    lines = capsys.readouterr().out.splitlines()
    for name in ("stn10x0.25", "etn10x0.25"):
        (line,) = (line for line in lines if name in line)
        assert line.count("50.0 / 25.0") == 3
    assert any("std*" in line and "KL(rob, Wo-10; λ=1)" in line for line in lines)


def test_a_wrong_network_is_told_before_anything_is_trained(networks: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no network is called 'resnet9000x'"):
        networks.main(["--out", str(tmp_path), "--networks", "resnet8", "resnet9000x"])
    assert not list(tmp_path.iterdir())
