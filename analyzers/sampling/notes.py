"""What a report says of a sample: what it shows, what cannot be known from it, and which rank to read next."""

from __future__ import annotations

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.sampling.choose import RankSample
from ddprof.analyzers.sampling.next_rank import next_rank
from ddprof.analyzers.sampling.traits import counts
from ddprof.model import HealthNote

_UNKNOWN = "the others are in no average and cannot be named as a cause; what waits for them is charged to nobody"


def sample_notes(sample: RankSample, job: JobFacts) -> list[HealthNote]:
    """The notes; [] where all ranks were read."""
    if not sample.unread:
        return []
    read = f"{len(sample.sources)} of {sample.total} ranks were read (--ranks {sample.wanted.text})"
    notes = [HealthNote(f"{read}, {_coverage(sample)}", _UNKNOWN, "info")]
    following = next_rank(job, sample)
    if following is not None:
        words = f"read rank {following.rank} next: {following.why}"
        notes.append(HealthNote(words, f"--ranks {sample.wanted.and_rank(following.rank)}", "info"))
    return notes


def _coverage(sample: RankSample) -> str:
    """Which stages, hosts and groups the sample shows, of those that are known."""
    read, known = counts(sample.read), counts([*sample.read, *(shown for _, shown in sample.unread)])
    if not known:
        return "spread evenly: neither names nor headers tell stages, hosts or groups"
    parts = []
    for kind, total in known.items():
        shown = read.get(kind, 0)
        if total > 1:
            parts.append(f"all {total} {kind}s" if shown == total else f"{shown} of {total} {kind}s")
    return f"which show {', '.join(parts)}" if parts else "all of one host"
