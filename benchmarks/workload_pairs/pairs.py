"""The matrix: which workload is run with which fault and which fix."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

from ddprof.errors import UsageError
from ddprof.workloads.catalogue import NO_FAULT, WORKLOADS, Fault, Workload
from ddprof.workloads.slow_link import obstacle

QUICK = (
    ("mnist_ddp", "loader-straggler", "storage"),
    ("mnist_ddp", "slow-host", "host"),
    ("mnist_ddp", "checkpoint", "never"),
    ("gpt_fsdp2", "slow-loader", "workers"),
    ("pipeline_1f1b", "stage-imbalance", "even"),
)


@dataclass(frozen=True)
class Job:
    """One training run."""

    workload: Workload
    fault: str = NO_FAULT
    fix: str = ""

    @property
    def link_rate(self) -> str:
        """The rate to which the link is shaped; "" where it is left alone."""
        truth = self.workload.faults.get(self.fault)
        return "" if truth is None or truth.rates is None else truth.rates[bool(self.fix)]

    @property
    def name(self) -> str:
        """Such as mnist_ddp.slow-loader.workers; also the name of its run folder."""
        return ".".join(part for part in (self.workload.name, self.fault, self.fix) if part)


@dataclass(frozen=True)
class Pair:
    """A fault and one of its fixes on a workload."""

    workload: Workload
    fault: str
    fix: str

    @property
    def truth(self) -> Fault:
        """The finding expected for the fault."""
        return self.workload.faults[self.fault]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Culprit ranks; the last rank is the slow one."""
        return self.truth.ranks(self.workload.world_size - 1)

    @property
    def faulted(self) -> Job:
        """The run with the fault."""
        return Job(self.workload, self.fault)

    @property
    def fixed(self) -> Job:
        """The run with the fix, all sizes as with the fault."""
        return Job(self.workload, self.fault, self.fix)


def pairs(only: Sequence[str] = (), quick: bool = False, device: str = "cpu") -> list[Pair]:
    """The pairs to run. `only`: "workload", "workload.fault" or "workload.fault.fix"; UsageError for an unknown one."""
    known = [
        Pair(workload, fault, fix)
        for workload in WORKLOADS.values()
        for fault, truth in workload.faults.items()
        if truth.needs in ("", device)
        for fix in truth.fixes
    ]
    for name in only:
        if not any(name in _names(pair) for pair in known):
            raise UsageError(f"--only {name}: no such workload or fault; there are {', '.join(WORKLOADS)}")
    chosen = [pair for pair in known if not only or any(name in _names(pair) for name in only)]
    return [p for p in chosen if not quick or (p.workload.name, p.fault, p.fix) in QUICK]


def _names(pair: Pair) -> tuple[str, str, str]:
    return pair.workload.name, pair.faulted.name, pair.fixed.name


def contests(matrix: Sequence[Pair]) -> list[list[Job]]:
    """Jobs to be compared, each job once: a fault with its fixes, and, of a workload of which more than one fault is
    run, the workload as it is, alone.
    """
    wanted: dict[str, list[Job]] = {}
    for pair in matrix:
        if len({other.fault for other in matrix if other.workload == pair.workload}) > 1:
            wanted.setdefault(pair.workload.name, [Job(pair.workload)])
        wanted.setdefault(pair.faulted.name, [pair.faulted]).append(pair.fixed)
    return list(wanted.values())


def hindrance(pair: Pair) -> str:
    """Why a pair cannot be run here, "" where it can."""
    missing = [name for name in pair.workload.packages if importlib.util.find_spec(name) is None]
    if missing:
        return f"{pair.workload.name}: needs {', '.join(missing)}"
    reason = obstacle(pair.faulted.link_rate) if pair.faulted.link_rate else ""
    return f"{pair.faulted.name}: traffic cannot be shaped here: {reason}" if reason else ""
