"""The side file of samples (docs/run-folder.md): appended JSON lines up to a size limit.

A line is in the kernel's hands once it is written: a process that is killed loses what it has not written yet.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ddprof.capture.files.storage import free_bytes, open_new
from ddprof.untrusted.secrets import masked_data

SCHEMA = "ddprof.stacks/1"
MAX_BYTES = 16 << 20
MAX_SAMPLE_BYTES = 8 << 20  # of them for single samples of windows
_MIN_FREE_BYTES = 16 << 20  # as for traces: the job's own files come first


class StackFile:
    """The side file of samples. Raises OSError where it cannot be made; later, a failed write ends it (`full`)."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        self.full: str | None = None  # why nothing is written any more
        self.holds_samples = True  # there is room for single samples
        self._written = self._of_samples = 0
        self._descriptor = open_new(path)
        self.write({"kind": "begin", "schema": SCHEMA, **about})

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        if self.full is not None:
            return
        data = json.dumps(masked_data(line), separators=(",", ":")).encode() + b"\n"
        if self._written + len(data) > MAX_BYTES:
            self.full = f"it has reached {MAX_BYTES >> 20} MiB"
            return
        try:
            if os.write(self._descriptor, data) < len(data):
                self.full = "the disk of the run folder is full"
        except OSError as error:
            self.full = error.strerror or str(error)
        self._written += len(data)
        if line["kind"] == "samples":
            self._of_samples += len(data)
            self.holds_samples = self._of_samples < MAX_SAMPLE_BYTES

    def check_disk(self) -> None:
        """End the file before it fills the disk."""
        free = free_bytes(self.path.parent)
        if free is not None and free < _MIN_FREE_BYTES:
            self.full = self.full or f"{free >> 10} KiB free on the disk of the run folder"

    def close(self) -> None:
        """Stop writing."""
        self.full = self.full or "closed"
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
