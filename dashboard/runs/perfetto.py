"""A run as one trace for the Perfetto UI, written by `ddprof export` and offered by the timeline.

The ranks' traces are read again, one at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.dashboard.numbers import Numbers
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.errors import UsageError
from ddprof.readers import read
from ddprof.report.export.perfetto import write_perfetto
from ddprof.report.export.pftrace import Arrow, RankSlices
from ddprof.report.redaction.redact import Redaction, redacted_trace
from ddprof.tables import NULL, Array
from ddprof.units import format_ranks

PERFETTO_UI = "https://ui.perfetto.dev"
LEAST_ARROW_SHARE = 0.01  # of a step: shorter waits are not drawn
WHOLE_EVENTS = 1_000_000  # up to here a hand-over holds the whole run: the Perfetto UI opens it in some seconds
MAX_EVENTS = 4_000_000  # of the ranks that are read for a hand-over
BESIDE = 1.0  # of the window's length, kept on both sides where a hand-over is cut
Report = Callable[[int, int, str], None]


def write_run(
    opened: OpenRun,
    file: Path,
    chosen: Collection[int],
    progress: Report | None = None,
    redaction: Redaction | None = None,
    window_ns: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """Write the trace of some ranks, or of a window of them; returns slices and waits. Raises OSError."""
    job = opened.job
    arrows = list(wait_arrows(job, int(LEAST_ARROW_SHARE * job.step_ns), chosen))
    if window_ns is not None:
        arrows = [arrow for arrow in arrows if arrow.to_ns > window_ns[0] and arrow.from_ns < window_ns[1]]
    slices = _slices(opened, chosen, progress, redaction, window_ns)
    count = write_perfetto(file, redaction.report() if redaction else opened.report, slices, arrows)
    return count, len(arrows)


def _slices(
    opened: OpenRun,
    chosen: Collection[int],
    progress: Report | None,
    redaction: Redaction | None,
    window_ns: tuple[int, int] | None,
) -> Iterator[RankSlices]:
    """The chosen ranks, each read again from its trace and freed when written."""
    wanted = [(p, rank) for p, rank in enumerate(opened.job.rank_ids) if rank in chosen]
    for done, (position, rank) in enumerate(wanted):
        if progress:
            progress(done, len(wanted), f"rank {rank}")
        facts, shift_ns = opened.job.ranks[position], opened.job.shift_ns(position)
        trace = read(opened.sources[facts.path])
        trace = redacted_trace(trace, redaction) if redaction else trace
        if window_ns is not None:  # the events that touch it, whole
            start_ns, end_ns = trace.events["ts_ns"], trace.events["ts_ns"] + trace.events["dur_ns"]
            kept = (start_ns < window_ns[1] + shift_ns) & (end_ns > window_ns[0] + shift_ns)
            trace = replace(trace, events=trace.events.take(kept))
        yield RankSlices(rank, trace, shift_ns, facts.steps)


def hand_over(opened: OpenRun, ranks: Numbers | Collection[int], lo_ns: int, hi_ns: int) -> tuple[bytes, str]:
    """The trace for a view of some ranks, compressed, and its content in words: the whole run unless that is too much.

    Raises UsageError where the ranks hold more than is read at once.
    """
    chosen = [rank for rank in opened.job.rank_ids if rank in ranks]
    if not chosen:
        raise UsageError("none of these ranks is in this run")
    counts = dict(zip(opened.job.rank_ids, (facts.counts.get("events", 0) for facts in opened.job.ranks), strict=True))
    events = sum(counts[rank] for rank in chosen)
    if events > MAX_EVENTS:
        words = f"{format_ranks(chosen)}: {events:,} events, {MAX_EVENTS:,} at once are handed over"
        raise UsageError(f"{words}; open fewer ranks, or use ddprof export --ranks")
    beside = int((hi_ns - lo_ns) * BESIDE)
    window = None if events <= WHOLE_EVENTS else (lo_ns - beside, hi_ns + beside)
    with tempfile.TemporaryDirectory(prefix="ddprof-perfetto-") as folder:
        file = Path(folder) / "trace.json.gz"
        try:
            count, _ = write_run(opened, file, chosen, window_ns=window)
            packed = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{error.filename}: cannot be read again: {error.strerror}") from error
    part = "the whole run" if window is None else "the view and as much beside it"
    return packed, f"{count:,} slices of {format_ranks(chosen)}: {part}"


def checked_ui(address: str) -> str:
    """The address of a Perfetto UI. Raises UsageError for an invalid one."""
    try:
        parts = urlsplit(address)
        is_page = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        is_page = False
    if not is_page or any(character.isspace() for character in address):
        raise UsageError(f"--perfetto-ui: want an address such as {PERFETTO_UI}")
    return address


def wait_arrows(job: JobFacts, least_ns: int, chosen: Collection[int]) -> Iterator[Arrow]:
    """Waits of at least `least_ns` for a known last member, between the chosen ranks, the longest first."""
    members, late = job.members, job.instances["late"]
    is_last = members["rank"] == late[members["instance"]]
    last_row = np.full(len(late), NULL, np.int64)
    last_row[members["instance"][is_last]] = np.flatnonzero(is_last)
    wait = members["ready_ns"] - members["start_ns"]
    of_chosen = np.isin(members["rank"], [at for at, rank in enumerate(job.rank_ids) if rank in chosen])
    culprit = last_row[members["instance"]]
    victim = np.flatnonzero((culprit != NULL) & ~is_last & (wait >= least_ns) & of_chosen)
    victim = victim[of_chosen[culprit[victim]]]
    victim = victim[np.argsort(-wait[victim], kind="stable")]
    rank_ids, shifts = np.array(job.rank_ids), job.shifts_ns
    ends = []
    for rows, times in ((culprit[victim], members["start_ns"]), (victim, members["ready_ns"])):
        ranks = members["rank"][rows]
        ends += [rank_ids[ranks].tolist(), _tracks(job, rows).tolist(), (times[rows] - shifts[ranks]).tolist()]
    for arrow in map(Arrow, *ends):
        if NULL not in (arrow.from_track, arrow.to_track):
            yield arrow


def _tracks(job: JobFacts, rows: Array) -> Array:
    ranks, comms = job.members["rank"][rows], job.members["comm"][rows]
    tracks = np.zeros(len(rows), np.int64)
    for position, facts in enumerate(job.ranks):
        of_rank = ranks == position
        tracks[of_rank] = facts.comms["track"][comms[of_rank]]
    return tracks
