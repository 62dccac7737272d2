"""Choice of a job's execution."""

from __future__ import annotations

from ddprof.analyzers.execution.cpu import CpuExecution
from ddprof.analyzers.execution.device import DeviceExecution
from ddprof.analyzers.execution.protocol import Execution
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts

DEVICE, CPU = DeviceExecution(), CpuExecution()


def execution_of(job: JobFacts) -> Execution:
    """The execution of the job's ranks."""
    return DEVICE if job.on_device else CPU


def rank_execution(facts: RankFacts) -> Execution:
    """The execution of one rank: the job's, except for a rank with a damaged trace."""
    return DEVICE if facts.is_device_rank else CPU
