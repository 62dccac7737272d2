"""Choice of a job's execution."""

from __future__ import annotations

from ddprof.analyzers.execution.cpu import CpuExecution
from ddprof.analyzers.execution.device import DeviceExecution
from ddprof.analyzers.execution.protocol import Execution
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts

DEVICE, CPU = DeviceExecution(), CpuExecution()


def execution_of(job: JobFacts) -> Execution:
    """The way that the job's ranks execute their work."""
    return DEVICE if job.on_device else CPU


def rank_execution(facts: RankFacts) -> Execution:
    """The way that this rank executes its work: as the job does, but for a rank whose trace was damaged."""
    return DEVICE if facts.is_device_rank else CPU
