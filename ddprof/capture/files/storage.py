"""Reading and writing files of a run folder: whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, None if there is none that can be read."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_json(path: Path, content: Any) -> None:
    """Write JSON to a temporary name and rename it. Raises OSError; then nothing is left behind."""
    write_bytes(path, json.dumps(content, separators=(",", ":"), default=str).encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary name and rename it. Raises OSError; then nothing is left behind."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def compress(path: Path) -> Path:
    """Replace `path` by `path.gz` and return it.

    On an error (full disk) the plain file stays as it was, and OSError is raised.
    """
    target = path.with_name(path.name + ".gz")
    temporary = path.with_name(f"{path.name}.gz.{os.getpid()}.tmp")
    try:
        # Level 1: half the time of the default for a tenth more bytes, and this runs beside the training.
        with path.open("rb") as source, gzip.open(temporary, "wb", compresslevel=1) as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        os.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    path.unlink()
    return target


def free_bytes(folder: Path) -> int | None:
    """Space an ordinary user may still write, or None where the file system does not say."""
    try:
        stats = os.statvfs(folder)
    except OSError:
        return None
    return stats.f_bavail * stats.f_frsize
