"""Files that belong to a trace: our sidecar and the flight recorder's dump of the same rank, manifests of its run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.files.safe_pickle import UnsafePickle, load_plain
from ddprof.readers.files.streams import open_blocks


def read_sidecar(path: str | None) -> tuple[Mapping[str, Any], list[HealthNote]]:
    """What our capture knows of the rank; {} and a note where the file cannot be used."""
    if path is None:
        return {}, []
    try:
        value = json.loads(_content(path))
    except (ValueError, NoUsableInput) as error:
        return {}, [HealthNote(f"{path}: not usable ({_short(error)})", "settings of this rank are unknown")]
    if not isinstance(value, dict):
        return {}, [HealthNote(f"{path}: not a sidecar", "settings of this rank are unknown")]
    return value, []


def read_manifest(path: str) -> Mapping[str, Any]:
    """A manifest of the run; {} where it cannot be used. Not to be changed: every rank of a host reads the same one."""
    try:
        status = os.stat(path)
    except OSError:  # not on this file system, or gone
        return _parsed_manifest(path)
    return _remembered_manifest(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _remembered_manifest(path: str, size_bytes: int, mtime_ns: int) -> Mapping[str, Any]:
    return _parsed_manifest(path)


def _parsed_manifest(path: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_content(path))
    except (ValueError, NoUsableInput):
        return {}
    return value if isinstance(value, dict) else {}


def read_flight_recorder(path: str | None) -> tuple[tuple[Mapping[str, Any], ...], list[HealthNote]]:
    """The entries of a dump; () and a note where the file cannot be used."""
    if path is None:
        return (), []
    try:
        value = load_dump(_content(path))
    except (ValueError, NoUsableInput, UnsafePickle) as error:
        effect = "collectives are matched by order where the trace has no sequence numbers"
        return (), [HealthNote(f"{path}: not usable ({_short(error)})", effect)]
    entries = value.get("entries")
    return tuple(e for e in entries if isinstance(e, dict)) if isinstance(entries, list) else (), []


def load_dump(content: bytes) -> Mapping[str, Any]:
    """A flight-recorder dump, JSON or pickle (plain values only). Raises ValueError or UnsafePickle."""
    value = json.loads(content) if content.lstrip()[:1] == b"{" else load_plain(content)
    if not isinstance(value, dict):
        raise ValueError("not a flight-recorder dump")
    return value


def _content(path: str) -> bytes:
    with open_blocks(path) as blocks:
        return b"".join(blocks)


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
