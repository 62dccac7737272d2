"""NCCL's log of its connections: version, network, and transport of every channel.

At NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT, NCCL writes that once per communicator, and nothing per collective. ddprof
sets both only where the user has set none of NCCL_DEBUG*, neither in the environment nor in NCCL's own settings file.
The log is a file of the run folder, created in advance: NCCL falls back to the job's standard output where it cannot
open its file.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import host_label
from ddprof.capture.files.storage import open_to_append, text_of

_VARIABLES = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
_SETTINGS_FILES = ("/etc/nccl.conf", "~/.nccl.conf")  # NCCL reads both; its environment wins over them
# One line per channel and peer: an all-to-all among more ranks than this would write megabytes as it connects.
_MAX_WORLD = 1024
_MAX_READ_BYTES = 4 << 20
_VERSION = re.compile(r"NCCL version (\d[\w.+-]*)")
_NETWORK = re.compile(r"NCCL INFO Using network (\S.*)")
_CHANNEL = re.compile(r"NCCL INFO Channel \d+(?:/\d+)? : \d+\[[^\]]*\] -> \d+\[[^\]]*\](?: \[\w+\])? via (\S.*)")


def ask(folder: Path, environment: MutableMapping[str, str]) -> Path | None:
    """Have NCCL log into `folder`, by `environment`. Returns the file, None if NCCL is left alone. Raises OSError."""
    if any(name in environment for name in _VARIABLES) or _is_settled_elsewhere(environment):
        return None
    world = environment.get("WORLD_SIZE", "")
    if "%" in str(folder) or (world.isdigit() and int(world) > _MAX_WORLD):  # NCCL takes % for a placeholder
        return None
    pattern = str(folder / f"nccl.{host_label()}.%p.log")
    path = Path(pattern.replace("%p", str(os.getpid())))
    os.close(open_to_append(path))
    environment.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT", NCCL_DEBUG_FILE=pattern)
    return path


def read(path: Path | None) -> dict[str, Any] | None:
    """`{version, network, transports{"P2P/CUMEM": channels, "NET/IB/GDRDMA": channels, ...}}`, channels of one rank in
    both directions; None where NCCL has written nothing. Raises OSError.
    """
    if path is None or not path.is_file():
        return None
    with path.open("rb") as stream:
        text = stream.read(_MAX_READ_BYTES).decode("utf-8", "replace")
    if not text:
        return None
    version, network = _VERSION.search(text), _NETWORK.search(text)
    transports = Counter(transport(match[1]) for match in _CHANNEL.finditer(text))
    return {
        "version": version[1] if version else None,
        "network": network[1].strip() if network else None,
        "transports": dict(transports),
    }


def transport(said: str) -> str:
    """The kind of a transport without card numbers: "NET/IB/3(1)/GDRDMA/Shared" is "NET/IB/GDRDMA"."""
    parts = said.split(" comm ")[0].strip().split("/")
    if parts[0] == "NET" and len(parts) > 1:
        return "/".join(("NET", parts[1], *(("GDRDMA",) if "GDRDMA" in parts else ())))
    return "/".join(parts[:2]) if parts[0] == "P2P" else parts[0]


def clear(path: Path | None) -> None:
    """Delete a log that NCCL never wrote to. Raises OSError."""
    if path is not None and path.is_file() and not path.stat().st_size:
        path.unlink()


def _is_settled_elsewhere(environment: MutableMapping[str, str]) -> bool:
    files = (*_SETTINGS_FILES, environment.get("NCCL_CONF_FILE", ""))
    return any("NCCL_DEBUG" in text_of(os.path.expanduser(file)) for file in files if file)
