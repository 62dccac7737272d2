"""A trace window: torch.profiler from one step boundary to another, exported per rank.

torch.profiler has three traps. A second profiler takes over the session, and exporting the first one then crashes the
process. A profiler that is stopped from a thread it does not record loses everything, and exporting it crashes, too. On
a full disk the export fails without an exception.

What Kineto writes of names that the script gives (its own ranges, process groups) is packed without their secrets.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from ddprof.capture.files.control import INSTRUMENTS
from ddprof.capture.files.layout import TRACE_SUFFIX
from ddprof.capture.files.storage import compress, free_bytes
from ddprof.capture.window.annotate import Annotator, Range
from ddprof.capture.window.plan import Less
from ddprof.untrusted.secrets import masked

_MIN_FREE_BYTES = 16 << 20  # below this an export would most likely fill the disk the job writes its checkpoints to
_EXPORT_LOCK_S = 10.0  # for a close in another thread
_DETACHES_SAFELY = (12, 6)  # version of CUDA


class TraceWindow:
    """At most one open window per process. Every method is called under the session's guard."""

    def __init__(self, annotator: Annotator, note: Callable[[str], None], record_shapes: bool) -> None:
        self._annotator = annotator
        self._note = note
        self._record_shapes = record_shapes
        self._profiler: Any = None
        self._step_mark: Range | None = None
        self._lock = threading.Lock()
        self._compressors: list[threading.Thread] = []
        self.first_step = 0
        self.reason = ""
        self.left_out: tuple[str, ...] = ()  # of INSTRUMENTS
        self.start_ns = 0

    @property
    def is_open(self) -> bool:
        """True while the profiler records."""
        return self._profiler is not None

    def open(self, first_step: int, reason: str, less: Less) -> bool:
        """Start recording at a step boundary. False, with a note, if another profiler runs or windows cost too much."""
        if less.left_out > len(INSTRUMENTS):
            self._note(f"no trace windows from step {less.first_step} on: {less.reason}")
            return False
        self.left_out = INSTRUMENTS[: less.left_out]
        torch = sys.modules["torch"]
        if torch.autograd._profiler_enabled():
            self._note(f"no trace window at step {first_step}: the script's own profiler was running")
            return False
        profiler = torch.profiler.profile(
            activities=list(torch.profiler.supported_activities()),
            record_shapes=self._record_shapes and "shapes" not in self.left_out,
            experimental_config=_experimental_config(torch),
        )
        profiler.start()
        self._profiler = profiler
        self._annotator.switch(True)
        self.first_step = first_step
        self.reason = reason
        self.start_ns = time.time_ns()
        return True

    def mark_step(self, index: int) -> None:
        """End the step mark of the last step and begin that of step `index`."""
        self.end_step_mark()
        self._step_mark = self._annotator.open(f"ProfilerStep#{index}")

    def end_step_mark(self) -> None:
        """End the open step mark, if any."""
        mark, self._step_mark = self._step_mark, None
        if mark is not None:
            mark.close()

    def close(self, stem: Path, last_step: int, same_thread: bool = True) -> dict[str, Any] | None:
        """Stop, export to `<stem>.pt.trace.json`, compress beside the training. Returns the sidecar's window record.

        `same_thread` False (a watchdog) leaves the step mark alone: its owner thread is stuck. Safe to race with
        itself.
        """
        if not self._lock.acquire(timeout=_EXPORT_LOCK_S):
            return None
        try:
            profiler, self._profiler = self._profiler, None
            if profiler is None:
                return None
            if same_thread:
                self.end_step_mark()
            self._annotator.switch(False)
            end_ns = time.time_ns()
            profiler.stop()
            path = self._export(profiler, stem)
            return {
                "first_step": self.first_step,
                "last_step": last_step,
                "start_ns": self.start_ns,
                "end_ns": end_ns,
                "export_pause_ns": time.time_ns() - end_ns,
                "trace_path": path.name if path is not None else None,
                "reason": self.reason,
                "left_out": list(self.left_out),
            }
        finally:
            self._lock.release()

    def _export(self, profiler: Any, stem: Path) -> Path | None:
        """Write the trace. None, with a note, on failure."""
        path = stem.with_name(stem.name + TRACE_SUFFIX)
        results = getattr(profiler.profiler, "kineto_results", None)
        if results is None or not results.trace_start_ns():
            self._note(f"window from step {self.first_step}: another profiler took the session, nothing was recorded")
            return None
        free = free_bytes(path.parent)
        if free is not None and free < _MIN_FREE_BYTES:
            self._note(f"{path.name}: not written, {free >> 10} KiB free on the disk of the run folder")
            return None
        _remove_leftovers(path)  # a link in its place would be followed
        try:
            profiler.export_chrome_trace(str(path))
        except (OSError, RuntimeError, TypeError) as error:  # TypeError: C++ takes no path that is not UTF-8
            self._note(f"{path.name}: export failed: {error}")
        if not path.is_file() or not path.stat().st_size:
            self._note(f"{path.name}: not written, the disk of the run folder is full or read-only")
            _remove_leftovers(path)
            return None
        return self._compress_later(path)

    def _compress_later(self, path: Path) -> Path:
        """Compress beside the training; a process that dies meanwhile leaves the plain file, which is as good."""
        thread = threading.Thread(target=self._compress, args=(path,), name="ddprof-compress", daemon=True)
        # Those that have ended are let go: `--every N` opens windows for as long as the job runs.
        self._compressors = [*filter(threading.Thread.is_alive, self._compressors), thread]
        thread.start()
        return path.with_name(path.name + ".gz")

    def _compress(self, path: Path) -> None:
        try:
            compress(path, masked_blocks)
        except OSError as error:
            self._note(f"{path.name}: left uncompressed: {error.strerror or error}")

    @property
    def compressing(self) -> bool:
        """True while our own work runs beside the training."""
        return bool(self._compressors) and any(thread.is_alive() for thread in self._compressors)

    def join(self, timeout_s: float) -> None:
        """Wait at most this long for the compression."""
        for thread in self._compressors:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def abandon(self) -> None:
        """Forget the window without touching the profiler, which a forked child only inherited."""
        self._profiler = None
        self._step_mark = None
        self._annotator.switch(False)
        self._lock = threading.Lock()
        self._compressors = []


def _experimental_config(torch: Any) -> Any:
    """Profiler options that record all threads, so that a watchdog may stop it while the training thread is blocked."""
    config = torch._C._profiler._ExperimentalConfig
    try:
        return config(profile_all_threads=True)
    except TypeError:
        return config()


def _remove_leftovers(path: Path) -> None:
    for leftover in (path, path.with_name(path.name + ".tmp")):
        with suppress(OSError):
            leftover.unlink(missing_ok=True)


def warm_import() -> None:
    """Import what opening a window needs, so that the first one does not delay a step, and set what Kineto reads."""
    importlib.import_module("torch.profiler")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # Kineto writes USDT lines to the job's stderr otherwise
    # Else CUPTI stays attached after a window and slows each launch: launch-bound steps of 4 ms by a fifth on an H200
    # (2026-11-29). Older versions of CUDA crash so where graphs are captured (pytorch#146604).
    cuda = sys.modules["torch"].version.cuda
    if cuda and tuple(map(int, cuda.split(".")[:2])) >= _DETACHES_SAFELY:
        os.environ.setdefault("TEARDOWN_CUPTI", "1")


_BLOCK_BYTES = 1 << 18
_EVENT = b"\n  {"  # how Kineto begins one
# Words that are found at the speed of memory -> what follows them: names, whose quotes Kineto leaves as they are.
_NAMED = {
    b"user_annotation": re.compile(rb'",\s*"name": "([^"\n]*(?:"(?!,\s*"(?:pid|tid|ts)":)[^"\n]*)*)(?=")'),
    b'"Process Group Description': re.compile(rb'": "([^"\n]*(?:"(?!\s*[,}\n])[^"\n]*)*)(?=")'),
}
_FIRST = {**_NAMED, b'"pg_desc': re.compile(rb'": "([^\n]*?)(?=", ")')}


def masked_blocks(source: BinaryIO) -> Iterator[bytes]:
    """The text of a trace in blocks of whole events, each with its names masked. Raises OSError."""
    held, named = b"", _FIRST
    while block := source.read(_BLOCK_BYTES):
        events, sign, begun = (held + block).rpartition(_EVENT)
        held = sign + begun
        if len(held) > _BLOCK_BYTES:  # no event is as long: the groups of a large job in the header
            events, held = events + held, b""
        yield _masked(events, named)
        named = _NAMED
    yield _masked(held, _NAMED)


def _masked(text: bytes, named: Mapping[bytes, re.Pattern[bytes]]) -> bytes:
    for word, pattern in named.items():
        at = text.find(word)
        while at >= 0:
            match = pattern.match(text, at + len(word))
            if match is not None and (name := _name(match[1])) != match[1]:
                text = text[: match.start(1)] + name + text[match.end() :]
            at = text.find(word, at + len(word))
    return text


@lru_cache(maxsize=1 << 13)
def _name(name: bytes) -> bytes:
    text = name.decode("utf-8", "replace")
    return name if masked(text) == text else masked(text).encode()
