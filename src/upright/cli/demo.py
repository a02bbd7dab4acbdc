"""``upright demo``: the main job in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

__all__ = ["demo_command"]


def demo_command(*, out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo")) -> None:
    """Train four small classifiers, tip them over and compare: a few minutes on two cores.

    Args:
        out: Where the runs, a figure and a page to explore go, in place of those of before.
    """
    # Here, since no other command but report needs matplotlib, which takes a while to import.
    from upright.demo import main

    main(out)
