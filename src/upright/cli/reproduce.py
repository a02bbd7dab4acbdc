"""``upright reproduce``: the paper's tables, measured again."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
from rich.console import Console
from tyro.conf import UseAppendAction, arg

from upright.cli.messages import is_watched, say
from upright.cli.options import parse_device
from upright.cli.outputs import Output, deliver, printing
from upright.cli.table import roomy_console
from upright.cli.todo import todo_table
from upright.files import write_whole
from upright.objective import Objective
from upright.origin import commit, hardware
from upright.paper import INVARIANCE as _PAPER
from upright.paper import Layout, Paper
from upright.paper.cost import Times
from upright.paper.missing import make_missing, missing_tasks
from upright.paper.needs import Need, figure_needs, table_needs, weight_needs
from upright.paper.order import most_cells_first
from upright.paper.tables import fill_tables, select
from upright.paper.todo import todo_of
from upright.paper.weights import weight_choices
from upright.record_files import RecordFolder
from upright.records import Record
from upright.report.headline import headline_to_markdown
from upright.report.methods import methods_to_markdown
from upright.report.model import Table
from upright.report.sections import fill_sections
from upright.report.summary import (
    different_numbers_to_markdown,
    summarise,
    summary_to_markdown,
    summary_to_terminal,
)
from upright.report.tables import to_csv, to_latex, to_markdown, to_terminal
from upright.report.weights import WeightChoice, weights_to_markdown, weights_to_terminal
from upright.train import TrainingPrecision
from upright.workers import Engine, LocalEngine, RayEngine, Task, ray_engine, runs_at_once

__all__ = ["Reproduce"]

_Names = UseAppendAction[Annotated[tuple[str, ...], arg(metavar="NAME", help_behavior_hint="")]]
_Dir = Annotated[Path, arg(metavar="DIR")]
_RUNS = Path("runs/reproduce")


def _one_of(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}; several may be given."


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Measure the paper again: show its tables with what is recorded, and make what is missing.

    It may be stopped at any time; the same command continues, and records nothing twice.
    """

    table: _Names = ()
    """A table by the paper's label, such as regspat; several may be given. Without it, all tables,
    of which only the counts are shown."""
    figure: Annotated[_Names, arg(help=f"A figure's runs: {_one_of(_PAPER.figure_names)}")] = ()
    dataset: Annotated[
        _Names, arg(help=f"{_one_of(sorted(_PAPER.datasets))} Without it, all that a table has.")
    ] = ()
    method: _Names = ()
    """A column of the tables, or a line of the figures, such as "KL(rob, Wo-10)"; several may be
    given. Without it, all."""
    seeds: Annotated[int, arg(metavar="N")] = 5
    """How many seeds each method needs, counted from 0."""
    batch: UseAppendAction[
        Annotated[tuple[Literal[64, 128], ...], arg(metavar="IMAGES", help_behavior_hint="")]
    ] = ()
    """64 or 128: std, std* and AT were trained with both, and the better is reported. Without it,
    both."""
    factor: UseAppendAction[
        Annotated[tuple[float, ...], arg(metavar="F", help_behavior_hint="")]
    ] = ()
    """λ of so many times its default, to choose it: of the tables' methods that have one, or of the
    figures'; several may be given. Without it, what fills the tables or what the figures draw."""
    held_out: bool = False
    """To choose without the test set: train on nine tenths of the training images, and measure on
    the other tenth. The records go to the folder held-out of the results, which no table reads."""
    dry_run: bool = False
    """Show what is there, what is missing and how long that would take; run nothing."""
    results: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """The records: read from here, and added to here. Without it, that is the folder results, and
    what the project measured, which comes with the package, is read, too."""
    runs: _Dir = _RUNS
    """The runs: checkpoints and states, from which the same command continues."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Write the tables to this folder, as Markdown, LaTeX and CSV."""
    markdown: UseAppendAction[
        Annotated[tuple[Path, ...], arg(metavar="FILE", help_behavior_hint="")]
    ] = ()
    """Write the accuracies of a few methods (headline), the counts (summary), what was measured of
    each method (methods), the choice of λ (weights) or the tables (tables) into this file, between
    the lines <!-- reproduce: summary --> and <!-- end -->; several may be given."""
    precision: Annotated[TrainingPrecision | None, arg(metavar="NAME", help_behavior_hint="")] = (
        None
    )
    """float32 or bfloat16, of new runs; without, bfloat16 on a GPU and float32 elsewhere."""
    compile: bool = False
    """Evaluate networks as PyTorch compiles them, but for those with kernels of this project. It
    pays on a GPU for networks that are larger than the usual one, such as those of GRN."""
    device: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """Where to compute, such as cpu or cuda; a GPU where there is one."""
    together: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    """How many runs train side by side; without, one on a CPU, up to four on a GPU where there is
    room. They share their time: to measure how long a method trains alone, give 1."""
    checkpoint_every: Annotated[int, arg(metavar="STEPS")] = 1000
    engine: Literal["local", "ray"] = "local"
    """Who makes the runs: this machine, or a Ray cluster, whose nodes must all see --runs."""
    address: Annotated[str | None, arg(metavar="HOST:PORT", help_behavior_hint="")] = None
    """Of the Ray cluster; without, RAY_ADDRESS, or else a cluster of this machine alone."""
    gpus_per_run: Annotated[float | None, arg(metavar="GPUS", help_behavior_hint="")] = None
    """Of a Ray cluster: the part of a GPU that each run is given; without, 0.25."""

    def __call__(self) -> None:
        """Show, run what is missing, and show again."""
        commit()  # what is edited from now on is not what runs
        self._check()
        layouts = self._layouts()
        results = RecordFolder.usual() if self.results is None else RecordFolder(self.results)
        kept = results.held_out if self.held_out else results
        needs, records = self._needs(layouts), results.read()
        known = kept.read() if self.held_out else records
        console = roomy_console()
        failed = False
        if self.dry_run:
            device = parse_device(self.device)
            times = Times.of(_PAPER, records, device)
            tasks = self._tasks(layouts, needs, known, device, times)
            console.print(todo_table(todo_of(tasks, times, runs=self.runs)))
        else:
            with self._engine() as engine:
                times = Times.of(_PAPER, records, engine.device)
                tasks = self._tasks(layouts, needs, known, engine.device, times)
                failed = self._run(tasks, kept, engine)
            records = results.read()
        tables = fill_tables(
            _PAPER,
            layouts,
            records,
            seeds=self.seeds,
            batches=self.batch,
            options=self._kept_options,
        )
        choices = weight_choices(_PAPER, records, results.held_out.read())
        shown = printing(lambda: self._show(tables, _asked(choices, needs), console))
        deliver([shown, *self._files(tables, choices)])
        if failed:
            raise SystemExit(1)

    def _check(self) -> None:
        """Say what is wrong before the runs."""
        for name, value in (("seeds", self.seeds), ("together", self.together)):
            if value is not None and value < 1:
                raise ValueError(f"--{name} is {value}, but at least 1 is needed")
        for factor in self.factor:
            if not 0 < factor < math.inf:
                raise ValueError(f"--factor is {factor:g}, but must be above 0, and finite")
        if self.factor and self.batch:
            raise ValueError("--batch is of methods without a penalty, --factor of those with one")
        of_ray = {"address": self.address, "gpus-per-run": self.gpus_per_run}
        for name, given in of_ray.items():
            if given is not None and self.engine != "ray":
                raise ValueError(f"--{name} is of a Ray cluster; give --engine ray, too")
        if self.together is not None and self.engine == "ray":
            raise ValueError(
                "--together is of this machine; on a Ray cluster --gpus-per-run says how many runs "
                "share a GPU"
            )
        for file in self.markdown:
            _filled(file, dict.fromkeys(_SECTIONS, ""))

    def _layouts(self) -> tuple[Layout, ...]:
        if self.figure and not self.table:
            return ()
        return select(_PAPER, tables=self.table, datasets=self.dataset, methods=self.method)

    @property
    def _paper(self) -> Paper:
        """Whose runs are made."""
        return _PAPER.on_held_out if self.held_out else _PAPER

    @property
    def _kept_options(self) -> list[str]:
        """What the command of a cell repeats: how runs are made, and where they and records lie.

        Not by which machine, which is another one where a page is read.
        """
        runs = None if self.runs == _RUNS else self.runs
        given = {"--precision": self.precision, "--results": self.results, "--runs": runs}
        kept = ((name, str(value)) for name, value in given.items() if value is not None)
        options = [part for both in kept for part in both]
        return [*options, "--compile"] if self.compile else options

    def _needs(self, layouts: Sequence[Layout]) -> list[Need]:
        needs = self._table_needs(layouts) + figure_needs(
            self._paper,
            self.figure,
            datasets=self.dataset,
            methods=self.method,
            batches=self.batch,
            factors=self.factor,
        )
        if self.factor and not needs:
            raise ValueError("--factor leaves no run: only methods with a penalty have a λ")
        if self.batch and not needs:
            raise ValueError("--batch leaves no run: only std, std* and AT are trained with 128")
        return needs

    def _table_needs(self, layouts: Sequence[Layout]) -> list[Need]:
        if self.factor:
            return weight_needs(self._paper, layouts, self.factor)
        return table_needs(self._paper, layouts, batches=self.batch)

    def _tasks(
        self,
        layouts: Sequence[Layout],
        needs: Sequence[Need],
        records: Sequence[Record],
        device: torch.device,
        times: Times,
    ) -> tuple[Task, ...]:
        """What is missing, that which fills most empty cells in the least time first."""
        usual: TrainingPrecision = "bfloat16" if device.type == "cuda" else "float32"
        if self.dry_run and times.hardware != hardware(device):
            usual = times.precision or usual  # how long it takes elsewhere, as it is done there
        paper, precision = self._paper, self.precision or usual
        tasks = missing_tasks(
            paper,
            needs,
            records,
            seeds=self.seeds,
            precision=precision,
            compiled=self.compile,
        )
        return most_cells_first(paper, layouts, tasks, records, times=times, runs=self.runs)

    def _run(self, tasks: Sequence[Task], results: RecordFolder, engine: Engine) -> bool:
        """Make what is missing; True where something failed."""
        failures = make_missing(self._paper, tasks, engine, results, say=say)
        for failure in failures:
            say(f"failed: {failure.task}: {failure.reason}")
        return bool(failures)

    def _engine(self) -> contextlib.AbstractContextManager[Engine]:
        if self.engine == "ray":
            return ray_engine(
                runs=self.runs,
                address=self.address,
                device=self.device,
                gpus=RayEngine.gpus if self.gpus_per_run is None else self.gpus_per_run,
                checkpoint_every=self.checkpoint_every,
                progress=is_watched(),
                say=say,
            )
        device = parse_device(self.device)
        local = LocalEngine(
            runs=self.runs,
            device=device,
            together=self.together or runs_at_once(device),
            checkpoint_every=self.checkpoint_every,
            progress=is_watched(),
        )
        return contextlib.nullcontext(local)

    def _show(
        self, tables: Sequence[Table], choices: Sequence[WeightChoice], console: Console
    ) -> None:
        if self.factor or self.held_out:
            console.print(weights_to_terminal(choices, metric=_PAPER.decisive), crop=False)
            return
        if self.table:
            for table in tables:
                console.print(to_terminal(table), crop=False)
        if tables:
            console.print(summary_to_terminal(summarise(tables)))

    def _files(self, tables: Sequence[Table], choices: Sequence[WeightChoice]) -> Iterator[Output]:
        """What is to be written: one file that cannot be costs no other."""
        if self.out is not None:
            latex = "\n".join(map(to_latex, tables))
            texts = {"md": _markdown(tables), "tex": latex, "csv": to_csv(tables)}
            for ending, text in texts.items():
                yield _writing("--out", self.out / f"tables.{ending}", partial(str, text))
        contents = _sections(tables, choices) if self.markdown else {}
        for file in self.markdown:
            yield _writing("--markdown", file, partial(_filled, file, contents))


def _asked(choices: Iterable[WeightChoice], needs: Iterable[Need]) -> list[WeightChoice]:
    """The choices for the methods of these runs."""
    runs = [plan.main for plan, _ in needs]
    asked = {
        (_PAPER.datasets[run.data], run.objective.with_usual_weight())
        for run in runs
        if isinstance(run.objective, Objective) and run.data in _PAPER.datasets
    }
    return [
        each
        for each in choices
        if (each.dataset, _PAPER.method(each.method).objective.canonical()) in asked
    ]


def _markdown(tables: Sequence[Table]) -> str:
    return "\n".join(map(to_markdown, tables))


_SECTIONS = ("headline", "summary", "methods", "weights", "tables")


def _sections(tables: Sequence[Table], choices: Sequence[WeightChoice]) -> dict[str, str]:
    headline = _PAPER.headline
    return {
        "headline": ""
        if headline is None
        else headline_to_markdown(tables, headline, paper_seeds=_PAPER.seeds),
        "summary": "\n".join(
            (summary_to_markdown(summarise(tables)), different_numbers_to_markdown(tables))
        ),
        "methods": methods_to_markdown(tables, metric=_PAPER.decisive),
        "weights": weights_to_markdown(choices, metric=_PAPER.decisive),
        "tables": _markdown(tables),
    }


def _writing(option: str, file: Path, text: Callable[[], str]) -> Output:
    return Output(f"{option} {file}", lambda: write_whole(file, text().encode()))


def _filled(file: Path, contents: Mapping[str, str]) -> str:
    try:
        return fill_sections(file.read_text(encoding="utf-8"), contents)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
