"""The lanes of the timeline, for each rank: time by cause, steps, phases, host spans, streams and communication.

Clocks are aligned: times are ns on the reference clock since the first step mark of the run, as in evidence.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.job.ledger import cause_intervals
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.waits import ready_by_comm
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.dashboard.timeline.categories import CATEGORIES, CATEGORY
from ddprof.dashboard.timeline.index import RankSteps, SliceIndex, Slices, step_words, steps_of
from ddprof.model import Kind, RankTrace
from ddprof.readers import Source, read
from ddprof.report.phrases import clean
from ddprof.tables import NULL, Array, Table

# Lanes of all host activity of a rank: operators nested by depth, on each thread, and the loader's workers.
#
# Facts keep no operators (they are most of a trace), so the trace of the rank is read again.

MAX_DEPTH = 40  # rows of a thread; Python stacks beyond it are cut and the lane says so
WORKER_WORDS = "DataLoader worker"
# Category of the timeline for each kind of host event (categories.py).
CATEGORY_OF = {
    Kind.CPU_OP: "operator",
    Kind.ANNOTATION: "range",
    Kind.RUNTIME: "runtime",
    Kind.PYTHON: "frame",
    Kind.SYNC: "runtime",
    Kind.OTHER: "worker",
}
MAX_NAME_CHARS = 60  # of a thread or stream


def host_lanes(trace: RankTrace, codes: Array, category: dict[str, int]) -> Iterator[tuple[str, str, Slices]]:
    """(kind, label, slices) of each row, threads in order of their busy time; times on the rank's own clock.

    `codes`: name of the timeline for each string of the trace; `category`: code of each category.
    """
    events = trace.events
    lookup = np.full(max(Kind) + 1, -1, np.int64)
    for kind, name in CATEGORY_OF.items():
        lookup[kind] = category[name]
    on_host = trace.tracks["device"][events["track"]] == NULL
    kept = np.flatnonzero(on_host & (lookup[events["kind"]] >= 0) & (events["dur_ns"] > 0))
    tracks, which = np.unique(events["track"][kept], return_inverse=True)
    busy_ns = np.bincount(which, weights=events["dur_ns"][kept])
    for row in np.argsort(-busy_ns, kind="stable").tolist():
        yield from _thread(trace, kept[which == row], int(tracks[row]), codes, lookup)


def _thread(
    trace: RankTrace, event_rows: Array, track: int, codes: Array, lookup: Array
) -> Iterator[tuple[str, str, Slices]]:
    events = trace.events
    start, end = events["ts_ns"][event_rows], events["ts_ns"][event_rows] + events["dur_ns"][event_rows]
    words = thread_words(trace.tracks, track)
    is_worker = words.startswith(WORKER_WORDS)
    rows = disjoint_rows(start, end)
    for depth, row in enumerate(rows[:MAX_DEPTH]):
        of = event_rows[row]
        label = words if not depth else f"  depth {depth + 1}"
        if depth == MAX_DEPTH - 1 and len(rows) > MAX_DEPTH:
            label += f" of {len(rows)}"
        kind, name = lookup[events["kind"][of]], codes[events["name"][of]]
        part = Slices(start[row], end[row], kind, name, np.full(len(of), NULL))
        yield ("workers" if is_worker else "ops"), label, part


def disjoint_rows(start_ns: Array, end_ns: Array) -> list[Array]:
    """Indices of the spans of each row, outermost first; as many rows as spans run at once."""
    left = np.lexsort((-end_ns, start_ns))
    rows = []
    while len(left):
        chain = _first_fit(start_ns[left], end_ns[left])
        rows.append(left[chain])
        left = left[~chain]
    return rows


def _first_fit(start_ns: Array, end_ns: Array) -> Array:
    """Mask of spans, sorted by start, that can share a row: each begins at or after the end of the previous one."""
    taken = np.zeros(len(start_ns), bool)
    if not np.any(start_ns[1:] < end_ns[:-1]):
        taken[:] = True
        return taken
    following = np.maximum(np.searchsorted(start_ns, end_ns, side="left"), np.arange(1, len(start_ns) + 1)).tolist()
    at = 0
    while at < len(start_ns):
        taken[at] = True
        at = following[at]
    return taken


def thread_words(tracks: Table, track: int) -> str:
    """Name and number of a host thread, a row of TRACKS."""
    if not 0 <= track < len(tracks):
        return "thread not recorded"
    name, tid = clean(str(tracks["name"][track]))[:MAX_NAME_CHARS], clean(str(tracks["tid"][track]))
    return f"{name} (thread {tid})" if name and tid not in name.split() else name or f"thread {tid}"


def stream_words(tracks: Table, track: int) -> str:
    """Number of a stream, a row of TRACKS, with its device where the rank has several."""
    if not 0 <= track < len(tracks):
        return "stream not recorded"
    devices = np.unique(tracks["device"][tracks["device"] != NULL])
    number = int(tracks["stream"][track])
    words = f"stream {number}" if number != NULL else f"stream {clean(str(tracks['tid'][track]))[:MAX_NAME_CHARS]}"
    return words if len(devices) < 2 else f"device {int(tracks['device'][track])} {words}"


KINDS = ("causes", "steps", "phases", "host", "ops", "workers", "stream", "comm")


@dataclass(frozen=True)
class Lane:
    """One line of the timeline. `kind`: the table of the rank that a slice's `ref` points into (see `KINDS`)."""

    position: int
    rank: int
    host: str
    kind: str
    label: str
    slices: int


@dataclass(frozen=True)
class Timeline:
    """Lanes in drawing order, the names of slices, and the index over all slices."""

    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    index: SliceIndex
    steps: tuple[RankSteps, ...]

    @property
    def held_bytes(self) -> int:
        """Bytes of the slices and, approximately, of their names."""
        return self.index.held_bytes + sum(map(sys.getsizeof, self.names))


class _Names:
    """Names of all ranks as numbers."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes))

    def table(self, strings: tuple[str, ...]) -> Array:
        """Codes of a rank's strings, by the rank's own string numbers."""
        return np.array([self.code(clean(s)) for s in strings] or [0], np.int32)


def build_timeline(
    job: JobFacts, sources: Mapping[str, Source] | None = None, expanded: Collection[int] = ()
) -> Timeline:
    """All lanes of the job; for the ranks in `expanded` also every operator of the host, from their `sources`."""
    names, lanes, slices = _Names(), [], []
    for position, facts in enumerate(job.ranks):
        host = facts.identity.host or ""
        source = (sources or {}).get(facts.path) if job.rank_ids[position] in expanded else None
        for kind, label, part in _rank_lanes(job, position, facts, names, source):
            lanes.append(Lane(position, job.rank_ids[position], clean(host), kind, label, len(part)))
            slices.append(part)
    return Timeline(tuple(lanes), tuple(names.codes), SliceIndex(slices, len(CATEGORIES)), steps_of(job))


def _rank_lanes(
    job: JobFacts, position: int, facts: RankFacts, names: _Names, source: Source | None
) -> Iterator[tuple[str, str, Slices]]:
    codes, shift_ns = names.table(facts.strings), job.shift_ns(position)
    ready = ready_by_comm(job.members, position, facts)
    operators: Iterator[tuple[str, str, Slices]] = iter(())
    if source is not None:
        trace = read(source)
        operators = host_lanes(trace, names.table(trace.strings), CATEGORY)
    parts = [
        ("causes", "time goes to", _causes(facts, ready, names)),
        ("steps", "step", _steps(facts, job.step_numbers, names)),
        *(("phases", "phases", p) for p in _phases(facts, codes)),
        *(("host", label, p) for label, p in _host(facts, codes)),
        *operators,
        *_streams(facts, ready, codes),
        *(("comm", "communication", p) for p in _host_comms(facts, ready, codes)),
    ]
    for kind, label, part in parts:
        if len(part):
            moved = (part.start_ns - shift_ns, part.end_ns - shift_ns)
            yield kind, label, Slices(*moved, part.category, part.name, part.ref)


def _sorted(start: Array, end: Array, category: Array, name: Array, ref: Array) -> Slices:
    keep = np.flatnonzero(end > start)
    order = keep[np.argsort(start[keep], kind="stable")]
    return Slices(start[order], end[order], category[order], name[order], ref[order])


def _causes(facts: RankFacts, ready: Array, names: _Names) -> Slices:
    sets = cause_intervals(facts, ready)
    start = np.concatenate([s for s, _ in sets.values()])
    end = np.concatenate([e for _, e in sets.values()])
    category = np.concatenate([np.full(len(s), CAUSE_CODE[cause]) for cause, (s, _) in sets.items()])
    words = np.array([names.code(CAUSES[c].label) for c in CAUSES], np.int32)
    return _sorted(start, end, category, words[category], np.full(len(start), NULL))


def _steps(facts: RankFacts, numbers: Array, names: _Names) -> Slices:
    index, of_job = facts.steps["index"], {mark: number for number, mark in enumerate(numbers.tolist())}
    words = np.array([names.code(step_words(of_job.get(mark, -1), mark)) for mark in index.tolist()], np.int32)
    category = np.full(len(index), CATEGORY["step"])
    return _sorted(facts.steps["start_ns"], facts.steps["end_ns"], category, words, index)


def _phases(facts: RankFacts, codes: Array) -> Iterator[Slices]:
    table = facts.phases
    category = np.array([CATEGORY[Phase(p).name.lower()] for p in sorted(Phase)])[table["phase"]]
    for rows in disjoint_rows(table["start_ns"], table["end_ns"]):
        name = codes[table["name"][rows]]
        yield _sorted(table["start_ns"][rows], table["end_ns"][rows], category[rows], name, rows)


def _host(facts: RankFacts, codes: Array) -> Iterator[tuple[str, Slices]]:
    table = facts.host_spans
    for thread in np.unique(table["thread"]).tolist():
        on_thread = np.flatnonzero(table["thread"] == thread)
        words = f"host: {thread_words(facts.tracks, thread)}"
        for row in disjoint_rows(table["start_ns"][on_thread], table["end_ns"][on_thread]):
            rows = on_thread[row]
            cause, name = table["cause"][rows].astype(np.int64), codes[table["name"][rows]]
            yield words, _sorted(table["start_ns"][rows], table["end_ns"][rows], cause, name, rows)


def _streams(facts: RankFacts, ready: Array, codes: Array) -> Iterator[tuple[str, str, Slices]]:
    ops = facts.device_ops
    for track in np.unique(ops["track"]).tolist():
        on_stream = np.flatnonzero(ops["track"] == track)
        most = int(np.bincount(ops["work"][on_stream], minlength=3).argmax())
        words = f"{stream_words(facts.tracks, track)}: {('compute', 'communication', 'copies')[most]}"
        for depth, row in enumerate(disjoint_rows(ops["start_ns"][on_stream], ops["end_ns"][on_stream])):
            label = words if not depth else f"{words} ({depth + 1})"
            yield "stream", label, _device(facts, on_stream[row], ready, codes)


def _device(facts: RankFacts, rows: Array, ready: Array, codes: Array) -> Slices:
    """Device operations; a communication is split at the arrival of its last member, into waiting and moving data."""
    ops = facts.device_ops
    start, end, name = ops["start_ns"][rows], ops["end_ns"][rows], codes[ops["name"][rows]]
    category = np.array([CAUSE_CODE["compute"], CAUSE_CODE["comm_transfer"], CAUSE_CODE["memcpy"]])[ops["work"][rows]]
    is_comm, moves = ops["comm"][rows] != NULL, start.copy()
    moves[is_comm] = ready[ops["comm"][rows][is_comm]]
    return _split(start, moves, end, category, name, rows)


def _split(start: Array, moves: Array, end: Array, category: Array, name: Array, rows: Array) -> Slices:
    """The work of each row from where it `moves` on, and before that waiting; sorted."""
    moves = np.clip(moves, start, end)
    waits = np.flatnonzero(moves > start)
    waiting = np.full(len(waits), CAUSE_CODE["comm_wait"])
    return _sorted(
        np.concatenate((moves, start[waits])),
        np.concatenate((end, moves[waits])),
        np.concatenate((category, waiting)),
        np.concatenate((name, name[waits])),
        np.concatenate((rows, rows[waits])),
    )


def _host_comms(facts: RankFacts, ready: Array, codes: Array) -> Iterator[Slices]:
    """Communication that runs on the host (CPU ranks), in as many rows as run at once."""
    comms = facts.comms
    on_host = np.flatnonzero(comms["device_op"] == NULL)
    for row in disjoint_rows(comms["start_ns"][on_host], comms["end_ns"][on_host]):
        rows = on_host[row]
        category, name = np.full(len(rows), CAUSE_CODE["comm_transfer"]), codes[comms["name"][rows]]
        yield _split(comms["start_ns"][rows], ready[rows], comms["end_ns"][rows], category, name, rows)
