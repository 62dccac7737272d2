"""Peak rates of known devices, from hardware.toml. An unknown device has none: callers abstain."""

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
    """Peak FLOP/s of a device by the name its driver gives: dense BF16, or vector FP32; None if not in the table."""
    return _rate(device_name, "flops_fp32" if fp32 else "flops")


def memory_bandwidth(device_name: str | None) -> float | None:
    """Peak bytes per second of the memory of a device by the name its driver gives; None if not in the table."""
    return _rate(device_name, "memory_bytes_per_s")


def _rate(device_name: str | None, rate: str) -> float | None:
    for row in _table()["device"] if device_name else []:
        if row["match"].lower() in (device_name or "").lower():
            return float(row[rate])
    return None


def gpu_row(name: str) -> dict[str, Any] | None:
    """A device in its usual nodes (rates in bytes or operations per second), by name; None if not in the table."""
    wanted = name.lower()
    return next((row for row in _table()["gpu"] if row["name"].lower() == wanted), None)


def device_link(device_name: str | None) -> float | None:
    """Bytes per second, one direction, between devices of a node as they are usually joined, by the name that the
    driver gives ("NVIDIA H100 80GB HBM3"); None if not in the table. PCIe cards go by other names and have none."""
    words = (device_name or "").lower().replace("-", " ").split()
    if "pcie" in words:
        return None
    for row in _table()["gpu"]:
        if row["name"].lower().partition("-")[0] in words:
            return float(row["link_bytes_per_s"])
    return None


def gpu_names() -> list[str]:
    """Names of the devices that a plan can be made for."""
    return [str(row["name"]) for row in _table()["gpu"]]
