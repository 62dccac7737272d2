"""Findings from what a log says of its machine: full memory, a rate far below the peak, and NCCL's transports."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.report.log_reading import LogFinding
from ddprof.slices.training_logs.model import IterationSummary, LoggedDevices, LoggedTransports, TrainingLog
from ddprof.units import format_count, format_share

# The least of the large language models that PaLM (Chowdhery et al., 2022, arXiv 2204.02311, table 3) compares.
LEAST_PUBLISHED_MFU = 0.213
# Steps that a scale of the loss takes from DeepSpeed's 2 ** 32 to one, each to its half.
_SEARCHED = 32


def is_possible(devices: LoggedDevices) -> bool:
    """False for more work than a device can do: the job counts its operations or its peak wrongly."""
    return devices.mfu is None or devices.mfu <= 1


def findings_of(log: TrainingLog, iterations: IterationSummary | None) -> Iterator[LogFinding]:
    """Findings on memory that is full, devices that do little, slow channels of NCCL, and its warnings."""
    yield from _of_devices(log.devices, iterations)
    yield from _of_transports(log.transports)


def _of_devices(devices: LoggedDevices, iterations: IterationSummary | None) -> Iterator[LogFinding]:
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
    skipped, steps = devices.skipped
    if skipped > _SEARCHED and 2 * skipped > steps:
        summary = f"The optimizer skipped {skipped} of {format_count(steps, 'step')}: their time is spent for nothing"
        evidence = (
            "gradients overflow in half precision (fp16) at any scale of the loss",
            "bf16, where the devices have it, has the range of float32",
        )
        yield LogFinding("skipped_steps", "critical", summary, skipped / steps, (), evidence)
    if devices.mfu is not None and 0 < devices.mfu < LEAST_PUBLISHED_MFU:
        summary = f"The devices do {format_share(devices.mfu)} of the arithmetic they could (mfu){used}"
        evidence = (
            "published runs of large language models do 21 to 46 % (PaLM, table 3); small models and batches do less",
            "what the devices do or wait for in the rest is in a trace",
        )
        yield LogFinding("low_rate", "warning", summary, devices.mfu, (), evidence)


# (transport, what it does, what to look at, and what of NCCL's settings bears on it)
_SLOW = (
    (
        "NET/Socket",
        "by TCP (NET/Socket)",
        "each byte is copied by the processor, which InfiniBand, RoCE or the cloud's own plugin spare it",
        ("IB", "NCCL_NET"),
    ),
    (
        "SHM",
        "through the host's memory (SHM)",
        "NCCL sees no direct way between these GPUs, or is told to take none: `nvidia-smi topo -m` shows their links",
        ("P2P", "TOPO"),
    ),
)


def joined(transports: LoggedTransports) -> str:
    """Transports that join the ranks, and the bandwidth that nccl-tests measured; "" where the log does not say it."""
    kinds = sorted(transports.channels.items(), key=lambda each: -each[1])
    by = ", ".join(f"{kind} ({format_count(channels, 'channel')})" for kind, channels in kinds)
    said = [f"NCCL joins {format_count(transports.ranks, 'rank')} by {by}"] if by else []
    if transports.bandwidth_gbs is not None:
        said.append(f"nccl-tests measured {transports.bandwidth_gbs:.3g} GB/s of bus bandwidth")
    return ". ".join(said)


def _of_transports(transports: LoggedTransports) -> Iterator[LogFinding]:
    channels = sum(transports.channels.values())
    for kind, how, look, bearing in _SLOW:
        share = transports.channels.get(kind, 0) / channels if channels else 0.0
        if share:
            summary = f"NCCL moves data {how} on {format_share(share)} of its channels"
            why = [said for said in transports.why if any(word in said for word in bearing)]
            yield LogFinding("transport", "warning", summary, share, (), (look, *why))
    if transports.warnings:
        summary = f"NCCL warns {format_count(len(transports.warnings), 'time')}, first: {transports.warnings[0]}"
        yield LogFinding("nccl_warnings", "warning", summary, 0.0)
