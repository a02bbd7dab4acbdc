"""``upright demo``: the main job in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from upright.cli.options import parse_space
from upright.space import PAPER

__all__ = ["demo_command"]


def demo_command(
    *,
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo"),
    space: Annotated[str, arg(metavar="SPACE")] = str(PAPER),
) -> None:
    """Train four small classifiers, tip them over and compare: a few minutes on two cores.

    Args:
        out: Where the runs, a figure and a page to explore go, in place of those of before.
        space: What images are changed by; `upright families` lists what there is.
    """
    # Here, since no other command but report needs matplotlib, which takes a while to import.
    from upright.demo import main

    main(out, space=parse_space(space, None, None))
