"""Findings from what a log says of its devices: full memory, and a rate far below their peak."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.slices.training_logs.model import IterationSummary, LogFinding, LoggedDevices
from ddprof.units import format_count, format_share

# The least of the large language models that PaLM (Chowdhery et al., 2022, arXiv 2204.02311, table 3) compares.
LEAST_PUBLISHED_MFU = 0.213


def is_possible(devices: LoggedDevices) -> bool:
    """False for more work than a device can do: the job counts its operations or its peak wrongly."""
    return devices.mfu is None or devices.mfu <= 1


def findings_of(devices: LoggedDevices, iterations: IterationSummary | None) -> Iterator[LogFinding]:
    """Findings on memory that is full, and on devices that do little."""
    used = "" if devices.memory is None else f", with {format_share(devices.memory)} of their memory in use"
    ran = 1 if iterations is None else iterations.lines * iterations.every
    if devices.retries >= ran:
        summary = (
            "The devices' memory is full: the allocator gave its cache back and asked again "
            f"{format_count(devices.retries, 'time')} in {format_count(ran, 'iteration')}{used}"
        )
        evidence: tuple[str, ...] = (
            "each time the host waits for the device, and what was freed is allocated anew",
            "a smaller micro-batch, checkpointed activations or more sharding leave room",
            "expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF helps where free memory lies in pieces",
        )
        yield LogFinding("memory_full", "warning", summary, devices.memory or 0.0, (), evidence, "host_allocator")
    if devices.mfu is not None and 0 < devices.mfu < LEAST_PUBLISHED_MFU:
        summary = f"The devices do {format_share(devices.mfu)} of the arithmetic they could (mfu){used}"
        evidence = (
            "published runs of large language models do 21 to 46 % (PaLM, table 3); small models and batches do less",
            "what the devices do or wait for in the rest is in a trace",
        )
        yield LogFinding("low_rate", "warning", summary, devices.mfu, (), evidence)
