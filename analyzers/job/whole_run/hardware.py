"""What the capture knows of the machine under each rank: its GPU while the job ran, its host's connections, and how
NCCL connected it. Whatever was not captured, or is not of the expected kind, is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddprof.analyzers.facts.model import RankFacts


@dataclass(frozen=True)
class GpuState:
    """One GPU over the samples in which it was busy, one a second (None: the driver does not say)."""

    index: int  # of nvidia-smi
    busy_samples: int
    throttled: Mapping[str, float]  # reason -> share of the busy samples, largest first
    clock_mhz: float | None  # mean
    power_limit_w: float | None
    hottest_c: float | None


@dataclass(frozen=True)
class NcclUse:
    """How NCCL connected one rank: transports by their share of its channels, largest first."""

    version: str | None
    transports: Mapping[str, float]


def gpu_state(facts: RankFacts) -> GpuState | None:
    """The rank's own GPU; None where it was not sampled while busy."""
    found = _section(_section(facts.sidecar, "hardware"), "gpu")
    busy = _number(found.get("busy_samples"))
    if not busy:
        return None
    power = _number(found.get("power_limit_mw"))
    return GpuState(
        index=int(_number(found.get("index")) or 0),
        busy_samples=int(busy),
        throttled=_shares(_section(found, "throttled"), busy),
        clock_mhz=_number(found.get("sm_clock_mhz")),
        power_limit_w=None if power is None else power / 1e3,
        hottest_c=_number(found.get("temperature_max_c")),
    )


def nccl_use(facts: RankFacts) -> NcclUse | None:
    """Transports NCCL chose; None where it did not say."""
    found = _section(facts.sidecar, "nccl")
    channels = _section(found, "transports")
    total = sum(n for n in map(_number, channels.values()) if n)
    if not total:
        return None
    version = found.get("version")
    return NcclUse(version if isinstance(version, str) else None, _shares(channels, total))


def communication_settings(facts: RankFacts) -> dict[str, str]:
    """NCCL_* and the like in the environment of the rank."""
    return {k: v for k, v in _section(facts.sidecar, "communication_environment").items() if isinstance(v, str)}


def gpu_links(facts: RankFacts) -> dict[str, str]:
    """How the GPUs of the rank's host are joined, pair by pair, as `nvidia-smi topo -m` calls it ("NV18", "SYS")."""
    links = _section(_topology(facts), "links")
    gpus = ((pair, kind) for pair, kind in links.items() if all(end.startswith("GPU") for end in pair.split("-")))
    return {pair: kind for pair, kind in gpus if isinstance(kind, str)}


def infiniband_ports(facts: RankFacts) -> dict[str, tuple[str, str]]:
    """Ports of the rank's host: "card/port" -> (state, rate), as /sys says them."""
    ports = _section(_topology(facts), "infiniband")
    return {
        name: (str(port.get("state") or ""), str(port.get("rate") or ""))
        for name, port in ports.items()
        if isinstance(port, dict)
    }


def pcie_width(facts: RankFacts) -> tuple[int, int] | None:
    """Lanes of the rank's device, now and at most; None where it is not known which device of the host is its own."""
    address = _section(facts.sidecar, "device").get("pci_address")
    gpus = _topology(facts).get("gpus")
    for gpu in gpus if isinstance(gpus, list) else ():
        if isinstance(gpu, dict) and address is not None and gpu.get("address") == address:
            now, most = _number(gpu.get("pcie_width")), _number(gpu.get("pcie_width_max"))
            return (int(now), int(most)) if now and most else None
    return None


def _topology(facts: RankFacts) -> Mapping[str, Any]:
    return _section(_section(facts.sidecar, "hardware"), "topology")


def _section(outer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = outer.get(key)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shares(counts: Mapping[str, Any], total: float) -> dict[str, float]:
    known = {name: n / total for name, value in counts.items() if (n := _number(value))}
    return dict(sorted(known.items(), key=lambda item: -item[1]))
