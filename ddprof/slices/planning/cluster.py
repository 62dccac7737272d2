"""Devices and links that a plan assumes, and the cost of collectives on them."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from ddprof.errors import UsageError
from ddprof.hardware import gpu_names, gpu_row

LINK_EFFICIENCY = 0.8  # of the specification, as NCCL reaches for large messages (80 to 90 %)
LATENCY_S, HOP_LATENCY_S = 20e-6, 10e-6  # a call in a node, and each doubling of the number of nodes


@dataclass(frozen=True)
class Cluster:
    """Nodes of one kind of device. Rates are bytes or operations per second, one direction, as specified."""

    gpu: str
    flops: float
    memory_bytes: float
    memory_bytes_per_s: float
    link_bytes_per_s: float  # between devices of a node, per device
    node_bytes_per_s: float  # all network ports of a node
    per_node: int

    def rate(self, members: int, members_per_node: int) -> float:
        """Send rate of a ring's member, bytes per second and device.

        A group across nodes shares the node's ports with the groups of the other devices there: each gets its share.
        """
        if members <= members_per_node:
            return self.link_bytes_per_s * LINK_EFFICIENCY
        share = self.node_bytes_per_s * members_per_node / self.per_node
        return min(self.link_bytes_per_s, share) * LINK_EFFICIENCY

    def gather_s(self, size_bytes: float, members: int, members_per_node: int) -> float:
        """Time (s) of an all-gather or reduce-scatter of `size_bytes` in all: (n - 1) / n of it passes each member."""
        if members < 2 or size_bytes <= 0:
            return 0.0
        nodes = max(1.0, members / members_per_node)
        latency = LATENCY_S + HOP_LATENCY_S * log2(nodes)
        return latency + (members - 1) / members * size_bytes / self.rate(members, members_per_node)

    def reduce_s(self, size_bytes: float, members: int, members_per_node: int) -> float:
        """Time (s) of an all-reduce: a reduce-scatter and an all-gather."""
        return 2.0 * self.gather_s(size_bytes, members, members_per_node)


def cluster(name: str, per_node: int | None = None, node_gbps: float | None = None) -> Cluster:
    """A known device in its usual nodes; `node_gbps`: all ports of a node, gigabit per second. Raises UsageError."""
    row = gpu_row(name)
    if row is None:
        raise UsageError(f"--gpu {name}: unknown; known: {', '.join(gpu_names())}")
    return Cluster(
        gpu=str(row["name"]),
        flops=float(row["flops"]),
        memory_bytes=float(row["memory_bytes"]),
        memory_bytes_per_s=float(row["memory_bytes_per_s"]),
        link_bytes_per_s=float(row["link_bytes_per_s"]),
        node_bytes_per_s=node_gbps * 1e9 / 8 if node_gbps else float(row["node_bytes_per_s"]),
        per_node=per_node or int(row["per_node"]),
    )
