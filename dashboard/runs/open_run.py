"""An opened run: its report and its source."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.kernel_table.model import KernelTable
from ddprof.analyzers.kernel_table.of_run import kernels_of, path_of
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.settings.predict import Offer, offers
from ddprof.analyzers.settings.present import present
from ddprof.capture.launcher.live import LiveRank, read_ranks
from ddprof.dashboard.runs.counters import counter_tracks
from ddprof.dashboard.runs.names import arguments
from ddprof.dashboard.runs.tunings import Tuning, tunings_of
from ddprof.dashboard.timeline.difference import difference
from ddprof.dashboard.timeline.index import SliceIndex
from ddprof.dashboard.timeline.lanes import Timeline, build_timeline
from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers import Source
from ddprof.readers.files.remote import is_url
from ddprof.readers.side_files.manifests import Manifest, launch_of
from ddprof.report.calibration import Record, calibrated, of_run, on_this_machine
from ddprof.report.json.contract import is_saved_report, read_saved
from ddprof.report.model import Ledger, Report, RunInfo, Steps, Verdict
from ddprof.tables import Table
from ddprof.units import format_ranks

MAX_EXPANDED_RANKS = 4  # as many as the page asks for at once (assets/timeline/rows.js): each is a trace to read
MAX_EXPANDED_EVENTS = 4_000_000  # of these ranks together: about 250 MB while they are read, 110 MB as slices
_NUMBERS = count()
KEPT_BYTES = 128 * 2**20  # about 4 million slices: a page goes back and forth between two or three sets of open ranks
Key = tuple[int, frozenset[int]] | tuple[int, int]  # number of the run, and ranks or the run that it is laid beside


@dataclass
class OpenRun:
    """One run. Without `loaded` it is a saved report: it has numbers, but no events to draw or to replay."""

    report: Report
    loaded: LoadedRun | None = None
    folder: str = ""  # run folder it was read from, where it was one: a job may still be writing it
    argument: str = ""  # the path that names it alone on a command line; "" where none does
    _number: int = field(default_factory=_NUMBERS.__next__, repr=False)
    _timeline: Timeline | None = field(default=None, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def has_traces(self) -> bool:
        """True where the timeline, the replay and per-event pages can be shown."""
        return self.loaded is not None

    @property
    def sources(self) -> Mapping[str, Source]:
        """Files of the run by the path of their facts, for reading again on request."""
        return self.loaded.sources if self.loaded else {}

    @cached_property
    def launch(self) -> Manifest | None:
        """The job's launch by `ddprof run`; None where it is unknown, or nodes had different commands."""
        return launch_of(self._manifests)

    @property
    def run_folder(self) -> str:
        """The folder that `ddprof run` wrote, on this machine; "" for anything else."""
        folders = {os.path.dirname(path) for path in self._manifests if not is_url(path)}
        return os.path.realpath(folders.pop()) if len(folders) == 1 else ""

    @property
    def tunings(self) -> list[Tuning]:
        """Tunings of the run's command by `ddprof tune`, as they are now."""
        return tunings_of(self.run_folder, self.launch) if self.run_folder else []

    @cached_property
    def records(self) -> list[Record]:
        """Predictions and their outcomes, of this user and of the run's folder."""
        return on_this_machine([self.run_folder] if self.run_folder else [])

    @property
    def _manifests(self) -> set[str]:
        return {path for source in self.sources.values() for path in source.manifest_paths}

    @property
    def job(self) -> JobFacts:
        """The facts of all ranks. Raises NoUsableInput for a saved report."""
        return self._traced().job

    @property
    def measures(self) -> Measures:
        """The measures that rules read."""
        with self._lock:
            return self._traced().measures

    @property
    def pricer(self) -> Pricer:
        """Replays changes in milliseconds, for the What-if page."""
        with self._lock:
            return self._traced().pricer

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """Everything that a what-if can change, and why not the rest. Raises NoUsableInput for a saved report."""
        with self._lock:
            return offers(self.pricer, present(self.measures, {}), self.report.ranked_findings())

    @property
    def critical(self) -> Table:
        """The critical path of the run."""
        with self._lock:
            return path_of(self._traced())

    @property
    def kernels(self) -> KernelTable:
        """Kernels and operators by name. Raises NoUsableInput for a saved report, and where a trace is gone."""
        with self._lock:
            return kernels_of(self._traced())

    @property
    def step_count(self) -> int:
        """Number of the job's steps: the pages number them from 0."""
        return len(self.report.steps.per_step_us)

    @property
    def timeline(self) -> Timeline:
        """Lanes and names of the timeline."""
        with self._lock:
            if self._timeline is None:
                self._timeline = build_timeline(self.job)
            return self._timeline

    def expect_timeline(self) -> None:
        """Build the timeline beside whatever comes first, for a page that is about to ask for it."""
        if self.has_traces and self._timeline is None:
            threading.Thread(target=lambda: self.timeline, daemon=True).start()

    @property
    def index(self) -> SliceIndex:
        """Slices of all lanes, sorted, with prefix sums."""
        return self.timeline.index

    @cached_property
    def counters(self) -> list[dict[str, Any]]:
        """Samples of hosts, devices and memory during the trace."""
        return counter_tracks(self.job, self.run_folder, self.index.lo_ns, self.index.hi_ns)

    def timeline_of(self, expanded: frozenset[int]) -> Timeline:
        """The timeline with the host operators of some ranks, which are read from their traces again.

        Raises UsageError where that is too much at once.
        """
        if not expanded:
            return self.timeline
        if len(expanded) > MAX_EXPANDED_RANKS:
            raise UsageError(f"operators of {len(expanded)} ranks: at most {MAX_EXPANDED_RANKS} are read at once")
        chosen = [self.job.ranks[self.job.rank_ids.index(rank)] for rank in expanded]
        events = sum(facts.counts.get("events", 0) for facts in chosen)
        if events > MAX_EXPANDED_EVENTS:
            words = f"{format_ranks(sorted(expanded))}: {events:,} events"
            raise UsageError(f"operators of {words}: at most {MAX_EXPANDED_EVENTS:,} are read at once")
        with self._lock:
            return KEPT.get((self._number, expanded), lambda: build_timeline(self.job, self.sources, expanded))

    def beside(self, after: OpenRun) -> Timeline:
        """This run and a later one in one timeline, aligned by step.

        Raises UsageError where they have nothing in common, NoUsableInput for a saved report.
        """
        before, later = self.timeline, after.timeline
        return KEPT.get((self._number, after._number), lambda: difference(before, later))

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
    """Runs with traces; a job without any yet is a run whose steps can be watched."""
    folder = next((path for path in paths if os.path.isdir(path)), "")
    try:
        records, runs = of_run(paths), list(load_runs(paths, options))
        named = zip(runs, arguments(paths, runs), strict=True)
        return [OpenRun(calibrated(run.report, records), run, folder, argument) for run, argument in named]
    except NoUsableInput:
        ranks = running_ranks(folder)
        if not ranks:
            raise
        return [OpenRun(waiting_report(folder, ranks), None, folder)]


class KeptTimelines:
    """The most recently used timelines: as many as `most_bytes` hold, always including the latest."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[Key, Timeline] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key, build: Callable[[], Timeline]) -> Timeline:
        """The timeline of a key, built where it is not kept."""
        with self._lock:
            timeline = self._known.get(key)
            if timeline is not None:
                self._known.move_to_end(key)
                return timeline
        made = build()  # outside of the lock: other runs go on meanwhile
        with self._lock:
            self._known[key] = made
            while len(self._known) > 1 and self.kept_bytes > self._most_bytes:
                self._known.popitem(last=False)
        return made

    @property
    def kept_bytes(self) -> int:
        """Bytes of the kept timelines."""
        return sum(timeline.held_bytes for timeline in self._known.values())


def running_ranks(folder: str) -> list[LiveRank]:
    """The ranks that write to a run folder now; [] for anything else."""
    path = Path(folder)
    return read_ranks(path) if folder and path.is_dir() else []


def waiting_report(folder: str, ranks: list[LiveRank]) -> Report:
    """Report on a run before its first trace: its running ranks."""
    numbers = tuple(rank.rank for rank in ranks)
    info = RunInfo(max(numbers) + 1, numbers, hosts={r.rank: r.host for r in ranks}, name=Path(folder).resolve().name)
    verdict = Verdict("none", "the job is running and has written no trace yet; the page Live shows its steps")
    return Report(info, Steps(0, "none", float("nan")), Ledger(), verdict)


# One for the process: several open runs share the bound.
KEPT = KeptTimelines(KEPT_BYTES)
