"""Facts of files that lie together -> the jobs they are of, each a run with a label of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.numbered import numbered_collectives, recorded_ns, sequence_ranges
from ddprof.model import HealthNote
from ddprof.readers import Source
from ddprof.readers.admission.jobs import Recording, admission_notes, split_jobs
from ddprof.readers.admission.runs import run_folder
from ddprof.readers.files.names import stem
from ddprof.readers.formats import formats


@dataclass(frozen=True)
class Admitted:
    """One job: its label, the positions of its files among those that lie together, and what was assumed."""

    label: str
    members: tuple[int, ...]
    notes: tuple[HealthNote, ...] = ()


def jobs_among(found: Sequence[tuple[Source, RankFacts]], label: str) -> list[Admitted]:
    """The jobs of files that lie together under `label`. A file that holds a whole run is one."""
    files = {source.path for source, _ in found}
    if len(files) < 2 and all(formats()[source.format].is_run for source, _ in found):
        return [Admitted(label, tuple(range(len(found))))] if found else []
    recordings = [replace(recording(facts), folder=run_folder(source)) for source, facts in found]
    jobs = split_jobs(recordings)
    if len(jobs) == 1:
        return [Admitted(label, tuple(jobs[0]))]
    notes = tuple(admission_notes(jobs, recordings))
    names = [stem(found[job[0]][0].member or found[job[0]][0].path) for job in jobs]
    return [Admitted(f"{label}/{name}", tuple(job), notes) for name, job in zip(names, jobs, strict=True)]


def recording(facts: RankFacts) -> Recording:
    """The evidence in one rank's facts."""
    shared = [g for g in facts.process_groups if len(g.ranks) > 1 or (g.size or 0) > 1]
    return Recording(
        identity=facts.identity,
        path=facts.path,
        window_ns=recorded_ns(facts),
        communications=len(facts.comms),
        numbered=numbered_collectives(facts),
        sequences=sequence_ranges(facts),
        groups=frozenset((g.name, g.size or len(g.ranks)) for g in shared if not g.ranks),
        group_ranks=frozenset(tuple(sorted(g.ranks)) for g in shared if g.ranks),
    )
