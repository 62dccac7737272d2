"""One clock for all ranks: offset and drift per host from the ends of shared operations, and causal bounds.

Members of a synchronising collective leave it together, so differences of their end times estimate clock differences;
and no member can end before the last one started, which bounds them. Ranks of one host share a clock unless the data
says otherwise.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import ROOTED
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.model import Clock, HostClock
from ddprof.model import HealthNote
from ddprof.tables import Array

MIN_DRIFT_SPAN_NS = 1_000_000_000  # below a second, drift drowns in the spread of end times
# Ranks of one host whose clocks differ by more than this and more than causality allows do not share a clock.
SAME_HOST_TOLERANCE_NS = 1_000_000


class _Edges:
    """For each pair of clock domains, estimates of (domain b - domain a) and the causal bounds on it."""

    def __init__(self) -> None:
        self.estimate: dict[tuple[str, str], list[Array]] = defaultdict(list)
        self.when: dict[tuple[str, str], list[Array]] = defaultdict(list)
        self.low: dict[tuple[str, str], int] = {}
        self.high: dict[tuple[str, str], int] = {}


def align(ranks: Sequence[RankFacts], matched: Matched) -> tuple[Clock, list[HealthNote]]:
    """The clock of the job. Domains without any shared operation keep offset 0 and an unknown error (None)."""
    notes: list[HealthNote] = []
    domain = _domains(ranks)
    starts, ends = _member_times(ranks, matched)
    domain, split_notes = _split_domains(ranks, domain, matched, starts, ends)
    notes += split_notes
    names = list(dict.fromkeys(domain))
    if len(names) == 1:
        return Clock({names[0]: HostClock()}, tuple(domain), "one host: one clock"), notes
    edges = _edges(domain, matched, starts, ends)
    clocks = _propagate(names, edges)
    lost = [n for n in names if n not in clocks]
    if lost:
        notes.append(
            HealthNote(
                f"no operation connects {', '.join(lost)} to the other hosts", "times between them cannot be compared"
            )
        )
    method = "end times of matched collectives, bounded by causality"
    return Clock({n: clocks.get(n, HostClock(0, 0.0, None)) for n in names}, tuple(domain), method), notes


def _domains(ranks: Sequence[RankFacts]) -> list[str]:
    """Host of each rank; a rank whose host is unknown, or whose times are not unix times, is a domain of its own."""
    return [f.identity.host if f.identity.host else f"rank {f.identity.rank}" for f in ranks]


def _member_times(ranks: Sequence[RankFacts], matched: Matched) -> tuple[Array, Array]:
    starts, ends = np.zeros(len(matched.rank), np.int64), np.zeros(len(matched.rank), np.int64)
    for position, facts in enumerate(ranks):
        mine = matched.rank == position
        starts[mine] = facts.comms["start_ns"][matched.comm[mine]]
        ends[mine] = facts.comms["end_ns"][matched.comm[mine]]
    return starts, ends


def _pairs(first: Array, second: Array, matched: Matched) -> tuple[Array, Array]:
    """Member rows (i, j) that share an instance: one i each from `first`, one j from `second` (boolean masks)."""
    usable = ~np.isin(matched.op[matched.instance], ROOTED)
    i, j = np.flatnonzero(first & usable), np.flatnonzero(second & usable)
    _, at_i, at_j = np.intersect1d(matched.instance[i], matched.instance[j], return_indices=True)
    return i[at_i], j[at_j]


def _split_domains(
    ranks: Sequence[RankFacts], domain: list[str], matched: Matched, starts: Array, ends: Array
) -> tuple[list[str], list[HealthNote]]:
    """Give a rank its own domain where its end times contradict the clock its host is said to share."""
    notes, result = [], list(domain)
    for name in dict.fromkeys(domain):
        members = [p for p, d in enumerate(domain) if d == name]
        offsets: dict[int, float] = {members[0]: 0.0}
        for p in members[1:]:
            i, j = _pairs(matched.rank == members[0], matched.rank == p, matched)
            if (len(i) and _causality(starts, ends, i, j)[0] > 0) or (len(i) and _causality(starts, ends, i, j)[1] < 0):
                offsets[p] = float(np.median(ends[j] - ends[i]))
        typical = float(np.median([offsets.get(p, 0.0) for p in members]))
        for p in members:
            if abs(offsets.get(p, 0.0) - typical) > SAME_HOST_TOLERANCE_NS:
                result[p] = f"{name} (rank {ranks[p].identity.rank})"
                notes.append(
                    HealthNote(
                        f"clock of rank {ranks[p].identity.rank} is {(offsets.get(p, 0.0) - typical) / 1e9:+.3f} s "
                        "off its host's",
                        "its times were shifted to fit the collectives it shares",
                        rank=ranks[p].identity.rank,
                    )
                )
    return result, notes


def _causality(starts: Array, ends: Array, i: Array, j: Array) -> tuple[int, int]:
    """Bounds on (clock of j - clock of i): nobody leaves before the other has arrived."""
    return int((starts[j] - ends[i]).max()), int((ends[j] - starts[i]).min())


def _edges(domain: list[str], matched: Matched, starts: Array, ends: Array) -> _Edges:
    """Compare one representative pair per instance and pair of domains; bounds use every rank against it."""
    edges = _Edges()
    names = list(dict.fromkeys(domain))
    code = np.array([names.index(d) for d in domain])[matched.rank] if len(matched.rank) else np.empty(0, np.int64)
    ranks_of = {n: [p for p, d in enumerate(domain) if d == n] for n in names}
    connected = _connected_pairs(code, matched, len(names))
    for a, b in connected:
        key = (names[a], names[b])
        low, high = [], []
        for p in ranks_of[names[a]][:4]:
            for q in ranks_of[names[b]][:4]:
                i, j = _pairs(matched.rank == p, matched.rank == q, matched)
                if not len(i):
                    continue
                edges.estimate[key].append(ends[j] - ends[i])
                edges.when[key].append(ends[i])
                bounds = _causality(starts, ends, i, j)
                low.append(bounds[0])
                high.append(bounds[1])
        if low:
            edges.low[key], edges.high[key] = max(low), min(high)
    return edges


def _connected_pairs(code: Array, matched: Matched, count: int) -> list[tuple[int, int]]:
    """Pairs of domains with a common instance: a spanning choice (each to the lowest it meets), plus all if few."""
    pairs: set[tuple[int, int]] = set()
    order = np.lexsort((code, matched.instance))
    instance, code = matched.instance[order], code[order]
    lowest = np.full(int(instance.max(initial=-1)) + 1, count)
    np.minimum.at(lowest, instance, code)
    for a, b in np.unique(np.stack((lowest[instance], code)), axis=1).T.tolist():
        if a != b:
            pairs.add((a, b))
    return sorted(pairs)


def _propagate(names: list[str], edges: _Edges) -> dict[str, HostClock]:
    """Breadth-first from the first domain; errors add along the path."""
    clocks = {names[0]: HostClock()}
    queue = deque(names[:1])
    touching: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for a, b in edges.estimate:
        touching[a].append((a, b))
        touching[b].append((a, b))
    while queue:
        here = queue.popleft()
        for a, b in touching[here]:
            other, sign = (b, 1) if here == a else (a, -1)
            if other in clocks:
                continue
            offset, drift, error = _fit(edges, (a, b))
            base = clocks[here]
            clocks[other] = HostClock(
                base.offset_ns + sign * offset, base.drift_ppm + sign * drift, (base.error_ns or 0) + error
            )
            queue.append(other)
    return clocks


def _fit(edges: _Edges, key: tuple[str, str]) -> tuple[int, float, int]:
    """Offset in the middle of the window, drift, and error for one pair of domains."""
    difference = np.concatenate(edges.estimate[key]).astype(np.float64)
    when = np.concatenate(edges.when[key])
    drift = 0.0
    span = float(when.max() - when.min())
    middle = (when.max() + when.min()) / 2
    if span >= MIN_DRIFT_SPAN_NS and len(difference) >= 8:
        x = (when - middle) / span
        slope = float(np.polyfit(x, difference, 1)[0])
        drift = slope / span * 1e6
        difference = difference - slope * x
    offset = float(np.median(difference))
    low, high = edges.low[key], edges.high[key]
    if low <= high:
        offset = min(max(offset, low), high)
    residual = np.abs(difference - offset)
    spread = float(np.quantile(residual, 0.9))
    bound = max(high - offset, offset - low) if low <= high else spread * 2
    return round(offset), drift, max(1, round(min(bound, max(spread, 500.0))))
