"""Faults of the scripts: the findings that may name each, and the runs that are its twins."""

from __future__ import annotations

from dataclasses import dataclass

# Twins of GPT's modes that are one and the same script without the fault. Steps that the host bounds scatter with what
# runs beside them (18 to 28 ms), so that the gain is known to within these.
SHARED = ("gpt-blocking-0", "gpt-clip-0", "gpt-ema-0")
LAUNCHES = ("host.launch_bound", "host.sync", "host.script")


@dataclass(frozen=True)
class Fault:
    """`ids`: the findings that may name it, none where it hides behind communication; `ranks`: whom they name."""

    ids: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    twins: tuple[str, ...] = ()


FAULTS = {
    "segment": Fault(("host.sync",)),
    "rnn": Fault(LAUNCHES),
    "detect": Fault(LAUNCHES),
    "experts": Fault(LAUNCHES),
    "offload": Fault(("input.pageable_copy",)),
    "images-loader": Fault(("input.starved",)),
    "images-pageable": Fault(("input.pageable_copy",)),
    "images-prefetch": Fault(("input.starved",)),
    "gpt-blocking": Fault(("host.launch_blocking",)),
    "gpt-precision": Fault(("compute.precision",)),
    "gpt-ema": Fault(LAUNCHES),
    "gpt-clip": Fault(LAUNCHES),
    "gpt-opt": Fault(("compute.unfused_optimizer", "host.launch_bound"), twins=SHARED),
    "gpt-anomaly": Fault(("host.anomaly_detection",), twins=SHARED),
    "gpt-save": Fault(("host.checkpoint",), twins=SHARED),
    "gpt-empty": Fault(("host.allocator", "host.launch_bound"), twins=SHARED),
    "gpt-timers": Fault(("host.sync",), twins=SHARED),
    "gpt-eval": Fault(("host.evaluation",), twins=SHARED),
    "gpt-gc": Fault(("host.gc",), twins=SHARED),
    "gpt-logs": Fault(LAUNCHES, twins=SHARED),
    "pair-late": Fault(),
    "pair-python": Fault(),
    "pair-long": Fault(),
    "pair-fsdp": Fault(),
    "pair-save": Fault(("host.checkpoint",), (0,)),
    "pair-gc": Fault(("host.gc",), (1,), ("pair-buckets-0", "pair-save-0")),
    "pair-objects": Fault(("comm.barrier",)),
    "pair-buckets": Fault(("comm.latency_bound", "comm.bandwidth_bound")),
    "pair-single": Fault(("comm.latency_bound", "comm.bandwidth_bound")),
}


def twins(name: str) -> tuple[str, ...]:
    """Names of the runs without the fault: its own where it has one."""
    return FAULTS[name].twins or (f"{name}-0",)


def runs() -> list[str]:
    """Names of all runs to record, each fault before its twins."""
    return list(dict.fromkeys(run for name in FAULTS for run in (f"{name}-1", *twins(name))))
