"""True ledger of each rank's step, from the simulation.

The split is the report contract's: compute before communication before copies; exposed communication is wait until the
last member has arrived, transfer after; an idle gap belongs to what the host did before the launch that ends it. Inside
a gap, once a blocking call has been made the rest is `host_sync`, until another occupant (loader, garbage collection,
checkpoint, allocator) takes over; what follows such an occupant, and what no occupant covers, is `host_launch`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.oracle.interleaved import CHUNKS
from benchmarks.oracle.rank import Occupant, Rank
from benchmarks.oracle.simulate import Run
from benchmarks.oracle.windows import Window

CAUSES = (
    "compute", "comm_transfer", "comm_wait", "memcpy", "dataloader", "host_launch", "host_sync", "allocator", "gc",
    "checkpoint", "pipeline_bubble", "other", "unknown",
)  # fmt: skip
PRIORITY = {"compute": 0, "comm_transfer": 1, "comm_wait": 2, "memcpy": 3}


@dataclass(frozen=True)
class Span:
    """A stretch of a rank's time and the cause it is booked to."""

    start: float
    end: float
    cause: str


def device_spans(rank: Rank) -> list[Span]:
    """Device activity by cause; spans may overlap."""
    spans = []
    for op in rank.ops:
        assert op.start is not None and op.end is not None
        if op.collective is None:
            spans.append(Span(op.start, op.end, op.cause))
            continue
        arrived = min(max(op.collective.last_arrival, op.start), op.end)
        spans.append(Span(op.start, arrived, "comm_wait"))
        spans.append(Span(arrived, op.end, "comm_transfer"))
    return [span for span in spans if span.end > span.start]


def flatten(spans: list[Span], begin: float, end: float) -> list[Span]:
    """Non-overlapping spans from begin to end in order; the cause of highest priority wins, gaps are "idle"."""
    edges: list[tuple[float, int, int]] = []
    for span in spans:
        lo, hi = max(span.start, begin), min(span.end, end)
        if hi > lo:
            edges += [(lo, 1, PRIORITY[span.cause]), (hi, -1, PRIORITY[span.cause])]
    edges.sort()
    names = [*PRIORITY, "idle"]
    active = [0] * len(PRIORITY)
    flat: list[Span] = []
    at = begin
    for time, change, priority in [*edges, (end, 0, 0)]:
        if time > at:
            cause = names[next((i for i, n in enumerate(active) if n), len(PRIORITY))]
            if flat and flat[-1].cause == cause:
                flat[-1] = Span(flat[-1].start, time, cause)
            else:
                flat.append(Span(at, time, cause))
            at = time
        active[priority] += change
    return flat


def split_gap(start: float, end: float, occupants: list[Occupant]) -> list[Span]:
    """Book an idle gap to what the host did in it; `occupants` are those that overlap it, in order."""
    pieces: list[Span] = []
    at, default = start, "host_launch"
    for occupant in occupants:
        lo, hi = max(occupant.start, at), min(occupant.end, end)
        if occupant.start > at:
            pieces.append(Span(at, lo, default))
        pieces.append(Span(lo, hi, occupant.cause))
        at = max(at, hi)
        default = "host_sync" if occupant.cause == "host_sync" else "host_launch"
    pieces.append(Span(at, end, default))
    return [piece for piece in pieces if piece.end > piece.start]


def booked(rank: Rank, steps: Sequence[Window] = ()) -> list[Span]:
    """The rank's time from the first to the last of its steps (those between its marks where none are given), every
    stretch with its cause."""
    steps = steps or list(itertools.pairwise(rank.marks))
    result: list[Span] = []
    occupants = sorted(rank.occupants)
    index = 0
    launched = _launch_times(rank)
    for span in flatten(device_spans(rank), steps[0][0], steps[-1][1]):
        if span.cause != "idle":
            result.append(span)
            continue
        while index < len(occupants) and occupants[index].end <= span.start:
            index += 1
        inside = []
        ahead = index
        while ahead < len(occupants) and occupants[ahead].start < span.end:
            inside.append(occupants[ahead])
            ahead += 1
        # Work that was launched before the gap began: nothing the host did since can be the reason.
        issued_before = launched.get(span.end, span.end) <= span.start
        result += split_gap(span.start, span.end, [] if issued_before else inside)
    return result


def _launch_times(rank: Rank) -> dict[float, float]:
    """Start of device work -> when its launch call began."""
    return {op.start: op.launch_start for op in rank.ops if op.start is not None}


def per_step(rank: Rank, spans: list[Span], steps: Sequence[Window] = ()) -> list[dict[str, float]]:
    """Microseconds per cause for each of the steps (those between the rank's marks where none are given)."""
    steps = steps or list(itertools.pairwise(rank.marks))
    table = [dict.fromkeys(CAUSES, 0.0) for _ in steps]
    first = 0
    for row, (begin, end) in zip(table, steps, strict=True):
        while first < len(spans) and spans[first].end <= begin:
            first += 1
        for span in itertools.islice(spans, first, None):
            if span.start >= end:
                break
            row[span.cause] += min(span.end, end) - max(span.start, begin)
    return table


def bubble_budget(run: Run) -> list[float]:
    """Unavoidable pipeline bubble of each step: (stages - 1) microbatches of the mean stage's forward and backward."""
    parallel = run.world.parallel
    if parallel.pp < 2:
        return [0.0] * len(run.windows(run.ranks[0]))
    budget = []
    steps = [run.windows(rank) for rank in run.ranks]
    chunks = CHUNKS if parallel.schedule == "interleaved" else 1
    for step in range(len(steps[0])):
        work = 0.0
        for rank, own in zip(run.ranks, steps, strict=True):
            begin, end = own[step]
            work += sum(
                op.dur
                for op in rank.ops
                if op.cause == "compute" and op.pool == "body" and begin <= (op.start or 0.0) < end
            )
        budget.append(work / len(run.ranks) * (parallel.pp - 1) / (parallel.microbatches * chunks))
    return budget


def _book_bubble(row: dict[str, float], budget: float) -> None:
    """Move waiting for other stages to the bubble, up to what the schedule makes unavoidable."""
    moved = min(row["comm_wait"], budget)
    row["comm_wait"] -= moved
    row["pipeline_bubble"] += moved


def ledger(run: Run) -> dict[str, dict[str, dict[str, float]] | dict[str, float]]:
    """The label's `ledger`: microseconds per step and cause, per traced rank and for the job (their mean)."""
    budget = bubble_budget(run)
    ranks: dict[str, dict[str, float]] = {}
    for rank in run.ranks:
        if rank.rank in run.scenario.missing_ranks:
            continue
        steps = run.windows(rank)
        table = per_step(rank, booked(rank, steps), steps)
        for row, allowed in zip(table, budget, strict=True):
            _book_bubble(row, allowed)
        mean = {cause: sum(row[cause] for row in table) / len(table) for cause in CAUSES}
        mean["wall_us"] = sum(end - begin for begin, end in steps) / len(table)
        ranks[str(rank.rank)] = mean
    job = {key: sum(row[key] for row in ranks.values()) / len(ranks) for key in (*CAUSES, "wall_us")}
    return {"per_rank": ranks, "job": job}
