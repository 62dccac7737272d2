"""Peak rates of known devices, from hardware.toml. For an unknown device there are none, and callers abstain."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return tomllib.loads(files("ddprof").joinpath("hardware.toml").read_text(encoding="utf-8"))


def peak_flops(device_name: str | None, fp32: bool = False) -> float | None:
    """Peak FLOP/s of a device by its driver's name, dense BF16 or vector FP32; None for an unknown device."""
    return _rate(device_name, "flops_fp32" if fp32 else "flops")


def memory_bandwidth(device_name: str | None) -> float | None:
    """Peak memory bandwidth of a device by its driver's name, bytes per second; None for an unknown device."""
    return _rate(device_name, "memory_bytes_per_s")


def _rate(device_name: str | None, rate: str) -> float | None:
    for row in _table()["device"] if device_name else []:
        if row["match"].lower() in (device_name or "").lower():
            return float(row[rate])
    return None


def times_slower_between_nodes(device_name: str | None) -> float:
    """Rated link inside a node over a device's part of the network, in its usual node; of an unknown device the most of
    all nodes in the table.
    """
    words = (device_name or "").lower().replace("-", " ").split()
    rows = _table()["gpu"]
    own = [row for row in rows if row["name"].lower().partition("-")[0] in words]
    return max(float(row["link_bytes_per_s"] * row["per_node"] / row["node_bytes_per_s"]) for row in own or rows)


def gpu_row(name: str) -> dict[str, Any] | None:
    """A device in its usual node by its short name (rates in bytes or operations per second); None if unknown."""
    wanted = name.lower()
    return next((row for row in _table()["gpu"] if row["name"].lower() == wanted), None)


def device_link(device_name: str | None) -> float | None:
    """Link rate between the devices of a node, bytes per second in one direction, by the driver's name ("NVIDIA H100
    80GB HBM3"); None for an unknown device and for PCIe cards, which have other names.
    """
    words = (device_name or "").lower().replace("-", " ").split()
    if "pcie" in words:
        return None
    for row in _table()["gpu"]:
        if row["name"].lower().partition("-")[0] in words:
            return float(row["link_bytes_per_s"])
    return None


def gpu_names() -> list[str]:
    """Device names that a plan can be made for."""
    return [str(row["name"]) for row in _table()["gpu"]]
