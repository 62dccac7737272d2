"""TensorFlow jobs: one window of TensorFlow's own profiler, kept in the run folder.

A step is an outermost call of a `tf.function` from the training thread: one batch in Keras' `fit` and in the usual
custom loop. A process that uses torch as well is torch's to capture. The profile (XSpace) is kept in Chrome's trace
format, which recent versions of TensorFlow no longer write.
"""

from __future__ import annotations

import atexit
import dataclasses
import importlib
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ddprof._version import __version__
from ddprof.capture.files.config import CaptureConfig, rank_selected
from ddprof.capture.files.layout import SCHEMA, SIDECAR_SUFFIX, TENSORFLOW_SUFFIX, host_label
from ddprof.capture.files.storage import compress, write_json
from ddprof.capture.guard import Guard
from ddprof.capture.identity import RankIdentity, boot_id
from ddprof.capture.window.plan import WindowPlan

_RECENT_STEPS = 4096
_CALLS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
_NOISE = "ThreadpoolListener::"  # one per closure of a thread pool: half of the events, of no use


def start(settings: str, tensorflow: ModuleType) -> None:
    """Watch the process, once `import tensorflow` has ended. Raises ValueError on damaged settings."""
    job = TensorFlowJob(CaptureConfig.from_path(settings), tensorflow)
    job.guard.wrap(job.install)()


def task_of_cluster(text: str | None) -> tuple[int, int]:
    """(rank, world size) of this worker from TF_CONFIG; (0, 1) without one, as a mirrored job is one process."""
    try:
        config = json.loads(text or "{}")
        workers = [*config["cluster"].get("chief", []), *config["cluster"]["worker"]]
        index = int(config["task"]["index"])
        behind_chief = config["task"]["type"] == "worker" and "chief" in config["cluster"]
    except (ValueError, KeyError, TypeError):
        return 0, 1
    return index + int(behind_chief), len(workers)


class TensorFlowJob:
    """Counts steps, opens and closes the window, writes the sidecar."""

    def __init__(self, config: CaptureConfig, tensorflow: Any) -> None:
        self.guard = Guard()
        self._tensorflow = tensorflow
        self._config = config
        self._plan = WindowPlan(config.skip_steps, config.window_steps, 0, config.mode == "trace")
        self._thread: int | None = None
        self._depth = 0
        self._count = 0
        self._steps: deque[tuple[int, int, int, bool]] = deque(maxlen=_RECENT_STEPS)  # number, start, end, profiled
        self._log_dir: Path | None = None
        self._opened = (0, 0)  # first step, start
        self._windows: list[dict[str, Any]] = []
        self._notes: list[str] = []
        self._ended = False
        rank, size = task_of_cluster(os.environ.get("TF_CONFIG"))
        how = "TF_CONFIG" if size > 1 else "single"
        self._identity = RankIdentity(rank, size, None, host_label(), os.getpid(), 0, how, boot_id())

    def install(self) -> None:
        """Watch outermost calls of tf.function. Nothing is written before the first."""
        function: Any = importlib.import_module(_CALLS).Function
        original = function.__call__
        enter, leave = self.guard.wrap(self._enter), self.guard.wrap(self._leave)

        def __call__(called: Any, *args: Any, **kwargs: Any) -> Any:
            token = enter()
            try:
                return original(called, *args, **kwargs)
            finally:
                leave(token)

        function.__call__ = __call__
        atexit.register(self.guard.wrap(self.finish))

    def _enter(self) -> tuple[int, Any] | None:
        """Handle a call. Returns an outermost call's token: its start (unix ns) and its mark in the trace, if any."""
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        if thread != self._thread or self._ended:
            return None
        self._depth += 1
        if self._depth > 1 or "torch" in sys.modules:
            return 0, None
        self._between_steps()
        mark = None
        if self._log_dir is not None:
            mark = self._tensorflow.profiler.experimental.Trace(f"ProfilerStep#{self._count}")
            mark.__enter__()
        return time.time_ns(), mark

    def _leave(self, token: tuple[int, Any] | None) -> None:
        if token is None:
            return
        self._depth -= 1
        started_ns, mark = token
        if mark is not None:
            mark.__exit__(None, None, None)
        if started_ns:
            self._steps.append((self._count, started_ns, time.time_ns(), self._log_dir is not None))
            self._count += 1

    def _between_steps(self) -> None:
        if self._log_dir is not None and self._plan.closes_at(self._count):
            self._close()
        selected = rank_selected(self._config.ranks, self._identity.rank, self._identity.world_size)
        if self._log_dir is None and selected and self._plan.opens_at(self._count):
            self.guard.attempt("TensorFlow's profiler", self._open)

    def _open(self) -> None:
        log_dir = Path(tempfile.mkdtemp(prefix="ddprof-tensorflow-"))
        try:
            self._tensorflow.profiler.experimental.start(str(log_dir))
        except self._tensorflow.errors.AlreadyExistsError:
            self._notes.append(f"no trace window at step {self._count}: the script's own profiler was running")
            shutil.rmtree(log_dir, ignore_errors=True)
            return
        self._log_dir, self._opened = log_dir, (self._count, time.time_ns())

    def _close(self) -> None:
        """Stop the profiler and keep its trace as Chrome JSON."""
        log_dir, self._log_dir = self._log_dir, None
        if log_dir is None:
            return
        ended_ns = time.time_ns()
        self._tensorflow.profiler.experimental.stop()
        trace = self.guard.attempt("TensorFlow's trace", lambda: self._keep(log_dir))
        shutil.rmtree(log_dir, ignore_errors=True)
        first, started_ns = self._opened
        window = {"first_step": first, "last_step": self._count - 1, "start_ns": started_ns, "end_ns": ended_ns}
        pause_ns = time.time_ns() - ended_ns
        self._windows.append({**window, "export_pause_ns": pause_ns, "trace_path": trace, "reason": "planned"})
        self.guard.attempt("sidecar", lambda: self._write("running"))

    def _keep(self, log_dir: Path) -> str | None:
        profile = newest_profile(log_dir)
        if profile is None:
            self._notes.append("TensorFlow's profiler wrote nothing")
            return None
        path = self._path(f".{len(self._windows)}{TENSORFLOW_SUFFIX}")
        write_json(path, to_chrome(profile))
        return compress(path).name

    def finish(self) -> None:
        """At exit, close what is open and write the sidecar; a process without a step leaves no file."""
        self._ended = True
        if self._count:
            self._close()
            self._write("exit")

    def _path(self, suffix: str) -> Path:
        return Path(self._config.run_dir) / f"{self._identity.stem}{suffix}"

    def _write(self, state: str) -> None:
        versions = {"tensorflow": self._tensorflow.__version__, "python": platform.python_version()}
        names = ("index", "start_ns", "end_ns", "profiled")
        content = {
            "schema": SCHEMA,
            "state": state,
            "framework": "tensorflow",
            **dataclasses.asdict(self._identity),
            "versions": {**versions, "ddprof": __version__},
            "steps_total": self._count,
            "steps": [dict(zip(names, step, strict=True)) for step in self._steps],
            "windows": self._windows,
            "notes": [*self._notes, *self.guard.faults],
        }
        write_json(self._path(SIDECAR_SUFFIX), content)


def newest_profile(log_dir: Path) -> Path | None:
    """The latest `.xplane.pb` of the profiler below `log_dir`."""
    return max(log_dir.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns, default=None)


def to_chrome(path: Path) -> dict[str, Any]:
    """The profile as a Chrome trace; times in us from its start, `profile_start_ns` (unix) beside them.

    Raises OSError, protobuf's DecodeError on a damaged file, ImportError where this TensorFlow does not bring the
    format's classes.
    """
    module = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = module.XSpace()
    space.ParseFromString(path.read_bytes())
    events: list[dict[str, Any]] = []
    for plane in space.planes:
        events.extend(_plane(plane))
    return {
        "displayTimeUnit": "ns",
        "metadata": {"highres-ticks": True},
        "profile_start_ns": next((start for plane in space.planes if (start := _start_ns(plane))), None),
        "traceEvents": events,
    }


def _plane(plane: Any) -> Iterator[dict[str, Any]]:
    """Events of a plane: a process ("/host:CPU", "/device:GPU:0") whose lines are its threads or streams."""
    if not plane.lines:
        return
    names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
    yield {"ph": "M", "name": "process_name", "pid": plane.id, "args": {"name": plane.name}}
    for number, line in enumerate(plane.lines):
        thread = {"pid": plane.id, "tid": number}
        yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": line.display_name or line.name}}
        for event in line.events:
            name = names.get(event.metadata_id, "?")
            if not name.startswith(_NOISE):
                start_us = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
                yield {"ph": "X", "name": name, **thread, "ts": round(start_us, 3), "dur": event.duration_ps / 1e6}


def _start_ns(plane: Any) -> int | None:
    for stat in plane.stats:
        if plane.stat_metadata[stat.metadata_id].name == "profile_start_time":
            return int(stat.uint64_value or stat.int64_value) or None
    return None
