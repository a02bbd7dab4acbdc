"""The command ``upright``.

Each command is a function whose parameters are its options, or a dataclass whose fields are, and
which is then called. A new one is a line in ``_COMMANDS``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tyro.extras import SubcommandApp

from upright import __version__
from upright.cli import data, zoo
from upright.cli.demo import demo_command
from upright.cli.evaluate import Evaluate
from upright.cli.families import list_families
from upright.cli.messages import one_line_warnings, say, say_error
from upright.cli.oracle import oracle_command
from upright.cli.report import Report
from upright.cli.reproduce import Reproduce
from upright.cli.train import Train
from upright.interrupts import INTERRUPTED
from upright.terminal import printable, tell

__all__ = ["main"]

Command = Callable[..., Any]

_COMMANDS: dict[str, Command | dict[str, Command]] = {
    "demo": demo_command,
    "evaluate": Evaluate,
    "train": Train,
    "reproduce": Reproduce,
    "oracle": oracle_command,
    "report": Report,
    "families": list_families,
    "data": {"fetch": data.fetch, "check": data.check, "list": data.list_sets},
    "zoo": {"list": zoo.list_models, "show": zoo.show, "add": zoo.add},
}

_DESCRIPTION = (
    "Measure the worst-case accuracy of image classifiers under small rotations, translations and "
    "other transformations, and train classifiers in which it is high. "
    "`upright --version` gives the version."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; give the exit code: 0, or that of what went wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        return _run(lambda: tell(f"upright {__version__}"))
    return _run(lambda: _call(arguments or ["--help"]))


def _call(arguments: list[str]) -> None:
    """Parse first; an argument that cannot be ends in ``SystemExit``, and so does --help."""
    with contextlib.nullcontext() if all(map(str.isprintable, arguments)) else _plain_stderr():
        command = _app(_COMMANDS).cli(prog="upright", description=_DESCRIPTION, args=arguments)
    command()


@contextlib.contextmanager
def _plain_stderr() -> Iterator[None]:
    """The parser repeats what it does not understand, which may be the name of a file."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            yield
    finally:
        if sys.stderr is not None:
            with contextlib.suppress(OSError):  # where nobody listens, nothing is lost
                sys.stderr.write(printable(told.getvalue(), keep="\n"))


def _run(call: Callable[[], object]) -> int:
    try:
        with one_line_warnings():
            call()
    except SystemExit as stop:
        return _code(stop)
    except KeyboardInterrupt as stop:
        say("; ".join(("interrupted", *map(str, stop.args))))
        return INTERRUPTED
    except Exception as error:
        return say_error(error)
    return 0


def _code(stop: SystemExit) -> int:
    return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _app(commands: dict[str, Command | dict[str, Command]]) -> SubcommandApp:
    app = SubcommandApp()
    for name, command in commands.items():
        if isinstance(command, dict):
            app.command(_app(dict(command)), name=name, help=", ".join(command))
        else:
            app.command(name=name)(_deferred(command))
    return app


def _deferred(command: Command) -> Command:
    """Let the parser prepare a call that ``_run`` makes: it has its own way with errors."""
    if inspect.isclass(command):
        return command

    @functools.wraps(command)
    def prepare(*args: Any, **options: Any) -> Callable[[], Any]:
        return functools.partial(command, *args, **options)

    return prepare
