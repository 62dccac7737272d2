"""Missing ranks: ranks of the job without a trace, known by their step timers where capture kept these.

`ddprof run --ranks sample:N` traces some ranks and times all. Timers see the training process, not its device: they
show a rank whose loader, forward pass or script takes longer, but not one whose GPU is slower.
"""

from __future__ import annotations

from statistics import median

from msgspec import Struct

from ddprof.analyzers.job.model import JobFacts
from ddprof.model import HealthNote
from ddprof.sidecar import StepMedians
from ddprof.units import format_us

LATE_SHARE = 0.1  # of the step, beyond the median rank: the same as the live view's (capture/launcher/live.py)
_WHERE = {
    "data_ns": "in its data loader",
    "forward_ns": "in its forward pass",
    "optimizer_ns": "in its optimizer",
    "rest_ns": "outside forward, backward and optimizer",
}


class LateMissingRank(Struct, frozen=True):
    """A missing rank that, by its timers, spends `excess_us` per step more than the median rank in one phase."""

    rank: int
    where: str
    excess_us: float

    @property
    def words(self) -> str:
        """The late missing rank as a clause."""
        more = f"{format_us(self.excess_us)} per step more than the median rank {self.where}"
        return f"rank {self.rank} was not traced and by its own timers spends {more}"


def late_missing_rank(job: JobFacts) -> LateMissingRank | None:
    """The missing rank with the largest excess; None where that is below LATE_SHARE, or no timers are known.

    Ranks wait for a late one in backward and in collectives, so these two are not compared.
    """
    if len(job.step_times) < 2:
        return None
    by_rank = {rank: _own(times) for rank, times in job.step_times.items()}
    usual = {phase: median(phases[phase] for phases in by_rank.values()) for phase in _WHERE}
    step_ns = median(times.step_ns for times in job.step_times.values())
    behind = [
        LateMissingRank(rank, where, (by_rank[rank][phase] - usual[phase]) / 1e3)
        for rank in job.missing_ranks
        if rank in by_rank
        for phase, where in _WHERE.items()
    ]
    worst = max(behind, key=lambda late: late.excess_us, default=None)
    return worst if worst is not None and worst.excess_us * 1e3 >= LATE_SHARE * step_ns else None


def timers_complete(job: JobFacts) -> bool:
    """True where the step timers of every missing rank are known."""
    return all(rank in job.step_times for rank in job.missing_ranks)


def missing_rank_notes(job: JobFacts) -> list[HealthNote]:
    """A note that names the late missing rank, if there is one."""
    late = late_missing_rank(job)
    if late is None:
        return []
    return [HealthNote(late.words, f"trace it to see why: ddprof run --ranks {job.rank_ids[0]},{late.rank} -- ...")]


def _own(times: StepMedians) -> dict[str, int]:
    phases = times.data_ns + times.forward_ns + times.backward_ns + times.optimizer_ns + times.collective_ns
    rest = times.step_ns - phases if times.rest_ns is None else times.rest_ns
    return {**{phase: getattr(times, phase) for phase in _WHERE if phase != "rest_ns"}, "rest_ns": max(0, rest)}
