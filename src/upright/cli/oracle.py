"""``upright oracle``: the paper's STN+ trick, which is no defence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from upright.attacks import usual_grid
from upright.checks import check_at_least_1
from upright.cli.messages import is_watched
from upright.cli.options import attack_help, data_help, parse_device, parse_space, writable
from upright.cli.outputs import Output, deliver, printing
from upright.cli.table import roomy_console, show_evaluation
from upright.evaluation import Precision, Question
from upright.measure import measure_oracle
from upright.origin import commit
from upright.paper import with_reported
from upright.record_files import append

__all__ = ["oracle_command"]


def oracle_command(
    locnet: Positional[Annotated[Path, arg(metavar="LOCNET")]],
    classifier: Positional[Annotated[str, arg(metavar="CLASSIFIER")]],
    *,
    data: Annotated[str, arg(metavar="DATA", help=data_help())],
    attack: Annotated[
        str | None,
        arg(
            metavar="NAME",
            help=attack_help(
                "How to search for the worst pose, with the LocNet's fill:",
                "Without, a grid over the space, of the paper's grid-775.",
            ),
            help_behavior_hint="",
        ),
    ] = None,
    space: Annotated[str | None, arg(metavar="SPACE", help_behavior_hint="")] = None,
    max_translation: Annotated[str | None, arg(metavar="LIMIT", help_behavior_hint="")] = None,
    max_rotation: Annotated[float | None, arg(metavar="DEGREES", help_behavior_hint="")] = None,
    view: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None,
    limit: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None,
    precision: Precision = "float32",
    device: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    record: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None,
) -> None:
    """Measure the STN+ trick, an oracle that reads the attack's own pose; it is no defence.

    For the defence, evaluate the model stn-plus:LOCNET,CLASSIFIER.

    Args:
        locnet: Folder of a run of `upright train "LocNet(black)"`.
        classifier: Any model that `upright evaluate` takes.
        data: The images, see ``load_data``.
        attack: How to search for the worst pose, see ``parse_attack``.
        space: What images are changed by, as in "shift(3px) rotate(30)", the paper's; of the
            families that the LocNet finds.
        max_translation: Farthest shift along each axis, in pixels (3) or of the size (10%).
        max_rotation: Largest rotation either way, in degrees.
        view: Let both see the central N x N pixels of moved images; without, as the LocNet was
            trained.
        limit: Use the first N test images only.
        precision: Of the two networks.
        device: Where to compute, such as cpu or cuda; a GPU where there is one.
        record: Add a line about the two runs to this file, as of an oracle.
    """
    commit()  # what is edited from now on is not what evaluates
    box = parse_space(space, max_translation, max_rotation)
    check_at_least_1(view=view)
    writable(record)
    found = measure_oracle(
        locnet,
        classifier,
        data,
        Question.of(
            [attack or usual_grid(box)], space=box, view=view, limit=limit, precision=precision
        ),
        device=parse_device(device),
        recorded=record is not None,
        progress=is_watched(),
    )
    evaluation = found.evaluation
    title = f"stn-plus:{locnet},{classifier} on {data}: {len(evaluation)} images"
    outputs = [
        printing(
            lambda: show_evaluation(evaluation, title=title, space=box, console=roomy_console())
        )
    ]
    if record is not None:
        outputs.append(
            Output(
                f"--record {record}",
                lambda: append(record, with_reported(found.record, also_called=data)),
            )
        )
    deliver(outputs)
