"""c10d's flight recorder: process group and sequence number of every collective, DDP's buckets included.

On by default in recent versions of torch; older ones keep it for NCCL when TORCH_NCCL_TRACE_BUFFER_SIZE is set.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from ddprof.capture.files.storage import write_json

_ON_BY_DEFAULT = (2, 13)  # torch; for gloo too
_SLACK_NS = 2_000_000  # an entry is created just before the operator that the trace shows
_SYMBOLISER = "torch._inductor.codecache"  # what torch imports to name the lines of a stack (py_symbolize in C++)


def dump_window(path: Path, start_ns: int, end_ns: int) -> str | None:
    """Write the entries created inside the window. Returns None, or the reason against it. Raises OSError."""
    dump = read_entries()
    if dump is None:
        return "this torch build has no flight recorder"
    entries = dump.get("entries", [])
    first_id = entries[0].get("record_id", 0) if entries else 0
    inside = [e for e in entries if start_ns - _SLACK_NS <= int(e.get("time_created_ns", 0)) <= end_ns + _SLACK_NS]
    wrapped = bool(inside) and first_id > 0 and inside[0] is entries[0]
    if not inside:
        return "the flight recorder holds no collective of this window"
    write_json(
        path, {**dump, "entries": inside, "ddprof": {"start_ns": start_ns, "end_ns": end_ns, "wrapped": wrapped}}
    )
    return (
        "the flight recorder's ring is shorter than the window: its first collectives are missing" if wrapped else None
    )


def dump_all(path: Path) -> None:
    """Write every entry, including collectives that never finished, which explain a hang. Raises OSError."""
    dump = read_entries(stacks=True)
    if dump is not None and dump.get("entries"):
        write_json(path, dump)


def read_entries(stacks: bool = False) -> dict[str, Any] | None:
    """The dump as plain data, or None where this torch has none. `stacks`: with the calling lines, which are paths.
    They are left out where torch would import its compiler to name them: if our thread and the script import it at
    once, each gets the other's half, and the script fails.
    """
    c10d = sys.modules.get("torch._C._distributed_c10d")
    if c10d is None:
        return None
    dump = getattr(c10d, "_dump_fr_trace", None) or getattr(c10d, "_dump_nccl_trace", None)
    if dump is None:
        return None
    raw = dump(includeCollectives=True, includeStackTraces=stacks and _is_imported(_SYMBOLISER), onlyActive=False)
    content = pickle.loads(raw)  # made by this very process a moment ago
    plain: dict[str, Any] = json.loads(json.dumps(content, default=str))
    return plain


def _is_imported(name: str) -> bool:
    """True where a module and its packages have been fully imported."""
    parts = name.split(".")
    modules = [sys.modules.get(".".join(parts[:count])) for count in range(1, len(parts) + 1)]
    return all(m is not None and not getattr(m.__spec__, "_initializing", False) for m in modules)


def enable_on_old_torch(version: tuple[int, ...]) -> str | None:
    """Enable the recorder where it is off by default. Must run before the first process group. Returns a note."""
    names = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    if version >= _ON_BY_DEFAULT or any(name in os.environ for name in names):
        return None
    os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000"
    return "set TORCH_NCCL_TRACE_BUFFER_SIZE=2000: this torch keeps no flight recorder without it"
