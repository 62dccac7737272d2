"""The engine: files to reports.

Ranks are read and reduced one at a time in a pool of processes; only their facts come back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from multiprocessing import get_all_start_methods, get_context

from ddprof.analyzers.admit import jobs_among
from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.store import cache_folder, cache_key, load, save
from ddprof.analyzers.failure import failure_of
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import Measures, measure
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.whole_run.missing_ranks import missing_rank_notes
from ddprof.analyzers.replay.graph.build import build_graph
from ddprof.analyzers.replay.price import Pricer, pricer
from ddprof.analyzers.summarise import summarise
from ddprof.errors import DdprofError, NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers import Inventory, Source, discover, read, resolve_identities
from ddprof.readers.companions.manifests import read_step_times
from ddprof.readers.companions.stacks import stacks_paths
from ddprof.readers.companions.workers import workers_path
from ddprof.report.model import Report

Progress = Callable[[int, int, str], None]
WORKER_BYTES = 100 * 2**20  # a process that reads 250k events peaks near 100 MB (benchmarks/README.md)
SMALL_BYTES = 3_000_000  # below this in all, starting processes costs more than it saves


@dataclass(frozen=True)
class Options:
    """How to analyze.

    Processes (None: one per core), whether facts are cached, and whether incomplete input is an error.
    """

    workers: int | None = None
    cache: bool = True
    strict: bool = False
    max_memory: int | None = None
    progress: Progress | None = None


@dataclass(frozen=True)
class RankResult:
    """Facts of one source, or the one-line reason why there are none."""

    source: Source
    facts: RankFacts | None
    error: str | None = None

    @property
    def is_usable(self) -> bool:
        """True where there is a step to analyze."""
        return self.facts is not None and len(self.facts.steps) > 0


@dataclass(frozen=True)
class LoadedRun:
    """One run whose ranks have been put together; everything else is computed once, when first asked for."""

    label: str
    job: JobFacts
    notes: tuple[HealthNote, ...]
    sources: Mapping[str, Source] = field(default_factory=dict)  # by the path of the facts, for what is read again

    @cached_property
    def measures(self) -> Measures:
        """What the rules read."""
        return measure(self.job)

    @cached_property
    def pricer(self) -> Pricer:
        """Replays changes of this run."""
        return pricer(build_graph(self.job), self.measures)

    @cached_property
    def report(self) -> Report:
        """The whole report."""
        told = summarise(self.job, self.label, self.notes, self.measures, self.pricer)
        return replace(told, failure=failure_of(path for s in self.sources.values() for path in s.manifest_paths))


def analyze(paths: Sequence[str | os.PathLike[str]], options: Options | None = None) -> list[Report]:
    """One report per run found under `paths`. Raises NoUsableInput where nothing can be analyzed."""
    return [run.report for run in load_runs(paths, options)]


def load_runs(paths: Sequence[str | os.PathLike[str]], options: Options | None = None) -> Iterator[LoadedRun]:
    """The runs found under `paths`, one in memory at a time. Raises NoUsableInput where nothing can be analyzed."""
    options = options or Options()
    inventory = _discover(paths)
    found = 0
    failures: list[str] = []
    for label, sources in inventory.runs:
        results = list(_map(sources, options, label))
        usable = [r for r in results if r.is_usable]
        failures += [r.error or f"{r.source.label}: no events with a duration" for r in results if not r.is_usable]
        for number, job in enumerate(jobs_among([(r.source, r.facts) for r in usable if r.facts is not None], label)):
            found += 1
            unusable = [] if number else [r for r in results if not r.is_usable]  # told once
            members = [*(usable[at] for at in job.members), *unusable]
            yield _load(job.label, members, [*inventory.health, *job.notes], options)
    if not found:
        raise _without_traces(paths, "; ".join(failures[:3]) or "no trace found")


def _discover(paths: Sequence[str | os.PathLike[str]]) -> Inventory:
    try:
        return discover(paths)
    except NoUsableInput as error:
        raise _without_traces(paths, str(error)) from error


def _without_traces(paths: Sequence[str | os.PathLike[str]], reason: str) -> NoUsableInput:
    """The error of an input without a usable trace: of a job that failed it begins with why."""
    failure = failure_of(os.path.join(path, "manifest.json") for path in paths if "://" not in os.fspath(path))
    return NoUsableInput(reason if failure is None else f"the job failed: {failure.sentence} ({reason})")


def _load(label: str, results: Sequence[RankResult], found: Sequence[HealthNote], options: Options) -> LoadedRun:
    usable = [r for r in results if r.is_usable]
    facts = [r.facts for r in usable if r.facts is not None]
    identities, notes = resolve_identities([f.identity for f in facts], [f.path for f in facts])
    distinct: dict[int | None, RankFacts] = {}
    for identity, item in zip(identities, facts, strict=True):
        if identity.source != "duplicate":
            distinct.setdefault(identity.rank, replace(item, identity=identity))
    lost = [
        HealthNote(r.error or f"{r.source.label}: empty", "this rank is missing", "error")
        for r in results
        if not r.is_usable
    ]
    if len(distinct) < len(facts):
        lost.append(
            HealthNote(f"{len(facts) - len(distinct)} files repeat a rank", "only the first file of a rank is used")
        )
    job = job_facts(list(distinct.values()))
    if job.missing_ranks:
        manifests = {path: None for r in usable for path in r.source.manifest_paths}  # in order, once each
        job = replace(job, step_times=read_step_times(manifests))
        job = replace(job, health=(*job.health, *missing_rank_notes(job)))
    if options.strict and (job.missing_ranks or lost):
        raise NoUsableInput(
            f"{label}: incomplete input: {lost[0].issue if lost else f'ranks missing: {job.missing_ranks[:8]}'}"
        )
    sources = {r.facts.path: r.source for r in usable if r.facts is not None}
    return LoadedRun(label, job, (*found, *notes, *lost), sources)


def _map(sources: Sequence[Source], options: Options, label: str) -> Iterator[RankResult]:
    """Facts of every source, in order."""
    work = partial(read_facts, cache=options.cache)
    for done, result in enumerate(_results(work, sources, options), 1):
        if options.progress:
            options.progress(done, len(sources), label)
        yield result


def _results(work: Callable[[Source], RankResult], sources: Sequence[Source], options: Options) -> Iterator[RankResult]:
    workers = min(options.workers or _cores(), len(sources))
    if options.max_memory is not None:
        workers = max(1, min(workers, options.max_memory // WORKER_BYTES - 1))  # one share is the parent's
    if workers <= 1 or sum(s.size_bytes for s in sources) < SMALL_BYTES:
        yield from map(work, sources)
        return
    try:
        with _pool(workers) as pool:
            yield from pool.map(work, sources)
    except BrokenProcessPool as error:
        words = "a process that reads traces was ended from outside, as for want of memory: try fewer workers"
        raise DdprofError(words) from error


def _pool(workers: int) -> Executor:
    """Forked where possible: workers then share the interpreter and its imports; nothing here has started a thread."""
    method = "fork" if "fork" in get_all_start_methods() else "spawn"
    return ProcessPoolExecutor(workers, mp_context=get_context(method))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_facts(source: Source, cache: bool = True) -> RankResult:
    """Read and reduce one source; what the reader cannot use becomes the error of the result."""
    folder = None
    if cache and "://" not in source.path:
        key = cache_key({"source": repr(source), "companions": _stamps(source)})
        folder = cache_folder(source.path, key)
        known = load(folder, source.path) if folder else None
        if known is not None:
            return RankResult(source, known)
    try:
        facts = rank_facts(read(source))
    except DdprofError as error:
        return RankResult(source, None, str(error))
    changed = _changed(source)
    if folder is not None and not changed:
        try:
            save(facts, folder, source.path)
        except (OSError, ValueError):
            changed = [HealthNote("facts could not be cached", "the next analysis reads again", "info")]
    return RankResult(source, replace(facts, health=(*facts.health, *changed)))


def _changed(source: Source) -> list[HealthNote]:
    """A note where a file is no longer what was found: its facts are not those of the file as it is now."""
    if "://" in source.path or not source.mtime_ns:
        return []
    try:
        if os.stat(source.path).st_mtime_ns == source.mtime_ns:
            return []
        issue = f"{source.label}: changed while it was read"
    except OSError:
        issue = f"{source.label}: vanished while it was read"
    return [HealthNote(issue, "what was read may not be all of it: analyze again when it is written")]


def _stamps(source: Source) -> tuple[tuple[str, int, int], ...]:
    stamps = []
    beside = (source.sidecar_path, source.flight_recorder_path, workers_path(source.sidecar_path))
    for path in (*beside, *stacks_paths(source.sidecar_path), *source.manifest_paths):
        with suppress(OSError):  # not there, or no longer
            status = os.stat(path or "")
            stamps.append((path or "", status.st_size, status.st_mtime_ns))
    return tuple(stamps)
