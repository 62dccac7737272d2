"""The Python API: `ddprof.analyze("traces/")`, with DataFrames and a notebook view. pandas is imported when needed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.report.calibration import calibrated, of_run
from ddprof.report.html.parts import render_summary
from ddprof.report.json.contract import is_saved_report, read_saved, to_contract
from ddprof.report.listed import FindingList
from ddprof.report.model import Report, Verdict
from ddprof.report.text import render_text, render_verdict
from ddprof.tables import library

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from ddprof.dashboard.runs.open_run import OpenRun
    from ddprof.dashboard.runs.view import View

_LARGEST_FRAME = 16_000_000  # characters: a notebook file keeps every output that it shows

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, repr=False)
class AnalyzedRun:
    """One analyzed run. `report` is the complete result; the properties expose its most used parts."""

    report: Report
    _run: LoadedRun | None = field(default=None, compare=False)  # the facts of its ranks; None: a saved one

    @property
    def verdict(self) -> Verdict:
        """The bound of the step, and the sentence that says so."""
        return self.report.verdict

    @property
    def findings(self) -> FindingList:
        """Causes of lost time, the largest recoverable time first; the list displays as a table."""
        return FindingList(self.report)

    @property
    def step_us(self) -> float:
        """Mean wall time of a job step in microseconds; NaN where no step was measured."""
        return self.report.steps.wall_us

    @property
    def ledger(self) -> pd.DataFrame:
        """Mean step by cause: one row per rank, columns wall_us and CAUSE_us; the causes sum to wall_us."""
        pandas, per_rank = library("pandas"), self.report.ledger.per_rank
        rows = [[float(row.get(column, 0.0)) for column in ("wall_us", *CAUSES)] for row in per_rank.values()]
        columns = ["wall_us", *(f"{cause}_us" for cause in CAUSES)]
        frame: pd.DataFrame = pandas.DataFrame(rows, index=pandas.Index([*per_rank], name="rank"), columns=columns)
        return frame

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Every steady step of every rank: number in the trace, start_us on the run's clock, wall_us, and CAUSE_us of
        every cause, which sum to wall_us. Raises NoUsableInput for a saved report, which has no single steps.
        """
        from ddprof.analyzers.kernel_table.named_tables import rank_step_causes, rank_steps

        job = self._traced("steps of single ranks").job
        keys = ["rank", "step"]
        booked = rank_step_causes(job).to_pandas()
        wide = booked.pivot_table(index=keys, columns="cause", values="dur_us", aggfunc="sum", observed=True)
        wide = wide.reindex(columns=list(CAUSES)).fillna(0.0).add_suffix("_us")
        steps: pd.DataFrame = rank_steps(job).to_pandas().set_index(keys).join(wide)
        return steps.fillna({f"{cause}_us": 0.0 for cause in CAUSES}).rename_axis(columns=None)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Every collective and message of the job: op, group, size_bytes, start_us on the run's clock, transfer_us, the
        last rank to arrive, longest_wait_us. Raises NoUsableInput for a saved report, which has none.
        """
        from ddprof.analyzers.kernel_table.named_tables import collectives

        table: pd.DataFrame = collectives(self._traced("collectives").job).to_pandas()
        return table.set_index("collective")

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Kernels (operators on CPU ranks), one row per rank, kernel, operator, module and line; microseconds per step.

        `busy_us` of a rank sums to the busy time of its ledger; docs/dashboard.md describes the columns. Raises
        NoUsableInput for a saved report, which has no kernels, and where a trace file is gone by now.
        """
        from ddprof.analyzers.kernel_table.of_run import kernels_of

        table: pd.DataFrame = kernels_of(self._traced("kernels")).rows.to_pandas()
        return table

    def _traced(self, what: str) -> LoadedRun:
        if self._run is None:
            raise NoUsableInput(f"{self.report.run.name}: a saved report holds no {what}; analyze the traces")
        return self._run

    def timeline(self, height: int = 640) -> TimelineView:
        """The timeline of the run, shown by a notebook in a frame `height` pixels high.

        Raises NoUsableInput for a saved report, which holds no events.
        """
        from ddprof.dashboard.onefile.document import render

        self._traced("events")
        return TimelineView(render(self._opened, only="timeline"), height)

    @property
    def plots(self) -> dict[str, str]:
        """Plots available for this run: name (for `plot`) -> the question that it answers."""
        from ddprof.dashboard.exhibits.pictures import questions

        return questions(self._view(is_dark=False))

    def plot(self, name: str, *, dark: bool = False) -> go.Figure:
        """One of `plots` as a plotly figure (needs the extra `dashboard`). Raises UsageError for an unknown name."""
        from ddprof.dashboard.exhibits.pictures import picture

        return picture(self._view(is_dark=dark), name)

    def _view(self, is_dark: bool) -> View:
        from ddprof.dashboard.runs.view import View

        self._traced("pictures")
        return View(self._opened, {}, (self._opened,), dark=is_dark)

    @cached_property
    def _opened(self) -> OpenRun:
        """The run opened for the dashboard, once, so that timeline, prices and kernels are computed once."""
        from ddprof.dashboard.runs.open_run import OpenRun

        return OpenRun(self.report, self._run)

    def to_dict(self) -> dict[str, object]:
        """The report document (docs: report contract) as plain values."""
        return to_contract(self.report)

    def to_json(self, indent: int | None = 1) -> str:
        """The report document as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save_html(self, path: PathLike) -> Path:
        """Write the dashboard's pages as one self-contained file, as `ddprof report` does; return its path."""
        from ddprof.dashboard.onefile.document import render

        file = Path(path)
        file.write_text(render(self._opened), encoding="utf-8")
        return file

    def __str__(self) -> str:
        return render_verdict(self.report)

    def __repr__(self) -> str:
        return f"<AnalyzedRun {self.report}>"

    def to_text(self) -> str:
        """The whole report as `ddprof analyze` prints it."""
        return render_text(self.report)

    def _repr_html_(self) -> str:
        return render_summary(self.report)


@dataclass(frozen=True, repr=False)
class TimelineView:
    """A page with one timeline that makes no requests; a notebook shows it in a frame."""

    html: str
    height: int

    def __repr__(self) -> str:
        return f"<timeline, {len(self.html) / 1e6:.1f} MB: show it in a notebook, or write .html to a file>"

    def _repr_html_(self) -> str:
        if len(self.html) > _LARGEST_FRAME:
            size = f"{len(self.html) / 1e6:.0f} MB, and a notebook keeps what it shows"
            return f"<p>The timeline has {size}: run.save_html(PATH), or ddprof serve.</p>"
        frame = f'srcdoc="{escape(self.html)}" style="width:100%;height:{self.height}px;border:0"'
        return f'<iframe sandbox="allow-scripts" title="Timeline" {frame}></iframe>'


def analyze(
    paths: PathLike | Iterable[PathLike],
    *,
    workers: int | None = None,
    cache: bool | str = True,
    strict: bool = False,
    max_memory: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    engine: str = "local",
    ranks: str = "all",
) -> AnalyzedRun:
    """Analyze the one run in `paths` (files, folders, archives, URLs, or a saved JSON report).

    `cache`: True to keep each rank's facts for the next call, or the folder or URL to keep them in. `max_memory` bounds
    all processes, in bytes. `engine` reads the ranks: "local", "dask" or "dask://HOST:PORT". `ranks` selects them:
    "all", "0,7" or "sample:32". Raises NoUsableInput where there is no run, or more than one (then use `analyze_all`).
    """
    options = Options(workers, cache, strict, max_memory, progress, engine, ranks)
    runs = _analyzed(paths, options)
    if len(runs) > 1:
        names = ", ".join(run.report.run.name or "?" for run in runs)
        raise NoUsableInput(f"{len(runs)} runs found ({names}): name one of them, or use ddprof.api.analyze_all")
    return runs[0]


def analyze_all(
    paths: PathLike | Iterable[PathLike],
    *,
    workers: int | None = None,
    cache: bool | str = True,
    strict: bool = False,
    max_memory: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    engine: str = "local",
    ranks: str = "all",
) -> list[AnalyzedRun]:
    """Analyze every run in `paths`; parameters and errors as `analyze`."""
    return _analyzed(paths, Options(workers, cache, strict, max_memory, progress, engine, ranks))


def _analyzed(paths: PathLike | Iterable[PathLike], options: Options) -> list[AnalyzedRun]:
    given = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if given and all(is_saved_report(path) for path in given):
        return [AnalyzedRun(report) for path in given for report in read_saved(Path(path))]
    records = of_run(given)
    return [AnalyzedRun(calibrated(run.report, records), run) for run in load_runs(given, options)]


def load(path: PathLike) -> AnalyzedRun:
    """The run in a saved JSON report. Raises NoUsableInput where the file is not one."""
    reports = read_saved(Path(path))
    if len(reports) != 1:
        raise NoUsableInput(f"{os.fspath(path)}: holds {len(reports)} runs, not one")
    return AnalyzedRun(reports[0])
