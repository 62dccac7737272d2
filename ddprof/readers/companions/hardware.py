"""The machine under a rank, from the manifests of its run: how its host is connected, what its GPU did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddprof.readers.companions.files import read_manifest
from ddprof.readers.files.names import file_name

_MAIN = "manifest.json"


def manifests_of(trace: str, manifests: Sequence[str]) -> tuple[str, ...]:
    """Of the manifests beside a trace those that may be its host's: that name its host, and the one that names none."""
    host = file_name(trace).split(".")[1:2]
    return tuple(m for m in manifests if file_name(m) == _MAIN or file_name(m).split(".")[1:2] == host)


def read_hardware(manifests: Sequence[str], sidecar: Mapping[str, Any]) -> dict[str, Any]:
    """`{topology, gpu}` of the sidecar's rank: its host's connections and the tally of its own GPU; a key is absent
    where no manifest has it. A manifest that cannot be read has neither."""
    found: dict[str, Any] = {}
    device = sidecar.get("device")
    uuid = _plain(device.get("uuid")) if isinstance(device, dict) else None
    for path in manifests:
        manifest = read_manifest(path)
        if manifest.get("host") != sidecar.get("host"):
            continue
        if isinstance(manifest.get("topology"), dict):
            found.setdefault("topology", manifest["topology"])
        gpus = manifest.get("gpus")
        for gpu in gpus if isinstance(gpus, list) else ():
            if uuid is not None and isinstance(gpu, dict) and _plain(gpu.get("uuid")) == uuid:
                found.setdefault("gpu", gpu)
    return found


def _plain(uuid: Any) -> str | None:
    """NVML writes "GPU-" before the UUID that CUDA gives."""
    return uuid.removeprefix("GPU-").lower() if isinstance(uuid, str) and uuid else None
