"""The engine: files to reports.

Ranks are read and reduced one at a time, in a pool of processes or on a Dask cluster; only their facts come back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from msgspec import Struct

from ddprof.analyzers.cached_facts import Alike, Cache, Keeping, Recall, recall_of
from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.numbered import numbered_collectives, recorded_ns, sequence_ranges
from ddprof.analyzers.failure import failure_of
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import Measures, measure
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.whole_run.missing_ranks import missing_rank_notes
from ddprof.analyzers.replay.graph.build import build_graph
from ddprof.analyzers.replay.price import Pricer, pricer
from ddprof.analyzers.sampling import ALL, parse_ranks, sample, sample_notes
from ddprof.analyzers.summarise import summarise
from ddprof.analyzers.workers.cluster import connected
from ddprof.analyzers.workers.local import LOCAL, in_processes, parse_engine, processes
from ddprof.errors import DdprofError, NoUsableInput, UsageError
from ddprof.model import HealthNote
from ddprof.readers import Inventory, Source, discover, notes_by_run, read, resolve_identities
from ddprof.readers.admission.discover import NO_TRACE
from ddprof.readers.admission.jobs import Recording, admission_notes, split_jobs
from ddprof.readers.admission.runs import run_folder
from ddprof.readers.files.names import stem
from ddprof.readers.files.unpacking import among
from ddprof.readers.formats import formats
from ddprof.readers.side_files.manifests import read_commit, read_step_times, run_end
from ddprof.readers.source import OnlyLogs
from ddprof.report.model import Report
from ddprof.untrusted.stores import refusals

Progress = Callable[[int, int, str], None]


class Options(Struct, frozen=True):
    """Options of an analysis.

    `workers`: processes (None: one per core). `cache`: whether, or in which folder or URL, facts are kept. `strict`:
    incomplete input is an error. `engine` reads the ranks: "local", "dask" (a local Dask cluster) or
    "dask://HOST:PORT". `ranks`: "all", "0,7", "sample:32". `window`: one of several trace windows of a rank, from 1;
    None: the last.
    """

    workers: int | None = None
    cache: Cache = True
    strict: bool = False
    max_memory: int | None = None
    progress: Progress | None = None
    engine: str = LOCAL
    ranks: str = ALL
    window: int | None = None


@dataclass(frozen=True)
class RankResult:
    """Facts of one source, or a one-line reason why there are none.

    `was_unreachable`: the file itself is not at fault; another attempt or machine may read it. `is_lasting`: another
    attempt would fail too.
    """

    source: Source
    facts: RankFacts | None
    error: str | None = None
    was_unreachable: bool = False
    is_lasting: bool = True

    @property
    def is_usable(self) -> bool:
        """True where there is a step to analyze."""
        return self.facts is not None and len(self.facts.steps) > 0


Found = Iterator[tuple[int, RankResult]]  # results with the positions of their sources, as they come
Results = tuple[list[RankResult], list[HealthNote]]  # in the order of their sources, and what could not be kept


@dataclass(frozen=True)
class LoadedRun:
    """One run with its ranks merged; everything else is computed lazily, once."""

    label: str
    job: JobFacts
    notes: tuple[HealthNote, ...]
    sources: Mapping[str, Source] = field(default_factory=dict)  # by the path of the facts, for what is read again

    @cached_property
    def measures(self) -> Measures:
        """The measures that rules read."""
        return measure(self.job)

    @cached_property
    def pricer(self) -> Pricer:
        """The pricer, which replays changes of this run."""
        return pricer(build_graph(self.job), self.measures)

    @cached_property
    def report(self) -> Report:
        """The whole report."""
        report = summarise(self.job, self.label, self.notes, self.measures, self.pricer)
        manifests = [path for s in self.sources.values() for path in s.manifest_paths]
        report = replace(report, run=replace(report.run, commit=read_commit(manifests)))
        return replace(report, failure=failure_of(manifests))


def analyze(paths: Sequence[str | os.PathLike[str]], options: Options | None = None) -> list[Report]:
    """One report per run found under `paths`. Raises NoUsableInput where nothing can be analyzed."""
    return [run.report for run in load_runs(paths, options)]


def _failure(result: RankResult) -> str:
    """Reason why a file gives no facts; the defect where it is known."""
    notes = result.facts.health if result.facts is not None else ()
    why = next((note.issue for note in notes if note.severity == "error"), "")
    return result.error or why or f"{result.source.label}: no events with a duration"


def load_runs(paths: Sequence[str | os.PathLike[str]], options: Options | None = None) -> Iterator[LoadedRun]:
    """The runs found under `paths`, one in memory at a time. Raises NoUsableInput where nothing can be analyzed."""
    options = options or Options()
    wanted = parse_ranks(options.ranks)
    inventory = _discover(paths, options.window)
    loaded = 0
    failures: list[str] = []
    with _mapping(options) as mapped:
        for (label, sources), found_notes in zip(inventory.runs, notes_by_run(inventory), strict=True):
            sampled = sample(sources, wanted)
            results, keeping_notes = mapped(sampled.sources, label)
            usable = [r for r in results if r.is_usable]
            failures += [_failure(r) for r in results if not r.is_usable]
            whole = [(r.source, r.facts) for r in usable if r.facts is not None]
            for number, job in enumerate(jobs_among(whole, label)):
                loaded += 1
                unusable = [] if number else [r for r in results if not r.is_usable]  # told once
                members = [*(usable[at] for at in job.members), *unusable]
                run = _load(job.label, members, [*found_notes, *job.notes], options)
                yield replace(run, notes=(*run.notes, *sample_notes(sampled, run.job), *keeping_notes))
    if not loaded:
        raise _without_traces(paths, "; ".join(failures[:3]) or NO_TRACE)


def _discover(paths: Sequence[str | os.PathLike[str]], window: int | None) -> Inventory:
    try:
        return discover(paths, window)
    except NoUsableInput as error:
        why = _without_traces(paths, str(error))
        raise (error if isinstance(error, OnlyLogs) and str(why) == str(error) else why) from error


def _without_traces(paths: Sequence[str | os.PathLike[str]], reason: str) -> NoUsableInput:
    """The error for input without a usable trace; for a failed job it begins with the cause."""
    failure = failure_of(os.path.join(path, "manifest.json") for path in paths)
    if failure is not None:
        return NoUsableInput(f"the job failed: {failure.sentence} ({reason})")
    end = next(filter(None, map(run_end, map(str, paths))), None)
    if end is None or NO_TRACE not in reason:
        return NoUsableInput(reason)
    job = "the job goes on, or was killed," if end.exit_code is None else "the job ended"
    return NoUsableInput(f"{reason}: {job} before its first trace window closed")


def _load(label: str, results: Sequence[RankResult], admission: Sequence[HealthNote], options: Options) -> LoadedRun:
    usable = [r for r in results if r.is_usable]
    facts = [r.facts for r in usable if r.facts is not None]
    identities, notes = resolve_identities([f.identity for f in facts], [f.path for f in facts])
    distinct: dict[int | None, RankFacts] = {}
    for identity, item in zip(identities, facts, strict=True):
        if identity.source != "duplicate":
            distinct.setdefault(identity.rank, item if item.identity == identity else replace(item, identity=identity))
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
    return LoadedRun(label, job, (*admission, *notes, *lost), sources)


@contextmanager
def _mapping(options: Options) -> Iterator[Callable[[Sequence[Source], str], Results]]:
    """The function that maps the sources of a run, with its label, to their results in order."""
    engine = parse_engine(options.engine)
    recall = recall_of(options.cache)
    count = processes(options.workers, options.max_memory)
    if not engine.is_dask:
        local = partial(in_processes, count, read_facts)
        yield lambda sources, label: _in_order(local, sources, recall, options, label)
        return
    if engine.address is not None and (options.workers or options.max_memory):
        raise UsageError(f"--engine {engine.text}: its workers and their memory are the cluster's own")
    with connected(engine, count) as cluster:

        def near_the_data(sources: Sequence[Source]) -> Found:
            return cluster.results(read_facts, sources, _failed)

        yield lambda sources, label: _in_order(near_the_data, sources, recall, options, f"{label} ({cluster.link})")


def _in_order(
    read_all: Callable[[Sequence[Source]], Found],
    sources: Sequence[Source],
    recall: Recall | None,
    options: Options,
    label: str,
) -> Results:
    """The result of every source in order, from the cache or read; this process alone writes the cache."""
    keys = recall.keys_of(sources) if recall else [None] * len(sources)
    alike = Alike()
    kept = recall.all_of(sources, keys, alike) if recall else [None] * len(sources)
    results = {at: RankResult(sources[at], facts) for at, facts in enumerate(kept) if facts is not None}
    unknown = [at for at in range(len(sources)) if at not in results]
    with Keeping(recall) as keeping:
        for number, result in read_all([sources[at] for at in unknown]) if unknown else ():
            at = unknown[number]
            results[at] = result
            if result.facts is not None:
                results[at] = replace(result, facts=alike.shared(result.facts))
            if result.facts is not None and result.is_lasting and not _changed(result.source):
                keeping.take(keys[at], result.facts)
            if options.progress:
                options.progress(len(results), len(sources), label)
    return [results[at] for at in range(len(sources))], keeping.notes


def _failed(source: Source, reason: str) -> RankResult:
    return RankResult(source, None, reason)


def read_facts(source: Source) -> RankResult:
    """Read and reduce one source; an error of the reader becomes the result's."""
    refused = refusals()
    try:
        with among(source.among):
            facts = rank_facts(read(source))
    except DdprofError as error:
        return RankResult(source, None, str(error), isinstance(error.__cause__, OSError))
    facts = replace(facts, health=(*facts.health, *_changed(source)))
    return RankResult(source, facts, is_lasting=refusals() == refused)


def _changed(source: Source) -> list[HealthNote]:
    """A note where a file has changed since it was found."""
    if "://" in source.path or not source.mtime_ns:
        return []
    try:
        if os.stat(source.path).st_mtime_ns == source.mtime_ns:
            return []
        issue = f"{source.label}: changed while it was read"
    except OSError:
        issue = f"{source.label}: vanished while it was read"
    return [HealthNote(issue, "it may be incomplete: analyze again when it is finished")]


class Admitted(Struct, frozen=True):
    """One job: its label, the positions of its files in the folder, and the assumptions made."""

    label: str
    members: tuple[int, ...]
    notes: tuple[HealthNote, ...] = ()


def jobs_among(recorded: Sequence[tuple[Source, RankFacts]], label: str) -> list[Admitted]:
    """The jobs in files that lie together under `label`; a file that holds a whole run is one job."""
    files = {source.path for source, _ in recorded}
    if len(files) < 2 and all(formats()[source.format].is_run for source, _ in recorded):
        return [Admitted(label, tuple(range(len(recorded))))] if recorded else []
    recordings = [replace(recording(facts), folder=run_folder(source)) for source, facts in recorded]
    jobs = split_jobs(recordings)
    if len(jobs) == 1:
        return [Admitted(label, tuple(jobs[0]))]
    notes = tuple(admission_notes(jobs, recordings))
    names = [stem(recorded[job[0]][0].member or recorded[job[0]][0].path) for job in jobs]
    return [Admitted(f"{label}/{name}", tuple(job), notes) for name, job in zip(names, jobs, strict=True)]


def recording(facts: RankFacts) -> Recording:
    """Evidence in one rank's facts on which job it belongs to."""
    shared = [g for g in facts.process_groups if len(g.ranks) > 1 or (g.size or 0) > 1]
    return Recording(
        identity=facts.identity,
        path=facts.path,
        window_ns=recorded_ns(facts),
        communications=len(facts.comms),
        numbered=numbered_collectives(facts),
        sequences=sequence_ranges(facts),
        groups=frozenset((g.name, g.size or len(g.ranks)) for g in shared if not g.ranks),
        group_ranks=frozenset(frozenset(g.ranks) for g in shared if g.ranks),
    )
