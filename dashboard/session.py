"""A run that is being looked at: its report, and what it was made from, loaded when a page first asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ddprof.analyzers.engine import Options, analyze, read_facts
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import Measures, measure
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.replay.graph import build_graph
from ddprof.analyzers.replay.price import Pricer, pricer
from ddprof.dashboard.index import SliceIndex
from ddprof.dashboard.lanes import Timeline, build_timeline

from ddprof.errors import NoUsableInput
from ddprof.model import Identity
from ddprof.readers import Source, discover, resolve_identities
from ddprof.report.model import Report
from ddprof.report.saved import is_saved_report, read_saved


@dataclass
class Session:
    """One run. `sources` is empty for a saved report: it has numbers, but no events to draw or to replay."""

    report: Report
    sources: tuple[Source, ...] = ()
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def has_traces(self) -> bool:
        """Whether the timeline, the replay and per-event pages can be shown."""
        return bool(self.sources)

    @property
    def job(self) -> JobFacts:
        """The facts of all ranks. Raises NoUsableInput for a saved report."""
        with self._lock:
            return self._job

    @property
    def measures(self) -> Measures:
        """What the rules read."""
        with self._lock:
            return self._measures

    @property
    def pricer(self) -> Pricer:
        """Replays changes in milliseconds, for the What-if page."""
        with self._lock:
            return self._pricer

    @property
    def timeline(self) -> Timeline:
        """Lanes and names of the timeline."""
        with self._lock:
            return self._timeline

    @property
    def index(self) -> SliceIndex:
        """Slices of all lanes, sorted, with prefix sums."""
        return self.timeline.index

    @cached_property
    def _job(self) -> JobFacts:
        if not self.sources:
            raise NoUsableInput(f"{self.report.run.name}: a saved report holds no events; serve the traces instead")
        # The analysis left the facts of every rank in the cache beside the traces: this reads columns, not JSON.
        facts = [f for f in (read_facts(source).facts for source in self.sources) if f is not None and len(f.steps)]
        identities, _ = resolve_identities([f.identity for f in facts], [f.path for f in facts])
        by_path = {f.path: (identity, f) for identity, f in zip(identities, facts, strict=True)}
        chosen = [by_path[path] for path in self.report.run.paths if path in by_path]
        return job_facts([_with_identity(f, identity) for identity, f in chosen])

    @cached_property
    def _measures(self) -> Measures:
        return measure(self._job)

    @cached_property
    def _pricer(self) -> Pricer:
        return pricer(build_graph(self._job), self._measures)

    @cached_property
    def _timeline(self) -> Timeline:
        return build_timeline(self._job)


def _with_identity(facts: RankFacts, identity: Identity) -> RankFacts:
    return replace(facts, identity=identity)


def load(
    paths: Sequence[str], workers: int | None = None, progress: Callable[[int, int, str], None] | None = None
) -> list[Session]:
    """One session per run found under `paths`; saved JSON reports are simply read.

    Raises NoUsableInput where there is none.
    """
    saved = [path for path in paths if is_saved_report(path)]
    sessions = [Session(report) for path in saved for report in read_saved(Path(path))]
    traces = [path for path in paths if path not in saved]
    if traces:
        reports = {r.run.name: r for r in analyze(traces, Options(workers=workers, progress=progress))}
        sessions += [
            Session(reports[label], tuple(found)) for label, found in discover(traces).runs if label in reports
        ]
    if not sessions:
        raise NoUsableInput(f"{', '.join(paths)}: no run found")
    return sessions
