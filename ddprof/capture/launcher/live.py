"""A running job seen from outside: whether it runs, the ranks' step rings, and which rank they show as slow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ddprof.capture.files.control import Request, send
from ddprof.capture.files.layout import RING_SUFFIX, host_label, parse_stem
from ddprof.capture.files.ring import RingContent, read_ring
from ddprof.capture.files.step import Step
from ddprof.capture.files.storage import names_in

RECENT_STEPS = 64
_REACTION_S = 1.5  # ranks look for requests twice a second; a shared file system adds its own delay
_LATE_SHARE = 0.10  # of the step; a rank that is last by less is last by chance
_SILENT_STEPS, _SILENT_NS = 10, 2_000_000_000  # a rank this long without a step is probably stuck
_OWN_PHASES = ("data_ns", "forward_ns", "optimizer_ns")  # backward holds the waiting for peers


@dataclass(frozen=True)
class LiveRank:
    """One rank's present state from its ring. Times in ns; `age_ns` since its last step ended."""

    rank: int
    host: str
    steps: tuple[Step, ...]
    written: int
    age_ns: int

    @property
    def last_step(self) -> int:
        """Index of the last closed step, -1 before the first."""
        return self.steps[-1].number if self.steps else -1

    def median_ns(self, phase: str | None = None) -> int:
        """Median over the recent unprofiled steps, of one phase (a field of Step) or the whole step; 0 without any."""
        unprofiled = [step for step in self.steps if not step.profiled] or list(self.steps)
        values = [getattr(step, phase) if phase else step.end_ns - step.start_ns for step in unprofiled]
        return int(median(values)) if values else 0


@dataclass(frozen=True)
class Lateness:
    """A rank that keeps the others waiting: its excess per step, and its phase."""

    rank: int
    late_ns: int
    phase: str


def read_ranks(folder: Path, recent: int = RECENT_STEPS) -> list[LiveRank]:
    """The running ranks, in rank order. Damaged or unfinished rings are skipped, and those of a rank's earlier lives,
    which an elastic restart leaves behind.
    """
    now_ns = time.time_ns()
    newest: dict[int, tuple[int, LiveRank]] = {}  # by rank: when it began, and its state
    for ring in rings_in(folder, recent):
        since_ns = ring.steps[-1].end_ns if ring.steps else ring.started_ns
        age_ns = 0 if since_ns is None else max(now_ns - since_ns, 0)
        began_ns = ring.started_ns or 0
        if ring.rank not in newest or newest[ring.rank][0] <= began_ns:
            newest[ring.rank] = began_ns, LiveRank(ring.rank, ring.host, ring.steps, ring.written, age_ns)
    return [newest[rank][1] for rank in sorted(newest)]


def silent_ranks(ranks: Sequence[LiveRank]) -> list[int]:
    """Ranks without a step for a while."""
    return [r.rank for r in ranks if r.median_ns() and r.age_ns > _SILENT_STEPS * r.median_ns() + _SILENT_NS]


def rings_in(folder: Path, recent: int) -> Iterator[RingContent]:
    """The whole step rings of a folder, with the recent steps."""
    for path in names_in(folder, RING_SUFFIX):
        with suppress(OSError, ValueError):
            yield read_ring(path, recent)


def latest_late(ranks: Sequence[LiveRank]) -> Lateness | None:
    """The rank with most excess of data, forward and optimizer over the others' median, if above 10 % of a step."""
    if len(ranks) < 2 or not all(rank.steps for rank in ranks):
        return None
    own_ns = {rank.rank: sum(rank.median_ns(phase) for phase in _OWN_PHASES) for rank in ranks}
    worst = max(ranks, key=lambda rank: own_ns[rank.rank])
    others = [rank for rank in ranks if rank is not worst]
    late_ns = own_ns[worst.rank] - int(median(own_ns[rank.rank] for rank in others))
    if late_ns < _LATE_SHARE * max(worst.median_ns(), 1):
        return None
    excess = {phase: worst.median_ns(phase) - int(median(r.median_ns(phase) for r in others)) for phase in _OWN_PHASES}
    return Lateness(worst.rank, late_ns, max(excess, key=lambda phase: excess[phase]).removesuffix("_ns"))


def request_window(folder: Path, ranks: Sequence[LiveRank], steps: int, reason: str) -> int:
    """Ask every rank for a window of `steps` steps, from a step that no rank reaches before it reads the request.

    Returns the first step. Raises OSError where the folder cannot be written.
    """
    first_step = first_step_for_all(ranks)
    send(folder, Request("trace", first_step, steps, reason))
    return first_step


def first_step_for_all(ranks: Sequence[LiveRank]) -> int:
    """A step that no rank reaches before it has read a request sent now."""
    step_s = max((rank.median_ns() for rank in ranks), default=0) / 1e9
    ahead = 2 + (int(_REACTION_S / step_s) if step_s > 0 else 2)
    return max((rank.last_step for rank in ranks), default=0) + ahead


def request_stop(folder: Path) -> None:
    """Ask every rank to end capture; the job goes on. Raises OSError."""
    send(folder, Request("stop", 0, 0, "ddprof stop"))


def runs_here(pid: int) -> bool:
    """True where this host has a process `pid`, of any user."""
    try:
        with suppress(PermissionError):  # it is another user's
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True


def pid_here(name: str) -> int | None:
    """The process that wrote a file of a rank, where it ran on this host; None where it did not, or is not known."""
    fields = parse_stem(name)
    return int(fields["pid"] or 0) if fields is not None and fields["host"] == host_label() else None
