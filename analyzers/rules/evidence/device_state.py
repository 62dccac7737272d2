"""Reasons for a slow device, as its driver reported them during the job, as evidence and a fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.hardware import GpuState, gpu_state
from ddprof.findings import Evidence, Fix
from ddprof.units import format_share

MIN_SAMPLES = 10  # busy seconds; fewer do not represent a run
MIN_SHARE = 0.10  # of the busy samples, and above the typical peer's share: cards at full load touch their power cap
MIN_CLOCK_GAP = 0.03  # below the typical peer's mean clock
MIN_LIMIT_GAP = 0.05  # below the typical peer's power limit

_REASONS = {
    "sw_power_cap": "its power limit",
    "sw_thermal": "the driver's thermal limit",
    "hw_thermal": "the hardware's thermal limit",
    "hw_power_brake": "the power brake of its node",
    "hw_slowdown": "the hardware",
}
_HEAT = ("sw_thermal", "hw_thermal")
_SOURCE = "nvmlDeviceGetCurrentClocksThrottleReasons, once a second by ddprof run"


def of_slow_device(measures: Measures, slow: Sequence[int]) -> tuple[list[Evidence], Fix | None]:
    """Driver reports on slow ranks' devices, and the fix that follows.

    `slow`: positions, the slowest first. ([], None) where no slow device was sampled. Where none was throttled the
    fix is None, and the reports are those on the slowest.
    """
    states = {p: state for p, facts in enumerate(measures.job.ranks) if (state := gpu_state(facts)) is not None}
    sampled = {p: state for p, state in states.items() if state.busy_samples >= MIN_SAMPLES}
    peers = [state for p, state in sampled.items() if p not in slow]
    of_slowest: list[Evidence] = []
    for position in slow:
        if position not in sampled:
            continue
        rank, state = measures.job.rank_ids[position], sampled[position]
        evidence = [Evidence(text, rank) for text in _observations(state, peers)]
        reason = _reason(state, peers)
        if reason is not None or _limit_gap(state, peers) is not None:
            return evidence, _fix(rank, reason, state, peers)
        of_slowest = of_slowest or evidence
    return of_slowest, None


def _observations(state: GpuState, peers: Sequence[GpuState]) -> list[str]:
    texts = []
    reason = _reason(state, peers)
    typical_mhz = _typical(peers, lambda peer: peer.clock_mhz)
    if reason is not None:
        beside = f", the typical peer's in {format_share(_typical_share(peers, reason))}" if peers else ""
        held, of = format_share(state.throttled[reason]), state.busy_samples
        texts.append(f"its GPU was throttled by {_REASONS[reason]} in {held} of {of} busy seconds of the run{beside}")
    if state.clock_mhz and typical_mhz and state.clock_mhz < (1 - MIN_CLOCK_GAP) * typical_mhz:
        texts.append(
            f"its GPU ran at {state.clock_mhz:.0f} MHz on average, the typical peer's at {typical_mhz:.0f} MHz"
        )
    elif reason is None and state.clock_mhz and typical_mhz:
        texts.append(
            f"its GPU runs at its peers' clock ({state.clock_mhz:.0f} MHz), throttled no more than they are in "
            f"{state.busy_samples} busy seconds; another process on the device, or memory errors, may slow it"
        )
    limit = _limit_gap(state, peers)
    if limit is not None:
        texts.append(f"its power limit is {state.power_limit_w:.0f} W, the typical peer's {limit:.0f} W")
    return texts


def _reason(state: GpuState, peers: Sequence[GpuState]) -> str | None:
    """Reason for throttling in a clear share of the device's samples, clearly more than on its peers; else None."""
    for reason, share in state.throttled.items():
        typical = _typical_share(peers, reason)
        if reason in _REASONS and share >= MIN_SHARE and share - typical >= MIN_SHARE:
            return reason
    return None


def _fix(rank: int, reason: str | None, state: GpuState, peers: Sequence[GpuState]) -> Fix:
    device, limit = f"GPU {state.index} of the host of rank {rank}", _limit_gap(state, peers)
    if limit is not None:
        return Fix(
            setting=f"power limit of {device}",
            current=f"{state.power_limit_w:.0f} W",
            suggested=f"{limit:.0f} W, as on its peers",
            patch=f"nvidia-smi -i {state.index} -pl {limit:.0f}   # on that host",
            why="a device that may draw less power runs at lower clocks",
            source=_SOURCE,
        )
    if reason in _HEAT:
        return Fix(
            setting=f"cooling of {device}",
            current=None if state.hottest_c is None else f"{state.hottest_c:.0f} °C at most",
            suggested="check airflow, fans and inlet temperature of that node; cordon it until it stays cool",
            patch=f"nvidia-smi -i {state.index} -q -d TEMPERATURE,PERFORMANCE",
            why="it lowers its clock because it is too hot",
            source=_SOURCE,
        )
    return Fix(
        setting=f"power of {device}",
        suggested="check the power supply of that node and the device itself; replace it if it stays slow",
        patch=f"nvidia-smi -i {state.index} -q -d POWER,CLOCK,PERFORMANCE",
        why=f"{_REASONS[reason or 'hw_slowdown']} holds its clock down, and not its peers'",
        source=_SOURCE,
    )


def _limit_gap(state: GpuState, peers: Sequence[GpuState]) -> float | None:
    """The typical peer's power limit (W), where this device's is clearly below it."""
    typical = _typical(peers, lambda peer: peer.power_limit_w)
    if typical is None or state.power_limit_w is None or state.power_limit_w >= (1 - MIN_LIMIT_GAP) * typical:
        return None
    return typical


def _typical_share(peers: Sequence[GpuState], reason: str) -> float:
    return median(peer.throttled.get(reason, 0.0) for peer in peers) if peers else 0.0


def _typical(peers: Sequence[GpuState], value: Callable[[GpuState], float | None]) -> float | None:
    values = [one for peer in peers if (one := value(peer)) is not None]
    return median(values) if values else None
