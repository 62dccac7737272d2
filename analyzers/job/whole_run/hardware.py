"""The machine under each rank as captured: its GPU during the job, its host's links, and NCCL's connections. Values not
captured, or of an unexpected type, are absent.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts


class GpuState(Struct, frozen=True):
    """One GPU over its busy samples, one per second (None: not reported by the driver)."""

    index: int  # of nvidia-smi
    busy_samples: int
    throttled: Mapping[str, float]  # reason -> share of the busy samples, largest first
    clock_mhz: float | None  # mean
    power_limit_w: float | None
    hottest_c: float | None


class NcclUse(Struct, frozen=True):
    """NCCL's connections of one rank: transports by their share of its channels, largest first."""

    version: str | None
    transports: Mapping[str, float]


def gpu_state(facts: RankFacts) -> GpuState | None:
    """The rank's own GPU; None where it was not sampled while busy."""
    tally = facts.sidecar.hardware.gpu
    if tally is None or not tally.busy_samples:
        return None
    return GpuState(
        index=tally.index or 0,
        busy_samples=tally.busy_samples,
        throttled=_shares(tally.throttled, tally.busy_samples),
        clock_mhz=tally.sm_clock_mhz,
        power_limit_w=None if tally.power_limit_mw is None else tally.power_limit_mw / 1e3,
        hottest_c=tally.temperature_max_c,
    )


def nccl_use(facts: RankFacts) -> NcclUse | None:
    """Transports that NCCL chose; None where it did not log them."""
    said = facts.sidecar.nccl
    total = sum(said.transports.values())
    return NcclUse(said.version, _shares(said.transports, total)) if total else None


def gpu_links(facts: RankFacts) -> dict[str, str]:
    """Links between the GPUs of the rank's host, by pair, in terms of `nvidia-smi topo -m` ("NV18", "SYS")."""
    links = facts.sidecar.hardware.topology.links
    return {pair: kind for pair, kind in links.items() if all(end.startswith("GPU") for end in pair.split("-"))}


def pcie_width(facts: RankFacts) -> tuple[int, int] | None:
    """PCIe lanes of the rank's device, now and at most; None where the rank's device is not known."""
    address = facts.sidecar.device.pci_address
    for gpu in facts.sidecar.hardware.topology.gpus:
        if address is not None and gpu.address == address:
            now, most = gpu.pcie_width, gpu.pcie_width_max
            return (now, most) if now and most else None
    return None


def _shares(counts: Mapping[str, float], total: float) -> dict[str, float]:
    shares = {name: n / total for name, n in counts.items() if n}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
