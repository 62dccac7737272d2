"""Which execution a job has."""

from __future__ import annotations

from ddprof.analyzers.execution.cpu import CpuExecution
from ddprof.analyzers.execution.device import DeviceExecution
from ddprof.analyzers.execution.protocol import Execution
from ddprof.analyzers.job.model import JobFacts

DEVICE, CPU = DeviceExecution(), CpuExecution()


def execution_of(job: JobFacts) -> Execution:
    """How the job's ranks execute their work."""
    return DEVICE if job.on_device else CPU
