"""``python -m upright`` is the command ``upright``."""

import sys

from upright.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
