"""Findings from NCCL's own lines: data that goes by way of the processor, and what NCCL warns of."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.slices.training_logs.model import LogFinding, LoggedTransports
from ddprof.units import format_count, format_share

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


def findings_of(transports: LoggedTransports) -> Iterator[LogFinding]:
    """Findings on channels that go by way of the processor, and on warnings."""
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
