"""The machine under each rank as captured: its GPU during the job, its host's links, and NCCL's connections. Values not
captured, or of an unexpected type, are absent.
"""

from __future__ import annotations

from ddprof.analyzers.facts.model import RankFacts
from ddprof.sidecar import GpuTally


def throttled_share(gpu: GpuTally, reason: str) -> float:
    """Share of a GPU's busy samples in which its driver slowed it down for a reason."""
    return gpu.throttled.get(reason, 0) / (gpu.busy_samples or 1)


def transports(facts: RankFacts) -> dict[str, float]:
    """Transports that NCCL chose, by their share of the rank's channels, largest first; {} where not logged."""
    channels = facts.sidecar.nccl.transports
    total = sum(channels.values())
    most_first = sorted((name for name in channels if channels[name]), key=lambda name: -channels[name])
    return {name: channels[name] / total for name in most_first} if total else {}


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
