"""The program ``upright``, which ``python -m upright`` is, too."""

from __future__ import annotations

import io
import sys

from upright import heap, interrupts

__all__ = ["main"]


def main() -> int:
    """Run the command of this process, and give its exit code."""
    from upright.cli import main as run  # here, since Ctrl-C is ours by now
    from upright.cli.messages import flush

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr is: no name ends a listing
    heap.keep_freed()
    interrupts.raise_first()
    code = flush(run())
    interrupts.end_at_once()
    return code


if __name__ == "__main__":
    sys.exit(main())
