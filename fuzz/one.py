"""Fuzz one target, guided by coverage, until its time is over; ``run.py`` calls this.

python fuzz/one.py TARGET FOLDER SECONDS
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris
import torch

with atheris.instrument_imports(include=["upright"]):
    from guard import attempt, warm_up
    from targets import TARGETS

MOST_BYTES = 1 << 16


def main() -> None:
    name, folder, seconds = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    target = TARGETS[name]
    warm_up(target, folder / "warm")
    (folder / "corpus").mkdir()
    for number, seed in enumerate(target.seeds()):
        (folder / "corpus" / str(number)).write_bytes(seed[:MOST_BYTES])

    def try_one(data: bytes) -> None:
        attempt(target, data, folder, alarm=False)

    options = {
        "max_total_time": seconds,
        "max_len": str(MOST_BYTES),
        "timeout": "60",
        "rss_limit_mb": "4096",
        "print_final_stats": "1",
        "artifact_prefix": f"{folder}/",
        "seed": "1",
    }
    flags = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(folder / "corpus")], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
