"""Communication of the job by kind: counts, bytes, transfer and exposure per step, and size -> time points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS, INFERRED
from ddprof.analyzers.facts.work import compute_work, computes
from ddprof.analyzers.job.ledger import exposed_transfer, moving
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.traffic.kinds import Needless
from ddprof.analyzers.job.waiting.waits import members_of, ready_by_comm
from ddprof.derived_once import remembered
from ddprof.tables import NULL, Array
from ddprof.units import format_count, format_share, format_us

SEEN_WHOLE = 0.5  # of its transfer, in calls that every member recorded; at the edges of windows some lack a member
MIN_CALLS = 8  # of known size and time, before their rate explains them
TWICE = 2.0  # the work between calls varies by so much: waits would, too
SIZES_APART = 4.0  # largest over smallest message: waiting as long as the large one takes is 4 times the small one
FASTEST_CALLS = 0.1  # of the calls: the fastest of all may be a fluke
NO_WAITS = 1.1  # of what the bytes take at the rate of the fastest calls: at most a tenth of the calls is waiting


@dataclass(frozen=True)
class Traffic:
    """One kind of communication: an operation of groups that serve one role.

    Times and bytes are per step, mean over ranks. `needless`: why it could go (a kind of job/redundant), or "".
    """

    op: str
    role: str
    group_size: int
    count: float
    total_bytes: float
    transfer_us: float
    exposed_us: float  # transfer that no compute hides; of communications at once, that of the one that ends last
    sizes_bytes: Array  # (points,), one per matched instance, 0 where unknown
    times_us: Array  # (points,), its transfer
    crosses_hosts: bool
    needless: str = ""
    hidden_us: float = 0.0  # transfer under compute; the rest is exposed, here or in another kind that runs beside it
    is_whole: bool = True  # every member of its groups recorded it: else waiting for the others is in its transfer
    is_all_transfer: bool = True  # or its bytes or equal times show that nobody waited for the others

    @property
    def hidden_share(self) -> float:
        """Share of the transfer that runs under compute."""
        return self.hidden_us / self.transfer_us if self.transfer_us > 0 else 1.0

    @property
    def transfer_words(self) -> str:
        """Calls per step, the transfer of each, as calls may run at once, and how much of it compute hides."""
        each_us = self.transfer_us / self.count if self.count else 0.0
        count = max(1, round(self.count))
        each = f"{format_us(each_us)} of transfer{' each' if count > 1 else ''}"
        hidden = f"{format_share(self.hidden_share)} hidden" if self.hidden_us > 0 else "none of it hidden"
        return f"{format_count(count, f'{self.op} call')} per step, {each}, {hidden}"

    @property
    def mean_bytes(self) -> float:
        """Mean message size."""
        return self.total_bytes / self.count if self.count else 0.0


@dataclass(frozen=True)
class CommStats:
    """All traffic, largest exposure first."""

    traffic: tuple[Traffic, ...]

    @property
    def exposed_us(self) -> float:
        """Exposed transfer of all kinds, us per step, mean over ranks."""
        return sum(t.exposed_us for t in self.traffic)


def comm_stats(job: JobFacts, needless: Mapping[str, Needless]) -> CommStats:
    """Traffic per (operation, role) of the job, and what of it could be dropped. Inferred rendezvous carry nothing."""
    keys: dict[tuple[int, str, str], dict[str, float]] = {}
    ranks, separable = len(job.ranks), with_known_transfer(job)
    for position, facts in enumerate(job.ranks):
        ready = ready_by_comm(job.members, position, facts)
        took, exposed = _took(job, position, ready), _exposed(facts, ready)
        hidden = took - intervals.overlap(exposed_transfer(facts, ready), ready, ready + took)
        role, why = roles_by_comm(job, position, separable), _reasons(facts, position, needless)
        size = np.where(facts.comms["size_bytes"] == NULL, 0, facts.comms["size_bytes"])
        scale = 1.0 / (len(facts.steps) * ranks)
        # Of the step that it begins in: some are left out, and what they hold may end in the next one.
        inside = intervals.contains(intervals.union(*facts.steps.bounds), facts.comms["start_ns"])
        for code, name, kind in sorted({*zip(facts.comms["op"].tolist(), role, why, strict=True)}):
            if COLLECTIVE_OPS[code] == INFERRED:
                continue
            of_kind = (facts.comms["op"] == code) & (role == name) & (why == kind)
            rows = inside & of_kind
            of_rank = {
                "count": rows.sum() * scale,
                "total_bytes": float(size[rows].sum()) * scale,
                "transfer_us": float(took[rows].sum()) * scale / 1e3,
                "hidden_us": float(hidden[rows].sum()) * scale / 1e3,
                "exposed_us": float(exposed[of_kind].sum()) * scale / 1e3,
            }
            sums = keys.get((code, name, kind), {})
            keys[code, name, kind] = {column: sums.get(column, 0.0) + value for column, value in of_rank.items()}
    of_instance = _instance_reasons(job, needless)
    traffic = [_traffic(job, *key, separable & (of_instance == key[2]), sums) for key, sums in keys.items()]
    return CommStats(tuple(sorted(traffic, key=lambda t: -t.exposed_us)))


def _took(job: JobFacts, position: int, ready: Array) -> Array:
    """Transfer of each communication of a rank, ns: a CPU rank's message has come once either end waited for it."""
    facts, rows = job.ranks[position], members_of(job.members, position)
    took = facts.comms["end_ns"] - ready
    if computes(facts):
        instance = job.members["instance"][rows]
        rows, instance = (each[job.instances["is_message"][instance].astype(bool)] for each in (rows, instance))
        comm = job.members["comm"][rows]
        took[comm] = np.minimum(took[comm], job.instances["transfer_ns"][instance])
    return np.asarray(took)


def _exposed(facts: RankFacts, ready: Array) -> Array:
    """Exposed transfer of each communication of a rank inside the steps, ns, shape (comms,).

    Each instant is of one, the one that ends last of those whose members have arrived: they sum to the ledger's.
    """
    *pieces, comm = moving(facts, ready)
    start, end, holder = intervals.holders(*pieces)
    inside = intervals.intersect(facts.exposed.bounds, intervals.union(*facts.steps.bounds))
    begin, until, row, _ = intervals.intersect_rows((start, end), inside)
    return np.bincount(comm[holder[row]], weights=until - begin, minlength=len(facts.comms))


def _reasons(facts: RankFacts, position: int, needless: Mapping[str, Needless]) -> Array:
    """Reason why each communication of a rank is avoidable; "" for needed ones; shape (comms,)."""
    why = np.full(len(facts.comms), "", dtype=object)
    for kind, avoidable in needless.items():
        why[avoidable.comms[position]] = kind
    return why


def _instance_reasons(job: JobFacts, needless: Mapping[str, Needless]) -> Array:
    """Reason of each instance, from one of its members; shape (instances,)."""
    why = np.full(len(job.instances), "", dtype=object)
    if not needless:
        return why
    for position, facts in enumerate(job.ranks):
        of_rank = members_of(job.members, position)
        reasons = _reasons(facts, position, needless)[job.members["comm"][of_rank]]
        has_reason = reasons != ""
        why[job.members["instance"][of_rank][has_reason]] = reasons[has_reason]
    return why


def _traffic(job: JobFacts, code: int, role: str, kind: str, counted: Array, sums: dict[str, float]) -> Traffic:
    of_kind = counted & (job.instances["op"] == code) & (job.groups["role"][job.instances["group"]] == role)
    groups = np.unique(job.instances["group"][of_kind])
    size = job.instances["size_bytes"][of_kind]
    number = {r: p for p, r in enumerate(job.rank_ids)}
    crosses, whole = False, True
    for group in groups.tolist():
        members = [int(r) for r in job.groups["ranks"][group].split(",") if r]
        unnamed = job.groups["name"][group] == "world"  # taken to be of everybody: see groups.py
        all_read = bool(members) and all(r in number for r in members)  # without a list of members, nobody knows
        whole &= not job.missing_ranks if unnamed else all_read
        crosses |= len({job.clock.domain_of[number[r]] for r in members if r in number}) > 1
    time_us = job.instances["transfer_ns"][of_kind] / 1e3
    seen_us = float(time_us[job.instances["complete"][of_kind].astype(bool)].sum())
    whole &= seen_us >= SEEN_WHOLE * float(time_us.sum())
    return Traffic(
        op=COLLECTIVE_OPS[code],
        role=role,
        group_size=int(job.groups["size"][groups].max(initial=0)) if len(groups) else 0,
        **sums,
        sizes_bytes=np.where(size == NULL, 0, size),
        times_us=time_us,
        crosses_hosts=crosses,
        needless=kind,
        is_whole=whole,
        is_all_transfer=whole or _waited_for_nobody(job, of_kind & ~job.instances["complete"].astype(bool)),
    )


def roles_by_comm(job: JobFacts, position: int, separable: Array) -> Array:
    """Role of the group of each comm of a rank; 'unmatched' where waiting and transfer are inseparable.

    `separable`, shape (instances,): mask of separable instances (`with_known_transfer`).
    """
    role = np.full(len(job.ranks[position].comms), "unmatched", dtype=object)
    rows = members_of(job.members, position)
    rows = rows[separable[job.members["instance"][rows]]]
    group = job.instances["group"][job.members["instance"][rows]]
    role[job.members["comm"][rows]] = job.groups["role"][group]
    return role


def _waited_for_nobody(job: JobFacts, calls: Array) -> bool:
    """True where some instances (mask) show by themselves, in each group, that they waited for no untraced rank."""
    times_us, sizes_bytes = job.instances["transfer_ns"] / 1e3, job.instances["size_bytes"]
    of_groups = [calls & (job.instances["group"] == group) for group in np.unique(job.instances["group"][calls])]
    return all(takes_its_bytes(sizes_bytes[of], times_us[of]) or _is_steady(job, of) for of in of_groups)


def takes_its_bytes(sizes_bytes: Array, times_us: Array) -> bool:
    """True where bytes explain the duration of calls, of small and of large messages. Unknown sizes and times are
    ignored.

    An untraced rank is as late at a small message as at a large one: calls that all take their bytes' time waited for
    nobody, which one side alone can show.
    """
    is_sized = (times_us > 0) & (sizes_bytes > 0)
    times, sizes = times_us[is_sized], sizes_bytes[is_sized].astype(float)
    if len(sizes) < MIN_CALLS or sizes.max() < SIZES_APART * sizes.min():
        return False
    return bool(times.sum() <= NO_WAITS * float(np.quantile(times / sizes, FASTEST_CALLS)) * sizes.sum())


def _is_steady(job: JobFacts, calls: Array) -> bool:
    """True where calls of one size take the same time, however much was computed before each.

    An untraced rank that is slower is the later the more there is to compute from one call to the next.
    """
    members = np.flatnonzero(calls[job.members["instance"]])
    if not len(members):
        return False
    position = int(np.bincount(job.members["rank"][members]).argmax())
    members = members[job.members["rank"][members] == position]
    members = members[np.argsort(job.members["start_ns"][members])]
    instance = job.members["instance"][members]
    took_ns, size_bytes = job.instances["transfer_ns"][instance], job.instances["size_bytes"][instance]
    sizes, count = np.unique(size_bytes, return_counts=True)
    usual_bytes = sizes[count.argmax()]
    usual = size_bytes == usual_bytes
    floor_ns = np.quantile(took_ns[usual], FASTEST_CALLS) * np.maximum(1, size_bytes / max(1, usual_bytes))
    if usual.sum() < max(MIN_CALLS, len(members) / 2):
        return False
    if any(took_ns[of].sum() > NO_WAITS * floor_ns[of].sum() for of in (usual, ~usual)):
        return False
    start_ns = job.members["start_ns"][members]
    before_ns = intervals.overlap(compute_work(job.ranks[position]), start_ns[:-1], start_ns[1:])[usual[1:]]
    little_ns, much_ns = np.quantile(before_ns, (FASTEST_CALLS, 1 - FASTEST_CALLS))
    return bool(much_ns >= TWICE * little_ns)


@remembered
def with_known_transfer(job: JobFacts) -> Array:
    """Mask of instances with separable waiting and transfer, shape (instances,): several ranks were traced, or bytes
    explain the calls of the only one.
    """
    instances = job.instances
    separable = instances["members"] > 1
    alone = ~separable & ~instances["is_message"].astype(bool)
    kinds = np.stack((instances["op"].astype(np.int64), instances["group"].astype(np.int64)))
    for op, group in np.unique(kinds[:, alone], axis=1).T.tolist():
        calls = alone & (kinds[0] == op) & (kinds[1] == group)
        separable |= calls & _waited_for_nobody(job, calls)
    return np.asarray(separable)
