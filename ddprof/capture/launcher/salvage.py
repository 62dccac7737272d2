"""Recovers the data of killed ranks in the run folder, after the job has ended."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from ddprof.capture.files.call_log import read_calls
from ddprof.capture.files.last_resort import remove_empty
from ddprof.capture.files.layout import (
    CALLS_SUFFIX,
    FAULT_SUFFIX,
    RING_SUFFIX,
    SCHEMA,
    SIDECAR_SUFFIX,
    TRACE_SUFFIX,
)
from ddprof.capture.files.ring import MAX_STEPS, RingContent, read_ring
from ddprof.capture.files.storage import is_full, names_in, read_object, write_bytes, write_json
from ddprof.capture.launcher.live import pid_here, runs_here


def salvage(folder: Path) -> list[str]:
    """Move the step rings of dead ranks into their sidecars and delete temporary files. Returns notes."""
    notes: list[str] = []
    for ring_path in _of_the_dead(folder, RING_SUFFIX):
        path = ring_path.with_name(ring_path.name.removesuffix(RING_SUFFIX) + SIDECAR_SUFFIX)
        try:
            notes.extend(_complete(path, ring_path))
        except OSError as error:
            notes.append(f"{ring_path.name}: its steps are not in the sidecar: {error.strerror}")
        except ValueError as error:  # the ring is damaged, and names itself
            notes.append(f"{error}: its steps are not in the sidecar")
    for log in _of_the_dead(folder, CALLS_SUFFIX):
        try:
            _keep_calls(log)
        except (OSError, ValueError) as error:
            notes.append(f"{log.name}: its calls are not in the sidecar: {error}")
    for unwritten in _of_the_dead(folder, FAULT_SUFFIX):
        with suppress(OSError):
            remove_empty(unwritten)
    for leftover in _of_the_dead(folder, ".tmp"):
        try:
            leftover.unlink()
            notes.append(f"{leftover.name}: removed: its writer died before it was complete")
        except OSError as error:
            notes.append(f"{leftover.name}: left there, incomplete, as its writer died: {error.strerror}")
    return notes


def _of_the_dead(folder: Path, suffix: str) -> list[Path]:
    """Files with an ending whose writer ran on this host and has ended; writers on other nodes may still run."""
    pids = {path: pid_here(path.name) for path in names_in(folder, suffix)}
    return [path for path, pid in pids.items() if pid is not None and not runs_here(pid)]


def _complete(path: Path, ring_path: Path) -> list[str]:
    """Add the ring's steps to a killed process's sidecar, and delete the ring once it is read.

    A sidecar that is damaged or missing is made from the ring. Raises OSError, and ValueError on a damaged ring.
    """
    content, notes = _sidecar(path)
    if content is not None and content.get("state") != "running":
        ring_path.unlink()
        return []
    ring = read_ring(ring_path)
    if content is None:
        content = {**ring.identity, "schema": SCHEMA, "windows": [], "notes": []}
    added = _add_steps(content, ring)
    content["state"] = "killed"
    notes.append(f"rank {ring.rank} did not end normally: its last {added} steps come from its step ring")
    if ring.damaged:
        notes.append(f"{ring_path.name}: {ring.damaged} records of the step ring are damaged and left out")
    content["notes"] = [*_list(content, "notes"), *notes]
    content["windows"] = _with_orphans(path, content)
    _replace(ring_path, path, content)
    return notes


def _replace(ring_path: Path, path: Path, content: dict[str, Any]) -> None:
    """Write a sidecar in place of its ring, deleted first on a full disk. Raises OSError; then the ring is left."""
    try:
        write_json(path, content)
    except OSError as error:
        if not is_full(error):
            raise
        ring = ring_path.read_bytes()
        ring_path.unlink()
        try:
            return write_json(path, content)
        except OSError:
            write_bytes(ring_path, ring)
            raise
    ring_path.unlink()


def _keep_calls(log: Path) -> None:
    """Add a killed process's last calls to its sidecar, and delete the log once it is read. Raises OSError, and
    ValueError on a damaged log or sidecar.
    """
    path = log.with_name(log.name.removesuffix(CALLS_SUFFIX) + SIDECAR_SUFFIX)
    content = read_object(path) if path.exists() else {}
    if content.get("state") == "killed":
        write_json(path, {**content, "calls": read_calls(log)})
    log.unlink()


def _sidecar(path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The sidecar of a rank, None where damaged (with a note) or missing. Raises OSError."""
    try:
        return read_object(path), []
    except FileNotFoundError:
        return None, []
    except ValueError as error:
        return None, [f"{error}: replaced by what the step ring holds"]


def _add_steps(content: dict[str, Any], ring: RingContent) -> int:
    """Append the ring's steps to those of a sidecar. Returns the number of new ones."""
    steps = [step for step in _list(content, "steps") if isinstance(step, dict) and _is_index(step.get("index"))]
    numbers = {step["index"] for step in steps}
    added = [step.record() for step in ring.steps if step.number not in numbers]
    content["steps"] = sorted([*steps, *added], key=lambda step: int(step["index"]))
    content["steps_total"] = max(ring.written, len(content["steps"]))
    return len(added)


def _is_index(value: object) -> bool:
    return type(value) is int and 0 <= value < MAX_STEPS


def _with_orphans(path: Path, content: dict[str, Any]) -> list[Any]:
    """Windows of a sidecar plus those whose trace was written after it."""
    windows = _list(content, "windows")
    listed = {str(window.get("trace_path")).removesuffix(".gz") for window in windows if isinstance(window, dict)}
    stem = path.name.removesuffix(SIDECAR_SUFFIX)
    traces = [*names_in(path.parent, TRACE_SUFFIX), *names_in(path.parent, f"{TRACE_SUFFIX}.gz")]
    for name in sorted(trace.name for trace in traces if trace.name.startswith(f"{stem}.")):
        if name.removesuffix(".gz") not in listed:  # killed while packing: the trace lies there in both forms
            listed.add(name.removesuffix(".gz"))
            windows.append(
                {"first_step": None, "last_step": None, "start_ns": None, "end_ns": None, "trace_path": name}
            )
    return windows


def _list(content: dict[str, Any], key: str) -> list[Any]:
    """A list of a sidecar; [] for any other value."""
    value = content.get(key)
    return list(value) if isinstance(value, list) else []
