"""One clock for all ranks: offset and drift per host from the ends of shared operations, and causal bounds.

Members of a synchronising collective leave it together, so differences of their end times estimate clock differences;
and no member can end before the last one started, which bounds them. Ranks of one host share a clock unless the data
says otherwise.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

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
FEW_DOMAINS = 16  # clock domains: 120 pairs at most; more take longer to list than their better paths are worth
COMPARED_RANKS = 4  # of each of two domains: 16 pairs bound the difference of their clocks well enough


@dataclass(frozen=True)
class ClockDifference:
    """Lead of clock b over clock a, ns, from operations that both ranks left together, with causal bounds.

    Nobody leaves an operation before the other has arrived: each one bounds the lead from below and above.
    """

    difference_ns: Array  # one per operation, as all of these
    when_ns: Array  # on clock a
    least_ns: Array
    most_ns: Array

    @property
    def low_ns(self) -> int:
        """Least lead that all operations allow."""
        return int(self.least_ns.max())

    @property
    def high_ns(self) -> int:
        """Largest lead that all operations allow."""
        return int(self.most_ns.min())

    @property
    def is_contradicted(self) -> bool:
        """True where no lead is possible: a rank would have left before the other arrived."""
        return self.low_ns > 0 or self.high_ns < 0


class SharedOperations:
    """Arrivals and ends of every rank in operations that all members leave together, each on the rank's own clock."""

    def __init__(self, ranks: Sequence[RankFacts], matched: Matched) -> None:
        rows = np.flatnonzero(~np.isin(matched.op[matched.instance], ROOTED))
        rows = rows[np.argsort(matched.rank[rows], kind="stable")]
        parts = np.split(rows, np.searchsorted(matched.rank[rows], np.arange(1, len(ranks))))
        self._instance = [matched.instance[of_rank] for of_rank in parts]
        comms = zip(ranks, (matched.comm[of_rank] for of_rank in parts), strict=True)
        self._bounds = [[bound[comm] for bound in facts.comms.bounds] for facts, comm in comms]

    def compare(self, a: int, b: int) -> ClockDifference | None:
        """The clocks of two ranks (by position); None where they share no operation."""
        i, j = _in_both(self._instance[a], self._instance[b])
        if not len(i):
            return None
        (start_a, end_a), (start_b, end_b) = self._bounds[a], self._bounds[b]
        start_a, end_a, start_b, end_b = start_a[i], end_a[i], start_b[j], end_b[j]
        return ClockDifference(end_b - end_a, end_a, start_b - end_a, end_b - start_a)

    def compare_any(self, a: Sequence[int], b: Sequence[int]) -> ClockDifference | None:
        """The clocks of two domains, each given by some of its ranks; None without a shared operation."""
        each = [vars(difference).values() for p in a for q in b if (difference := self.compare(p, q)) is not None]
        return ClockDifference(*map(np.concatenate, zip(*each, strict=True))) if each else None


def align(ranks: Sequence[RankFacts], matched: Matched) -> tuple[Clock, list[HealthNote]]:
    """The clock of the job. Domains without a shared operation get offset 0 and an unknown error (None)."""
    members = SharedOperations(ranks, matched)
    # A rank whose host is unknown, or whose times are not unix times, is a domain of its own.
    hosts = [f.identity.host or f"rank {f.identity.rank}" for f in ranks]
    domain, notes = _split_domains(ranks, hosts, members)
    names = list(dict.fromkeys(domain))
    if len(names) == 1:
        return Clock({names[0]: HostClock()}, tuple(domain), "one clock, as all ranks are on one host"), notes
    number = {name: at for at, name in enumerate(names)}
    code = np.array([number[name] for name in domain])
    clocks = _propagate(names, _connected_pairs(code[matched.rank], matched, len(names)), code, members)
    lost = [n for n in names if n not in clocks]
    if lost:
        shown = ", ".join(lost[:FEW_DOMAINS]) + (", ..." if len(lost) > FEW_DOMAINS else "")
        notes.append(HealthNote(f"no collective connects {shown} to the other hosts", "their clocks cannot be aligned"))
    by_host = {n: clocks.get(n, HostClock(0, 0.0, None)) for n in names}
    return Clock(by_host, tuple(domain), "end times of matched collectives"), notes


def _split_domains(
    ranks: Sequence[RankFacts], domain: list[str], members: SharedOperations
) -> tuple[list[str], list[HealthNote]]:
    """Give a rank its own domain where its end times contradict the clock its host is said to share."""
    notes, result = [], list(domain)
    on_host: dict[str, list[int]] = defaultdict(list)
    for p, name in enumerate(domain):
        on_host[name].append(p)
    for name, sharing in on_host.items():
        lead_ns = dict.fromkeys(sharing, 0.0)
        for p in sharing[1:]:
            difference = members.compare(sharing[0], p)
            if difference is not None and difference.is_contradicted:
                lead_ns[p] = float(np.median(difference.difference_ns))
        typical = float(np.median([*lead_ns.values()]))
        for p, lead in lead_ns.items():
            if abs(lead - typical) > SAME_HOST_TOLERANCE_NS:
                rank = ranks[p].identity.rank
                result[p] = f"{name} (rank {rank})"
                issue = f"clock of rank {rank} is {(lead - typical) / 1e9:+.3f} s off its host's"
                notes.append(HealthNote(issue, "its times were shifted to fit the collectives it shares", rank=rank))
    return result, notes


def _connected_pairs(code: Array, matched: Matched, count: int) -> list[tuple[int, int]]:
    """Pairs of domains with a common instance, the lower first: all pairs, if domains are few.

    For many domains a spanning choice: in every instance each with the lowest. Errors add along the path, which is
    shortest with all pairs and may be twice as long with the choice.
    """
    instances = int(matched.instance.max(initial=-1)) + 1
    if count <= FEW_DOMAINS:
        met = np.zeros(instances, np.int64)  # per instance, one bit per domain
        np.bitwise_or.at(met, matched.instance, 1 << code)
        sets = ([d for d in range(count) if bits >> d & 1] for bits in np.unique(met).tolist())
        return sorted({pair for domains in sets for pair in combinations(domains, 2)})
    lowest = np.full(instances, count)
    np.minimum.at(lowest, matched.instance, code)
    keys = np.unique(lowest[matched.instance] * count + code).tolist()
    return [(a, b) for a, b in (divmod(key, count) for key in keys) if a != b]


def _propagate(
    names: list[str], pairs: list[tuple[int, int]], code: Array, members: SharedOperations
) -> dict[str, HostClock]:
    """Breadth-first from the first domain over the connected pairs; errors add along the path.

    `code`: domain of each rank, an index into `names`. The first ranks of each domain are compared.
    """
    first = [np.flatnonzero(code == index)[:COMPARED_RANKS].tolist() for index in range(len(names))]
    touching: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for pair in pairs:
        for end in pair:
            touching[end].append(pair)
    clocks, queue = {0: HostClock()}, deque([0])
    while queue:
        here = queue.popleft()
        for a, b in touching[here]:
            other, sign = (b, 1) if here == a else (a, -1)
            difference = None if other in clocks else members.compare_any(first[a], first[b])
            if difference is None:
                continue
            offset, drift, error = _fit(difference)
            base, errors = clocks[here], (clocks[here].error_ns or 0) + error
            clocks[other] = HostClock(base.offset_ns + sign * offset, base.drift_ppm + sign * drift, errors)
            queue.append(other)
    return {names[index]: clock for index, clock in clocks.items()}


def _in_both(one: Array, other: Array) -> tuple[Array, Array]:
    """Positions of the ranks' common instances in each rank's list."""
    if np.array_equal(one, other) and (one[1:] > one[:-1]).all():  # as in most jobs
        every = np.arange(len(one))
        return every, every
    _, among_one, among_other = np.intersect1d(one, other, return_indices=True)
    return among_one, among_other


def _fit(clocks: ClockDifference) -> tuple[int, float, int]:
    """Offset in the middle of the window (ns), drift (ppm) and error (ns) of clock b against clock a."""
    difference, when = clocks.difference_ns.astype(np.float64), clocks.when_ns
    drift = 0.0
    span = float(when.max() - when.min())
    middle = (when.max() + when.min()) / 2
    if span >= MIN_DRIFT_SPAN_NS and len(difference) >= 8:
        x = (when - middle) / span
        slope = float(np.polyfit(x, difference, 1)[0])
        drift = slope / span * 1e6
        difference = difference - slope * x
    offset = float(np.median(difference))
    low, high = clocks.low_ns, clocks.high_ns
    if low <= high:
        offset = min(max(offset, low), high)
    residual = np.abs(difference - offset)
    spread = float(np.quantile(residual, 0.9))
    bound = max(high - offset, offset - low) if low <= high else spread * 2
    return round(offset), drift, max(1, round(min(bound, max(spread, 500.0))))
