"""Links between this host's devices and network cards, read once by the launching process after the job.

GPUs to one another and to network cards by `nvidia-smi topo -m`, PCIe widths and NUMA nodes by /sys, card rates by
/sys. What this host does not have is absent.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from ddprof.capture.files.storage import count_in, text_of

_TIMEOUT_S = 10.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DEVICE = re.compile(r"^(?:GPU\d+|NIC\d+|mlx\w+|bnxt\w+|efa\w+|rdmap\w+)$")
_NIC = re.compile(r"^\s*(NIC\d+):\s*(\S+)")
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x1200")  # VGA, 3D, processing accelerator (AMD Instinct)
_GPU_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}


def read_topology(sys_root: Path = Path("/sys")) -> dict[str, Any]:
    """`{links, nics, gpus, network, infiniband}` of this host. Never raises on a host that lacks any of them."""
    parts = {
        **parse_matrix(_matrix()),
        "gpus": _gpus(sys_root),
        "network": _network(sys_root),
        "infiniband": _infiniband(sys_root),
    }
    return {key: value for key, value in parts.items() if value}


def parse_matrix(text: str) -> dict[str, Any]:
    """The output of `nvidia-smi topo -m`: `links{"GPU0-GPU1": "NV18", ...}`, each pair once, and names of `nics`."""
    lines = [_COLOUR.sub("", line) for line in text.splitlines()]
    head = next((line.split() for line in lines if line.split()[:1] == ["GPU0"]), [])
    devices = {name for name in head if _DEVICE.match(name)}
    links: dict[str, str] = {}
    for line in lines:
        cells = line.split()
        if not cells or cells[0] not in devices or cells == head:
            continue
        for other, link in zip(head, cells[1:], strict=False):
            if other in devices and link != "X" and f"{other}-{cells[0]}" not in links:
                links[f"{cells[0]}-{other}"] = link
    nics = {match[1]: match[2] for line in lines if (match := _NIC.match(line))}
    return {"links": links, "nics": nics}


def _matrix() -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _gpus(root: Path) -> list[dict[str, Any]]:
    """PCIe width now and at most (a card in a narrow slot copies at half its rate), and NUMA node."""
    gpus = []
    for device in sorted((root / "bus/pci/devices").glob("*")):
        vendor = _GPU_VENDORS.get(_text(device / "vendor"))
        if vendor is None or not _text(device / "class").startswith(_DISPLAY_CLASSES):
            continue
        gpus.append(
            {
                "address": device.name,
                "vendor": vendor,
                "pcie_width": count_in(device / "current_link_width"),
                "pcie_width_max": count_in(device / "max_link_width"),
                "pcie_speed_max": _text(device / "max_link_speed") or None,
                "numa_node": count_in(device / "numa_node"),
            }
        )
    return gpus


def _network(root: Path) -> dict[str, dict[str, Any]]:
    """Rates of the physical network cards, Mbit/s."""
    cards = sorted((root / "class/net").glob("*/device"))
    return {
        card.parent.name: {"speed_mbit_s": count_in(card.parent / "speed"), "numa_node": count_in(card / "numa_node")}
        for card in cards
    }


def _infiniband(root: Path) -> dict[str, dict[str, Any]]:
    ports = sorted((root / "class/infiniband").glob("*/ports/*"))
    return {
        f"{port.parents[1].name}/{port.name}": {
            "rate": _text(port / "rate") or None,
            "state": _text(port / "state").partition(":")[2].strip() or None,
            "link_layer": _text(port / "link_layer") or None,
        }
        for port in ports
    }


def _text(path: Path) -> str:
    return text_of(path).strip()  # "" too of a card that is down, which refuses to tell its speed
