"""A run that is being looked at: its report, and what it was made from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.replay.critical import critical_path
from ddprof.analyzers.replay.price import Pricer
from ddprof.dashboard.runs.live import running_ranks, waiting_report
from ddprof.dashboard.timeline.index import SliceIndex
from ddprof.dashboard.timeline.lanes import Timeline, build_timeline
from ddprof.errors import NoUsableInput
from ddprof.readers import Source
from ddprof.report.json.saved import is_saved_report, read_saved
from ddprof.report.model import Report
from ddprof.tables import Table

MAX_TIMELINES = 3  # the plain one and two with operators of some rank: each holds all slices again


@dataclass
class OpenRun:
    """One run. Without `loaded` it is a saved report: it has numbers, but no events to draw or to replay."""

    report: Report
    loaded: LoadedRun | None = None
    folder: str = ""  # run folder it was read from, where it was one: a job may still be writing it
    _timelines: OrderedDict[frozenset[int], Timeline] = field(default_factory=OrderedDict, repr=False)
    _critical: Table | None = field(default=None, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def has_traces(self) -> bool:
        """Whether the timeline, the replay and per-event pages can be shown."""
        return self.loaded is not None

    @property
    def sources(self) -> Mapping[str, Source]:
        """The files of the run by the path of their facts, for what is read again on request."""
        return self.loaded.sources if self.loaded else {}

    @property
    def job(self) -> JobFacts:
        """The facts of all ranks. Raises NoUsableInput for a saved report."""
        return self._traced().job

    @property
    def measures(self) -> Measures:
        """What the rules read."""
        with self._lock:
            return self._traced().measures

    @property
    def pricer(self) -> Pricer:
        """Replays changes in milliseconds, for the What-if page."""
        with self._lock:
            return self._traced().pricer

    @property
    def critical(self) -> Table:
        """The critical path of the run."""
        with self._lock:
            if self._critical is None:
                self._critical = critical_path(self.job, self.pricer.graph)
            return self._critical

    @property
    def timeline(self) -> Timeline:
        """Lanes and names of the timeline."""
        return self.timeline_of(frozenset())

    @property
    def index(self) -> SliceIndex:
        """Slices of all lanes, sorted, with prefix sums."""
        return self.timeline.index

    def timeline_of(self, expanded: frozenset[int]) -> Timeline:
        """The timeline with the host operators of some ranks, which are read from their traces again."""
        with self._lock:
            if expanded not in self._timelines:
                self._timelines[expanded] = build_timeline(self.job, self.sources, expanded)
                while len(self._timelines) > MAX_TIMELINES:
                    self._timelines.popitem(last=False)
            self._timelines.move_to_end(expanded)
            return self._timelines[expanded]

    def _traced(self) -> LoadedRun:
        if self.loaded is None:
            raise NoUsableInput(f"{self.report.run.name}: a saved report holds no events; serve the traces instead")
        return self.loaded


def load(
    paths: Sequence[str], workers: int | None = None, progress: Callable[[int, int, str], None] | None = None
) -> list[OpenRun]:
    """One entry per run found under `paths`; saved JSON reports are simply read.

    Raises NoUsableInput where there is none.
    """
    saved = [path for path in paths if is_saved_report(path)]
    open_runs = [OpenRun(report) for path in saved for report in read_saved(Path(path))]
    traces = [path for path in paths if path not in saved]
    if traces:
        open_runs += _traced(traces, Options(workers=workers, progress=progress))
    if not open_runs:
        raise NoUsableInput(f"{', '.join(paths)}: no run found")
    return open_runs


def _traced(paths: Sequence[str], options: Options) -> list[OpenRun]:
    """Runs with traces; a job that has written none yet is a run of which only its steps can be watched."""
    folder = next((path for path in paths if Path(path).is_dir()), "")
    try:
        return [OpenRun(run.report, run, folder) for run in load_runs(paths, options)]
    except NoUsableInput:
        ranks = running_ranks(folder)
        if not ranks:
            raise
        return [OpenRun(waiting_report(folder, ranks), None, folder)]
