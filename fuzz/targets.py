"""Everything that reads input, by name."""

from __future__ import annotations

import datafiles
import guarded
import modelfiles
import results
import savedfiles
import texts
import zoofiles
from guard import Target

__all__ = ["TARGETS"]

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *texts.TARGETS,
        *results.TARGETS,
        *savedfiles.TARGETS,
        *datafiles.TARGETS,
        *modelfiles.TARGETS,
        *zoofiles.TARGETS,
        *guarded.TARGETS,
    )
}
