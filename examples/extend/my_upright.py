"""The command `upright` with what the files beside this one add to it.

    python examples/extend/my_upright.py train "COS(rob, Wo-10)" --data arrows --model blurnet \
        --steps 200 --learning-rate 0.02 --no-flips --out runs/arrows
    python examples/extend/my_upright.py evaluate runs/arrows --data arrows --attack hill-20 \
        --space "rotate(20) squeeze vignette(0.4)"

A mirrored arrow points the other way: hence no flips.
"""

import arrows  # noqa: F401
import blurnet  # noqa: F401
import corners  # noqa: F401
import cosine  # noqa: F401
import hill_climb  # noqa: F401
import linear  # noqa: F401
import squeeze  # noqa: F401
import vignette  # noqa: F401

from upright.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
