"""What a mean of networks mends: where it is right although members are not, and the other way.

    python benchmarks/members.py --mean runs/stronger/MEAN --members runs/stronger/{A,B,C} \
        --data cifar10 --json results/members/cifar10.json
    python benchmarks/leaderboard.py --markdown docs/leaderboard.md

Reads the states of evaluations that `stronger.py` and `upright reproduce` leave beside their runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from hardest_tables import table
from safetensors.torch import load_file
from torch import Tensor

from upright.files import write_whole


@dataclass(frozen=True)
class Members:
    """How many images some members get wrong under an attack, and of these the mean."""

    data: str
    attack: str
    wrong: list[int]
    """How many images are wrong for none of the members, for one of them, and so on to all."""
    wrong_for_mean: list[int]
    """Of each of these, how many are wrong for the mean."""

    def write(self, path: Path) -> None:
        write_whole(path, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @staticmethod
    def read(path: Path) -> Members:
        return Members(**json.loads(path.read_text()))


def compare(mean: Path, members: Sequence[Path], *, data: str, attack: str) -> Members:
    """Count images by how many members are wrong."""
    labels, by_mean = _fooled(mean, attack)
    answers = [_fooled(member, attack) for member in members]
    if not all(its.equal(labels) for its, _ in answers):
        raise SystemExit("these are evaluations of other images; name runs of one data set")
    votes = torch.stack([fooled for _, fooled in answers]).sum(0)
    classes = len(members) + 1
    return Members(
        *(data, attack),
        wrong=votes.bincount(minlength=classes).tolist(),
        wrong_for_mean=votes[by_mean].bincount(minlength=classes).tolist(),
    )


def _fooled(run: Path, attack: str) -> tuple[Tensor, Tensor]:
    """Labels, and which images are wrong at some pose."""
    name = f"images/{attack}/fooled"
    for path in run.glob("evaluation-*.safetensors"):
        arrays = load_file(path)
        if name in arrays:
            return arrays["images/labels"], arrays[name]
    raise SystemExit(f"{run} has no evaluation under {attack}; evaluate it first")


def sections(found: Iterable[Members]) -> dict[str, str]:
    """What the documentation shows, by the name of its section."""
    return {"members": "\n\n".join(map(_section, found))}


def _section(found: Members) -> str:
    of = len(found.wrong) - 1
    rows = [
        [f"{votes} of {of}", f"{images:,}", f"{mean:,}"]
        for votes, (images, mean) in enumerate(zip(found.wrong, found.wrong_for_mean, strict=True))
    ]
    total = ["in all", f"{sum(found.wrong):,}", f"{sum(found.wrong_for_mean):,}"]
    head = [f"`{found.data}`, `{found.attack}`: wrong for", "images", "of them wrong for the mean"]
    return table(head, [*rows, total], text=1, numbers=2)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add: Any = parser.add_argument
    add("--mean", type=Path, required=True, help="the folder of the mean's evaluation")
    add("--members", type=Path, nargs="+", required=True, help="the folders of its runs")
    add("--data", required=True, help="what the images are called")
    add("--attack", default="grid-775")
    add("--json", type=Path, required=True, help="write the counts here")
    options = parser.parse_args(arguments)
    asked = {"data": options.data, "attack": options.attack}
    found = compare(options.mean, options.members, **asked)
    found.write(options.json)
    print(_section(found))


if __name__ == "__main__":
    main()
