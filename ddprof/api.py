"""The Python API: `ddprof.analyze("traces/")`, with DataFrames and a notebook view. pandas is imported when needed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.findings import Finding
from ddprof.report.calibration import calibrated, of_run
from ddprof.report.html.parts import render_summary
from ddprof.report.json.contract import to_contract
from ddprof.report.json.saved import is_saved_report, read_saved
from ddprof.report.model import Report, Verdict
from ddprof.report.text import render_text, render_verdict

if TYPE_CHECKING:
    import pandas as pd

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, repr=False)
class AnalyzedRun:
    """One analyzed run. `report` is the whole result; the properties are the parts people ask for first."""

    report: Report
    _run: LoadedRun | None = field(default=None, compare=False)  # the facts of its ranks; None: a saved one

    @property
    def verdict(self) -> Verdict:
        """What bounds the step, and the sentence that says so."""
        return self.report.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Causes of lost time, the largest recoverable time first."""
        return self.report.ranked_findings()

    @property
    def step_us(self) -> float:
        """Mean wall time of a job step in microseconds; NaN where no step was measured."""
        return self.report.steps.wall_us

    @property
    def ledger(self) -> pd.DataFrame:
        """Mean step by cause in microseconds: a row per rank, columns wall_us and the causes, which sum to it."""
        import pandas as pd

        per_rank = self.report.ledger.per_rank
        columns = ["wall_us", *CAUSES]
        rows = [[float(row.get(column, 0.0)) for column in columns] for row in per_rank.values()]
        return pd.DataFrame(rows, index=pd.Index(list(per_rank), name="rank"), columns=columns)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Kernels of all ranks, on CPU ranks operators: a row per rank, kernel, operator, module and line, microseconds
        per step. `busy_us` of a rank sums to the busy time of its ledger; docs/dashboard.md describes the columns.

        Raises NoUsableInput for a saved report, which holds no kernels, and where a trace that is needed again is gone.
        """
        from ddprof.analyzers.kernel_table.of_run import kernels_of

        if self._run is None:
            raise NoUsableInput(f"{self.report.run.name}: a saved report holds no kernels; analyze the traces")
        table: pd.DataFrame = kernels_of(self._run).rows.to_pandas()
        return table

    def to_dict(self) -> dict[str, object]:
        """The document of the report contract as plain values."""
        return to_contract(self.report)

    def to_json(self, indent: int | None = 1) -> str:
        """The document of the report contract as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save_html(self, path: PathLike) -> Path:
        """Write the pages of the dashboard as one self-contained file, as `ddprof report` does, and return its path."""
        from ddprof.dashboard.onefile.document import render
        from ddprof.dashboard.runs.open_run import OpenRun

        file = Path(path)
        file.write_text(render(OpenRun(self.report, self._run)), encoding="utf-8")
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

    `cache`: whether the facts of every rank are kept for the next call, or the folder or URL at which they are.
    `max_memory` bounds all processes, in bytes. `engine`: where ranks are read, "local", "dask" or "dask://HOST:PORT";
    `ranks`: which, "all", "0,7" or "sample:32". Raises NoUsableInput where there is no run, or more than one (then use
    `analyze_all`).
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
    known = of_run(given)
    runs = [AnalyzedRun(calibrated(run.report, known), run) for run in load_runs(given, options)]
    if not runs:
        raise NoUsableInput(f"{', '.join(given)}: no trace found")
    return runs


def load(path: PathLike) -> AnalyzedRun:
    """The run in a saved JSON report. Raises NoUsableInput where the file is not one."""
    reports = read_saved(Path(path))
    if len(reports) != 1:
        raise NoUsableInput(f"{os.fspath(path)}: holds {len(reports)} runs, not one")
    return AnalyzedRun(reports[0])
