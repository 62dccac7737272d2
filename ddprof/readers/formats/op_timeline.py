"""Operation-level timelines of production Megatron jobs: one file, every worker, one span per operation of a step.

The JSON form states communication from the moment its last member arrived, the parquet form from each worker's own
call. Both are read as one RankTrace per worker: operations are device work, calls into other workers are communication
with their group, and the step marks are those of the job. Source: ByteDance-Seed/StragglerAnalysis.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, ProcessGroup, RankTrace
from ddprof.readers.columns.assemble import DAY_NS
from ddprof.readers.columns.event_columns import GC_NAME, EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.files.names import stem
from ddprof.readers.files.opening import one_line
from ddprof.readers.format import Format, Sample
from ddprof.readers.json_text.load import load_events
from ddprof.readers.json_text.trace_event import as_text
from ddprof.readers.numbers import LARGEST_RANK, MAX_NS, one_int, to_int64, without_holes
from ddprof.readers.source import Source
from ddprof.tables import NULL, Array, library

_PARQUET_COLUMNS = ("dp_rank", "stage", "step", "optype", "start_ts", "duration", "seq_id")
_MARKS = re.compile(rb'"(?:forward|backward)-(?:compute|send|recv)"')
_STAGE = re.compile(r"PP rank (\d+)")
_WORLD_OPS = ("optimizer-clip-main-grad",)  # the norm of all gradients
_LARGEST_STEP = 10**15  # a step each microsecond for thirty years
_SLACK_NS = 2_000  # the files round to about a microsecond


@dataclass(frozen=True)
class TimelineOperations:
    """Every operation of a job as parallel arrays, times in ns from an arbitrary start shared by all workers."""

    dp: Array
    stage: Array
    step: Array
    name: Array  # of str
    start_ns: Array
    dur_ns: Array
    is_simulated: bool = False
    states_waits: bool = True
    notes: tuple[HealthNote, ...] = ()

    @property
    def sizes(self) -> tuple[int, int]:
        """Data-parallel and pipeline size."""
        return int(self.dp.max()) + 1, int(self.stage.max()) + 1

    def take(self, rows: Array) -> TimelineOperations:
        """A selection."""
        names = ("dp", "stage", "step", "name", "start_ns", "dur_ns")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


@lru_cache(maxsize=2)
def load(path: str, member: str | None, state: tuple[int, str]) -> TimelineOperations:
    """All operations of a file, cached because each of its workers is read separately. Raises NoUsableInput."""
    timeline = _from_parquet(path) if path.endswith(".parquet") else _from_json(path, member)
    sound = _sound(timeline)
    left_out = int((~sound).sum())
    if not sound.any():
        raise NoUsableInput(f"{path}: no operations")
    kept = timeline.take(np.flatnonzero(sound))
    if kept.sizes[0] * kept.sizes[1] > LARGEST_RANK:
        raise NoUsableInput(f"{path}: its operations are of more workers than any job has")
    if not left_out:
        return timeline
    issue = f"{path}: {left_out} operations without a usable worker, step, start or length"
    return replace(kept, notes=(*timeline.notes, HealthNote(issue, "left out")))


def _sound(ops: TimelineOperations) -> Array:
    """Mask of the plausible operations: with worker, step and length, and a start near those of their step."""
    sound = without_holes(ops.dp) & without_holes(ops.stage) & (ops.step >= 0) & (ops.step <= _LARGEST_STEP)
    sound &= (ops.dur_ns >= 0) & (ops.dur_ns <= DAY_NS) & (np.abs(ops.start_ns) < MAX_NS)
    rows = np.flatnonzero(sound)
    rows = rows[np.lexsort((ops.start_ns[rows], ops.step[rows]))]
    _, first, of_step, count = np.unique(ops.step[rows], return_index=True, return_inverse=True, return_counts=True)
    middle = ops.start_ns[rows[first + count // 2]][of_step]
    sound[rows] = np.abs(ops.start_ns[rows] - middle) <= DAY_NS
    return np.asarray(sound, bool)


def worker_parts(source: Source) -> list[str]:
    """The workers of a file, as part names ("rank 3"), ordered by rank."""
    operations = load(source.path, source.member, source.state)
    dp_size, _ = operations.sizes
    return [f"rank {rank}" for rank in np.unique(operations.stage * dp_size + operations.dp).tolist()]


def is_simulated(source: Source) -> bool:
    """True for the output of a simulator, which states no microbatches; False for a file that its reader refuses."""
    try:
        return load(source.path, source.member, source.state).is_simulated
    except NoUsableInput:
        return False


def _from_json(path: str, member: str | None) -> TimelineOperations:
    events, notes = load_events(path, member)
    stages = {
        (e.pid, e.tid): one_int(match[1])
        for e in events
        if e.ph == "M" and (match := _STAGE.search(as_text(e.args.get("name")) or ""))
    }
    spans = [e for e in events if e.ph == "X" and "step" in e.args]
    if not stages and spans:
        raise NoUsableInput(f"{path}: the threads do not say which pipeline stage they are")
    spans = [e for e in spans if (e.pid, e.tid) in stages]
    return TimelineOperations(
        dp=to_int64([e.pid for e in spans]),
        stage=np.array([stages[e.pid, e.tid] for e in spans], np.int64),
        step=to_int64([e.args["step"] for e in spans]),
        name=np.array([e.name for e in spans], object),
        start_ns=np.array([e.ts_ns for e in spans], np.int64),
        dur_ns=np.array([e.dur_ns for e in spans], np.int64),
        is_simulated=bool(spans) and all(e.args.get("mb_id") is None for e in spans),
        states_waits=False,
        notes=tuple(notes),
    )


def _from_parquet(path: str) -> TimelineOperations:
    pa, parquet = library("pyarrow"), library("pyarrow.parquet")
    try:
        table = parquet.read_table(path, columns=list(_PARQUET_COLUMNS))
        columns = {name: table.column(name).cast("float64") for name in _PARQUET_COLUMNS if name != "optype"}
        numbers = {name: np.asarray(column.to_numpy(), np.float64) for name, column in columns.items()}  # NaN: null
    except (pa.ArrowException, OSError, ValueError) as error:
        raise NoUsableInput(f"{path}: cannot be read as a parquet table of operations: {one_line(error)}") from error
    return TimelineOperations(
        dp=_whole(numbers["dp_rank"]),
        stage=_whole(numbers["stage"]),
        step=_whole(numbers["step"]),
        name=np.array([as_text(name) or "" for name in table.column("optype").to_pylist()], object),
        start_ns=_whole(numbers["start_ts"] * 1e9),
        dur_ns=_whole(numbers["duration"] * 1e9),
    )


def _whole(values: Array) -> Array:
    """The nearest integers; NULL outside the bounds of times."""
    usable = np.abs(values) < MAX_NS
    return np.where(usable, np.rint(np.where(usable, values, 0)).astype(np.int64), NULL)


def read_op_timeline(source: Source) -> RankTrace:
    """One worker of the file (`source.part` is "rank N", N = stage * dp_size + dp rank, Megatron's order)."""
    whole = load(source.path, source.member, source.state)
    dp_size, pp_size = whole.sizes
    rank = int((source.part or "rank 0").split()[-1])
    stage, dp = divmod(rank, dp_size)
    laid_out, marks = _consecutive_steps(whole)
    of_worker = laid_out.take(np.flatnonzero((laid_out.dp == dp) & (laid_out.stage == stage)))
    if not len(of_worker.dp):
        raise NoUsableInput(f"{source.label}: no such worker")
    start_ns = of_worker.start_ns if of_worker.states_waits else _with_waits(of_worker, marks)
    columns = EventColumns()
    _, begun, ended = (np.array(column, np.int64) for column in zip(*marks, strict=True))
    columns.mark_steps("main", begun, ended, [number for number, _, _ in marks])
    collected = np.flatnonzero(of_worker.name == "gc")
    lengths_ns, track = of_worker.dur_ns[collected], ("host", "main")
    columns.append(
        Kind.PYTHON, [GC_NAME] * len(collected), [track] * len(collected), of_worker.start_ns[collected], lengths_ns
    )
    groups = _Groups(columns, rank, dp_size, pp_size)
    end_ns = of_worker.start_ns + of_worker.dur_ns
    names = [str(n) for n in of_worker.name]
    rows = np.flatnonzero(of_worker.name != "gc")
    names = [names[r] for r in rows]
    tracks = [("device", _stream(n)) for n in names]
    first = columns.append(Kind.KERNEL, names, tracks, start_ns[rows], (end_ns - start_ns)[rows])
    for at, name in enumerate(names):
        groups.record(first + at, name)
    for number, (pid, tid) in enumerate(sorted(set(tracks))):
        columns.name_track(pid, tid, tid, device=0, stream=number)
    columns.categories.update(names)
    first_rank = int((whole.stage * dp_size + whole.dp).min())
    health = list(whole.notes) if rank == first_rank else []  # once per file
    health += [] if of_worker.states_waits or rank else [_WAITS_NOTE]
    identity = Identity(rank, "content", dp_size * pp_size, host=stem(source.path), backend="nccl")
    top = {"dp_size": dp_size, "pp_size": pp_size, "pipeline_stage": stage, "dp_rank": dp}
    return finish(source, columns, identity, Device("cuda"), health, top=top)


_WAITS_NOTE = HealthNote(
    "the timeline records transfers only, no waits",
    "each call is assumed to start when the worker's previous operation ended",
    "info",
)


def _consecutive_steps(whole: TimelineOperations) -> tuple[TimelineOperations, list[tuple[int, int, int]]]:
    """The operations with the steps, which lie at arbitrary times, laid end to end; (number, start, end) of each."""
    order = np.argsort(whole.step, kind="stable")
    numbers, first_rows, counts = np.unique(whole.step[order], return_index=True, return_counts=True)
    first = np.minimum.reduceat(whole.start_ns[order], first_rows)
    length = np.maximum.reduceat((whole.start_ns + whole.dur_ns)[order], first_rows) - first
    if length.sum(dtype=np.float64) >= MAX_NS:
        raise NoUsableInput("the steps of the timeline are longer than any job")
    now = np.concatenate(([0], np.cumsum(length)))
    start = whole.start_ns.copy()
    start[order] += np.repeat(now[:-1] - first, counts)
    marks = list(zip(numbers.tolist(), now[:-1].tolist(), now[1:].tolist(), strict=True))
    return replace(whole, start_ns=start), marks


def _with_waits(ops: TimelineOperations, marks: list[tuple[int, int, int]]) -> Array:
    """Starts of communication, moved back to the end of the worker's previous operation (or the start of the step).

    A call comes after the computation that began before it, whenever that is stamped as ended: a transfer is stamped by
    the clock of both its sides, and begins up to 0.1 ms before the computation that it waited for has ended. A transfer
    that goes on meanwhile belongs to the same batch, and is no previous operation.
    """
    is_call = np.array([_operation(str(n)) is not None for n in ops.name], bool)
    end_ns = ops.start_ns + ops.dur_ns
    ends = np.sort(np.concatenate((end_ns[is_call], [start for _, start, _ in marks])))
    waited_from = _last(ends, ends, ops.start_ns + _SLACK_NS)
    order = np.argsort(ops.start_ns[~is_call], kind="stable")
    began, ended = ops.start_ns[~is_call][order], np.maximum.accumulate(end_ns[~is_call][order])
    waited_from = np.maximum(waited_from, _last(began, ended, ops.start_ns)) if len(began) else waited_from
    return np.where(is_call, np.minimum(waited_from, ops.start_ns), ops.start_ns)


def _last(at_ns: Array, value_ns: Array, until_ns: Array) -> Array:
    """The value at the last of some sorted instants up to each of others; the first value where all are later."""
    return np.asarray(value_ns[np.maximum(np.searchsorted(at_ns, until_ns, side="right") - 1, 0)])


def _stream(name: str) -> str:
    if _operation(name) is None:
        return "compute"
    return "pp-send" if name.endswith("send") else "pp-recv" if name.endswith("recv") else "dp-comm"


def _operation(name: str) -> str | None:
    """The collective of an operation; None for the worker's own work, a tensor-parallel group of one included."""
    if name.endswith(("-send", "-recv")):
        return name.rsplit("-", 1)[1]
    if name in _WORLD_OPS:
        return "all_reduce"
    if name.startswith("layernorm"):
        return None
    for suffix in ("all-gather", "reduce-scatter", "all-reduce"):
        if name.endswith(suffix):
            return suffix.replace("-", "_")
    return None


class _Groups:
    """The process groups of one worker, and its rows of the collectives table."""

    def __init__(self, columns: EventColumns, rank: int, dp_size: int, pp_size: int) -> None:
        self._columns, self._rank, self._dp_size, self._pp_size = columns, rank, dp_size, pp_size

    def record(self, row: int, name: str) -> None:
        """Add the collective of an operation, if it has one."""
        op = _operation(name)
        if op is None:
            return
        size = self._dp_size
        kind, ranks = self._members(name)
        group = ProcessGroup(f"{kind}{ranks}", kind, ranks, len(ranks), "nccl")
        forward = name.startswith("forward")
        downstream = forward == name.endswith("send")
        # With several chunks of layers per stage the last stage sends to the first.
        peer = (self._rank + (size if downstream else -size)) % (size * self._pp_size)
        peers = (NULL, peer) if op == "send" else (peer, NULL) if op == "recv" else (NULL, NULL)
        self._columns.arguments.add_collective(row, op, group, NULL, peers=peers)

    def _members(self, name: str) -> tuple[str, tuple[int, ...]]:
        size, total = self._dp_size, self._dp_size * self._pp_size
        stage, dp = divmod(self._rank, size)
        if name.endswith(("-send", "-recv")):
            return "pp", tuple(range(dp, total, size))
        if name in _WORLD_OPS:
            return "world", tuple(range(total))
        if name.startswith("embedding"):
            return "embedding", tuple(sorted({dp, (self._pp_size - 1) * size + dp}))
        return "dp", tuple(range(stage * size, (stage + 1) * size))


def _chosen(sources: list[Source]) -> tuple[list[Source], list[HealthNote]]:
    """Measured timelines only; of one timeline in two forms the parquet file, which also states the waits."""
    with_waits = {os.path.dirname(s.path) for s in sources if s.path.endswith(".parquet")}
    kept, notes = [], []
    for source in sources:
        if not source.path.endswith(".parquet") and is_simulated(source):
            notes.append(HealthNote(f"{source.label}: a simulated timeline, not a measured one", "left out", "info"))
        elif os.path.dirname(source.path) in with_waits and not source.path.endswith(".parquet"):
            issue = f"{source.label}: the parquet file beside it also states the waits"
            notes.append(HealthNote(issue, "used instead", "info"))
        else:
            kept.append(source)
    return kept, notes


def _recognise(sample: Sample) -> bool:
    if sample.tail:
        return all(name.encode() in sample.tail for name in _PARQUET_COLUMNS)
    return sample.may_hold_events and sample.has(_MARKS, (b"ward-compute", b"ward-send", b"ward-recv"))


FORMAT = Format(
    "op_timeline",
    "an operation-level timeline of several workers",
    _recognise,
    read_op_timeline,
    worker_parts,
    chosen=_chosen,
)
