"""``upright oracle``: the paper's STN+ trick, which is no defence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from upright.cli.options import parse_device, parse_space
from upright.data import load_data
from upright.evaluation import ORACLE, OracleResult, oracle
from upright.sources import load_locator, load_model

__all__ = ["oracle_command"]


def oracle_command(
    locnet: Positional[Annotated[Path, arg(metavar="LOCNET")]],
    classifier: Positional[Annotated[str, arg(metavar="CLASSIFIER")]],
    *,
    data: Annotated[str, arg(metavar="DATA")],
    attack: Annotated[str, arg(metavar="NAME")] = "grid-775",
    max_translation: Annotated[str, arg(metavar="LIMIT")] = "3",
    max_rotation: Annotated[float, arg(metavar="DEGREES")] = 30.0,
    limit: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None,
    device: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
) -> None:
    """Measure the STN+ trick, an oracle that reads the attack's own pose; it is no defence.

    For the defence, evaluate the model stn-plus:LOCNET,CLASSIFIER.

    Args:
        locnet: Folder of a run of `upright train "LocNet(black)"`.
        classifier: Any model that `upright evaluate` takes.
        data: glyphs, npz:FILE, folder:DIR, or another data set by name.
        attack: A grid, wo-10 or rnd.
        max_translation: Farthest shift along each axis, in pixels (3) or of the size (10%).
        max_rotation: Largest rotation either way, in degrees.
        limit: Use the first N test images only.
        device: Where to compute, such as cpu or cuda; a GPU where there is one.
    """
    place = parse_device(device)
    locator, model = load_locator(locnet).to(place), load_model(classifier, device=place)
    images = load_data(data, split="test", limit=limit)
    result = oracle(
        locator,
        model,
        images.as_float().to(place),
        images.labels,
        attack=attack,
        space=parse_space(max_translation, max_rotation),
        fill=locator.fill,
    )
    Console().print(_table(result, f"stn-plus:{locnet},{classifier} on {data}"))


def _table(result: OracleResult, title: str) -> Table:
    table = Table(title=Text(f"ORACLE {title}: {len(result.correct)} images"), caption=ORACLE)
    for heading in ("attack", "accuracy %", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "attack" else "right")
    for name, accuracy, interval in (
        ("natural", result.natural_accuracy, result.natural_interval),
        (result.attack, result.accuracy, result.interval),
    ):
        limits = f"{100 * interval.low:.2f} to {100 * interval.high:.2f}"
        table.add_row(Text(f"{name} (oracle)"), f"{100 * accuracy:.2f}", limits)
    return table
