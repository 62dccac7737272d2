"""Ranks that were ready to run and had no CPU: in the traced steps, and over the whole run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.analyzers.facts.model import RankFacts
from ddprof.model import HealthNote
from ddprof.sidecar import CpuTime, CpuWaits
from ddprof.tables import Array
from ddprof.units import format_share

MOST = 0.5  # of what ranks lacked
BUSY_SHARE = 0.05  # of the traced time, mean over ranks: as much as the floor of a finding on named ranks


class CpuShares(Struct, frozen=True):
    """Shares of the time that each rank was on a CPU and waited for one, shape (ranks,); NaN where not recorded.

    `others`: share of the CPUs that ranks may use which other processes took over the run.
    """

    on_cpu: Array
    waited: Array
    cores: tuple[tuple[str, str] | None, ...]  # host and CPUs that each rank may use; None where not recorded
    others: float

    @property
    def stretch(self) -> Array:
        """Waiting time over CPU time: the relative lengthening of the rank's computation."""
        return np.asarray(self.waited / np.maximum(self.on_cpu, 1e-9))

    @property
    def beyond(self) -> Array:
        """Share of the time that each rank waited for a CPU beyond the typical rank, for as much computing; 0 where not
        recorded.
        """
        stretch = np.nan_to_num(self.stretch)
        return np.asarray(np.nan_to_num(self.on_cpu) * np.maximum(0.0, stretch - averages.typical(stretch)))

    def own(self, position: int, noise: float) -> float:
        """A rank's share of its own excess compute, CPU waits included, rather than the machine's.

        `noise`: relative excess below which computing longer is not the rank's own, as caches and cores are shared. Two
        threads of one core run at half its speed each: what other processes ran there may add up to half as much.
        """
        peers = np.delete(self.on_cpu, position)
        usual = float(np.median(peers)) if len(peers) else 0.0
        more = float(self.on_cpu[position]) - usual - self.others
        return more * float(1 + self.stretch[position]) if more > noise * usual else 0.0

    def is_shared(self, position: int) -> bool:
        """True where other ranks wait for CPUs as this one does: the machine is busy, not only this rank's cores.

        Ranks that may use the same cores share, since the scheduler chooses who waits. Where cores are unknown, they
        share if they wait at least a quarter as much relative to their compute.
        """
        return not self.is_alone_on(position) or others_are_stretched(self.stretch, position)

    def peers_waited(self, position: int) -> float:
        """Share of the time that the typical other rank waited for a CPU."""
        return float(np.median(np.delete(self.waited, position)))

    def lacked_alone(self, position: int) -> float:
        """Share of the time by which a rank with cores of its own waited for them longer than its peers; 0 where it
        shares them: something else runs there.
        """
        more = float(self.waited[position]) - self.peers_waited(position)
        return more if more > 0 and not self.is_shared(position) else 0.0

    def is_alone_on(self, position: int) -> bool:
        """True where no other rank may use exactly the cores of this one, as far as is known."""
        return self.cores[position] is None or self.cores.count(self.cores[position]) == 1


def others_are_stretched(stretch: Array, position: int) -> bool:
    """True where the other ranks' compute is stretched by at least a quarter of this rank's stretch."""
    others = np.delete(stretch, position)
    return not len(others) or bool(np.median(others) >= stretch[position] / 4)


def traced_shares(ranks: Sequence[RankFacts]) -> CpuShares:
    """Shares of the time in the trace windows, from the counters that capture read."""
    return _shares(ranks, [facts.sidecar.cpu_waits.windows for facts in ranks])


def run_shares(ranks: Sequence[RankFacts]) -> CpuShares:
    """Shares of the time from the first window to the end of the run, without the windows: ranks that begin to record
    apart wait for one another in them, and no timer of an unprofiled step holds that."""
    return _shares(ranks, [_outside(facts.sidecar.cpu_waits) for facts in ranks])


def _outside(waits: CpuWaits) -> tuple[CpuTime, ...]:
    """The run's time less that of its windows; () where not recorded, or nothing is left."""
    if waits.run is None:
        return ()
    dur_ns, cpu_ns, waited_ns = (
        max(0, getattr(waits.run, name) - sum(getattr(window, name) for window in waits.windows))
        for name in ("dur_ns", "cpu_ns", "waited_ns")
    )
    return (CpuTime(dur_ns=dur_ns, cpu_ns=cpu_ns, waited_ns=waited_ns),) if dur_ns else ()


def waited_share(ranks: Sequence[RankFacts]) -> float | None:
    """Share of the run in which ranks were ready and had no CPU, mean over ranks; None where it was not recorded."""
    return _mean_waited(run_shares(ranks))


def lacked_when_traced(ranks: Sequence[RankFacts]) -> float:
    """Share of the traced time in which ranks were ready and had no CPU, mean over ranks; 0 where little, or not
    recorded.
    """
    mean = _mean_waited(traced_shares(ranks)) or 0.0
    return mean if mean >= BUSY_SHARE else 0.0


def _mean_waited(shares: CpuShares) -> float | None:
    return float(np.nanmean(shares.waited)) if np.isfinite(shares.waited).any() else None


def _shares(ranks: Sequence[RankFacts], times: Sequence[Sequence[CpuTime]]) -> CpuShares:
    total = np.array([sum(time.dur_ns for time in of_rank) or np.nan for of_rank in times], float)
    on_cpu = np.array([sum(time.cpu_ns for time in of_rank) for of_rank in times], float)
    waited = np.array([sum(time.waited_ns for time in of_rank) for of_rank in times], float)
    return CpuShares(on_cpu / total, np.minimum(1.0, waited / total), tuple(map(_cores, ranks)), others_share(ranks))


def _cores(facts: RankFacts) -> tuple[str, str] | None:
    """Host and CPUs that a rank may use; None where not recorded."""
    host, which = facts.sidecar.host, facts.sidecar.processors.cores
    return (host, which) if host and which else None


def takes_its_own_cpus(ranks: Sequence[RankFacts]) -> bool | None:
    """True where other processes took less than half of the CPU time that the ranks lacked over the run: their own
    threads and workers compete. None where it was not recorded."""
    taken = _taken_by_others(ranks)
    lacked_ns = sum(run.waited_ns for facts in ranks if (run := facts.sidecar.cpu_waits.run) is not None)
    return None if taken is None else taken[0] < MOST * lacked_ns


def others_share(ranks: Sequence[RankFacts]) -> float:
    """Share of the CPUs that ranks may use, over the run, which other processes took; 0 where it was not recorded."""
    taken = _taken_by_others(ranks)
    return taken[0] / taken[1] if taken is not None and taken[1] else 0.0


def _taken_by_others(ranks: Sequence[RankFacts]) -> tuple[int, int] | None:
    """CPU time of other processes over the run, and all that there was, ns; None where it was not recorded."""
    others_ns = whole_ns = 0
    by_cores: dict[tuple[str, str], list[tuple[CpuTime, int]]] = {}
    for facts in ranks:
        run, where = facts.sidecar.cpu_waits.run, _cores(facts)
        if run is None or run.process_ns is None or run.machine_ns is None or where is None:
            return None
        by_cores.setdefault(where, []).append((run, facts.sidecar.processors.usable or 0))
    for times in by_cores.values():
        others_ns += max(run.machine_ns or 0 for run, _ in times) - sum(run.process_ns or 0 for run, _ in times)
        whole_ns += max(usable * run.dur_ns for run, usable in times)
    return others_ns, whole_ns


def busy_machine_note(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """A note where ranks waited for a CPU for a good part of the traced time."""
    lacked, shares = lacked_when_traced(ranks), traced_shares(ranks).waited
    if not lacked:
        return []
    worst = int(np.nanargmax(shares))
    mean, longest = format_share(lacked), format_share(float(shares[worst]))
    issue = f"the machine is busy: ranks were ready to run and had no CPU for {mean} of the traced time "
    issue += f"(rank {ranks[worst].identity.rank} for {longest})"
    issue += ", mostly as their own threads and workers compete" * bool(takes_its_own_cpus(ranks))
    effect = "steps take longer than on an idle machine; ranks may look late only because the machine is overloaded"
    return [HealthNote(issue, effect)]
