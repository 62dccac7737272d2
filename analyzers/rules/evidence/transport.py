"""NCCL's transport and the machine's links as evidence and fixes for the communication rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.hardware import gpu_links, pcie_width, transports
from ddprof.findings import Evidence, Fix
from ddprof.sidecar import InfinibandPort
from ddprof.units import format_ranks, format_share

MIN_SHARE = 0.02  # of the channels; a transport of fewer does not slow a step down
ACTIVE = "ACTIVE"
# Settings that disable or limit a transport, with the values that do; None: any value does.
_NARROWING: dict[str, tuple[str, ...] | None] = {
    "NCCL_IB_DISABLE": ("1",),
    "NCCL_P2P_DISABLE": ("1",),
    "NCCL_SHM_DISABLE": ("1",),
    "NCCL_NVLS_ENABLE": ("0",),
    "NCCL_NET": ("Socket",),
    "NCCL_NET_GDR_LEVEL": ("0", "LOC"),
    "NCCL_P2P_LEVEL": ("0", "LOC"),
    "NCCL_ALGO": None,
    "NCCL_PROTO": None,
    "NCCL_MAX_NCHANNELS": None,
    "NCCL_MAX_CTAS": None,
    "NCCL_BUFFSIZE": None,
}
_MAX_VALUE = 40  # characters shown of a setting
_JOINED_BY = {
    "PIX": "one PCIe switch",
    "PXB": "PCIe switches",
    "PHB": "PCIe over a CPU",
    "NODE": "PCIe between bridges of one CPU",
    "SYS": "PCIe and the link between CPU sockets",
}
_SOURCE = "NCCL's own log as it connects; nvidia-smi topo -m; /sys/class/infiniband"


def of_job(measures: Measures) -> tuple[list[Evidence], list[Fix]]:
    """Transports of the ranks, and fixes where the machine has something faster.

    ([], []) where none of it was captured.
    """
    ranks = measures.job.ranks
    uses = [(facts.sidecar.nccl.version or "", use) for facts in ranks if (use := transports(facts))]
    evidence: list[Evidence] = []
    if uses:
        mean = {kind: fmean(other.get(kind, 0.0) for _, other in uses) for _, use in uses for kind in use}
        shown = ", ".join(f"{kind} ({format_share(mean[kind])})" for kind in sorted(mean, key=lambda k: -mean[k]))
        evidence.append(Evidence(f"NCCL {uses[0][0]}".strip() + f" moves data by {shown} of its channels"))
    settings = sorted({text for facts in ranks for text in _narrowing(facts)})
    if settings:
        evidence.append(Evidence(f"set in the job's environment: {', '.join(settings)}"))
    joined = sorted({kind for facts in ranks for kind in gpu_links(facts).values()} & _JOINED_BY.keys())
    if joined:
        evidence.append(
            Evidence(f"GPUs of one host are joined by {' and by '.join(_JOINED_BY[kind] for kind in joined)}")
        )
    return evidence, _fixes(measures)


def of_ranks(measures: Measures, culprits: Sequence[int]) -> list[Evidence]:
    """Differences between the connections of some ranks (numbers) and all others; [] where unknown."""
    job = measures.job
    slow = [(n, facts) for n, facts in zip(job.rank_ids, job.ranks, strict=True) if n in culprits]
    peers = [facts for n, facts in zip(job.rank_ids, job.ranks, strict=True) if n not in culprits]
    if not peers:
        return []
    texts: dict[str, int] = {}  # text -> the first rank it is true of: ranks of a host share its ports
    for number, facts in slow:
        for text in (*_other_transports(facts, peers), *_other_ports(facts, peers), *_narrow_slot(facts)):
            texts.setdefault(text, number)
    return [Evidence(text, number) for text, number in texts.items()]


def _fixes(measures: Measures) -> list[Fix]:
    """One fix per transport that is slower than another one on the ranks' hosts."""
    job = measures.job
    by_socket, by_memory, within = [], [], []
    hosts = {facts.identity.host for facts in job.ranks}
    for number, facts in zip(job.rank_ids, job.ranks, strict=True):
        use = transports(facts)
        if use.get("NET/Socket", 0.0) >= MIN_SHARE:
            if len(hosts) == 1 < len(job.ranks) and None not in hosts:
                within.append((number, facts))
            elif _active_ports(facts):
                by_socket.append((number, facts))
        links = gpu_links(facts).values()
        if use.get("SHM", 0.0) >= MIN_SHARE and links and all(kind.startswith("NV") for kind in links):
            by_memory.append((number, facts))
    fixes = [_within_a_host(within)] if within else []
    if by_socket:
        port, rate = next(iter(_active_ports(by_socket[0][1]).items()))
        variable = _set_to(by_socket, ("NCCL_IB_DISABLE", "NCCL_NET"))
        fixes.append(
            Fix(
                setting="NCCL network of " + format_ranks([number for number, _ in by_socket]),
                current="NET/Socket" + (f" ({variable})" if variable else ""),
                suggested=f"InfiniBand: {port} is active ({rate})",
                patch=f"unset {variable.split('=')[0]}" if variable else "export NCCL_IB_HCA=" + port.split("/")[0],
                why="TCP copies through the CPU, at a fraction of the card's rate",
                source=_SOURCE,
            )
        )
    if by_memory:
        variable = _set_to(by_memory, ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"))
        fixes.append(
            Fix(
                setting="NCCL peer access of " + format_ranks([number for number, _ in by_memory]),
                current="SHM" + (f" ({variable})" if variable else ""),
                suggested="P2P over NVLink, which joins these GPUs",
                patch=f"unset {variable.split('=')[0]}"
                if variable
                else "show all GPUs of the host to every rank (containers: --gpus all --ipc=host)",
                why="shared memory goes over PCIe and the host's memory instead of NVLink",
                source=_SOURCE,
            )
        )
    return fixes


def _within_a_host(ranks: Sequence[tuple[int, RankFacts]]) -> Fix:
    """The fix for ranks of one host that NCCL joins by network sockets."""
    set_to = [each for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") if (each := _set_to(ranks, (name,)))]
    return Fix(
        setting="NCCL transport of " + format_ranks([number for number, _ in ranks]),
        current="NET/Socket" + (f" ({', '.join(set_to)})" if set_to else ""),
        suggested="P2P or shared memory: these ranks are on one host",
        patch="unset " + " ".join(each.split("=")[0] for each in set_to)
        if set_to
        else "docker run --ipc=host --gpus all ...  # else NCCL_DEBUG=INFO says why neither was chosen",
        why="TCP copies each byte through the CPU",
        source=_SOURCE,
    )


def _narrowing(facts: RankFacts) -> list[str]:
    settings = facts.sidecar.communication_environment
    return [
        f"{name}={settings[name][:_MAX_VALUE]}"
        for name, values in _NARROWING.items()
        if name in settings and (values is None or settings[name] in values)
    ]


def _set_to(ranks: Sequence[tuple[int, RankFacts]], names: tuple[str, ...]) -> str:
    """The first of these settings that restricts any of the ranks, as "NAME=value"; "" for none."""
    settings = {text for _, facts in ranks for text in _narrowing(facts) if text.split("=")[0] in names}
    return min(settings, default="")


def _ports(facts: RankFacts) -> Mapping[str, InfinibandPort]:
    """Ports of the rank's host by "card/port"."""
    return facts.sidecar.hardware.topology.infiniband


def _active_ports(facts: RankFacts) -> dict[str, str]:
    return {name: port.rate for name, port in _ports(facts).items() if port.state == ACTIVE}


def _other_transports(facts: RankFacts, peers: Sequence[RankFacts]) -> list[str]:
    usual = {kind for peer in peers for kind in transports(peer)}
    odd = [kind for kind, share in transports(facts).items() if usual and kind not in usual and share >= MIN_SHARE]
    return [f"NCCL moves its data by {kind}, its peers' by {', '.join(sorted(usual))}" for kind in odd]


def _other_ports(facts: RankFacts, peers: Sequence[RankFacts]) -> list[str]:
    """Ports that are down or slower than their namesake on every peer's host."""
    texts = []
    for name, port in _ports(facts).items():
        namesakes = [namesake for peer in peers if (namesake := _ports(peer).get(name)) is not None]
        if not namesakes or any(peer_port.state != ACTIVE for peer_port in namesakes):
            continue
        slowest = min(_gigabits(peer_port.rate) for peer_port in namesakes)
        if port.state != ACTIVE:
            texts.append(f"port {name} of its host is {port.state or 'not active'}, that of its peers' hosts is active")
        elif 0 < _gigabits(port.rate) < slowest:
            texts.append(
                f"port {name} of its host runs at {_gigabits(port.rate):g} Gbit/s, its peers' at {slowest:g} Gbit/s"
            )
    return texts


def _gigabits(rate: str) -> float:
    """Parse a port's rate: "400 Gb/sec (4X NDR)" -> 400; 0 for anything else."""
    match = re.match(r"(\d+(?:\.\d+)?) Gb/sec", rate)
    return float(match[1]) if match else 0.0


def _narrow_slot(facts: RankFacts) -> list[str]:
    width = pcie_width(facts)
    return [f"its GPU has {width[0]} of {width[1]} PCIe lanes"] if width is not None and width[0] < width[1] else []
