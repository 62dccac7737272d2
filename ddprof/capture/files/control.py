"""Requests to a running job: a small file in the run folder.

`ddprof trigger`, `ddprof stop` and monitor mode write it; a thread of each rank polls it. Without requests, a rank's
steps pay nothing. The file holds the newest request and those `before` it, so that a rank obeys each of several that
are sent between two of its polls.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ddprof.capture.files.layout import CONTROL
from ddprof.capture.files.storage import read_object, write_json

_POLL_S = 0.5
WHERE, LESS = "where", "less"
_MAX_BYTES = 1 << 16  # a request has some hundred
_KEPT = 16  # requests in the file: several senders within a poll send a handful
INSTRUMENTS = ("stacks", "shapes")  # of a window, as they are left out: the one that tells least comes first
LONGEST_WINDOW = 10_000  # steps that may be asked for: a profiler keeps all events of its window in memory
_LARGEST = 1 << 48  # of an id or a step
_STUCK_POLLS = 10  # 5 s without a step boundary
_JOIN_S = 10.0  # for an answer that is being written


class Request(NamedTuple):
    """A request to every rank. `action` "trace": a window of `steps` steps from `first_step` on; "stop": end capture;
    "where": report every thread's stack at once; "less": windows from `first_step` on omit `steps` of INSTRUMENTS, or
    do not open where there are fewer.
    """

    action: str
    first_step: int
    steps: int
    reason: str


def send(run_dir: Path, request: Request) -> int:
    """Send a request to every rank of the job. Returns its number. Raises OSError."""
    with _alone(run_dir):
        try:
            earlier = _read(run_dir / CONTROL)[-_KEPT + 1 :]
        except (OSError, ValueError):
            earlier = []  # none yet, or those that no rank can read either: the time of day is above every earlier id
        identifier = max(earlier[-1][0] + 1 if earlier else 0, int(time.time()))
        before = [_as_json(*sent) for sent in earlier]
        write_json(run_dir / CONTROL, {**_as_json(identifier, request), "before": before})
    return identifier


@contextlib.contextmanager
def _alone(run_dir: Path) -> Iterator[None]:
    """Keep other senders of this folder out. Where the file system has no such lock, two at once may lose a request."""
    folder = None
    with contextlib.suppress(OSError):
        folder = os.open(run_dir, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if folder is not None:
            os.close(folder)


def _as_json(identifier: int, request: Request) -> dict[str, Any]:
    return {"id": identifier, **request._asdict()}


def _read(path: Path) -> list[tuple[int, Request]]:
    """Requests in a file with their ids, oldest first. Raises OSError; ValueError where one is not a request."""
    content = read_object(path, _MAX_BYTES)
    before = content.get("before", [])
    if not isinstance(before, list) or not all(isinstance(sent, dict) for sent in before):
        raise ValueError(f"{path.name}: not a request")
    return [_request(path, sent) for sent in (*before, content)]


def _request(path: Path, content: dict[str, Any]) -> tuple[int, Request]:
    action, reason = content.get("action"), content.get("reason")
    identifier, first_step, steps = (_whole(content, key) for key in ("id", "first_step", "steps"))
    if identifier is None or first_step is None or not isinstance(action, str) or not isinstance(reason, str):
        raise ValueError(f"{path.name}: not a request")
    if steps is None or steps > LONGEST_WINDOW:
        raise ValueError(f"{path.name}: not a number of steps that a window may have")
    return identifier, Request(action, first_step, steps, reason)


def _whole(content: dict[str, Any], key: str) -> int | None:
    value = content.get(key)
    return value if type(value) is int and 0 <= value < _LARGEST else None


class ControlReader:
    """Reads `control.json` twice a second; a request is new when its `id` is higher than the last.

    The polling thread calls `on_request` for a new request, `on_stuck` when the training thread hangs before the step
    boundary at which it would obey a "stop", and `on_asked` with the number of a "where" request.
    """

    def __init__(
        self,
        run_dir: Path,
        on_request: Callable[[], object],
        on_stuck: Callable[[], object],
        on_asked: Callable[[int], object],
    ) -> None:
        self._path = run_dir / CONTROL
        self._on_request = on_request
        self._on_stuck = on_stuck
        self._on_asked = on_asked
        self._unheard = 0  # polls since a "stop" was seen that no step boundary has taken
        self.waiting: deque[Request] = deque()  # seen, and not yet taken at a step boundary; oldest first
        self._seen_id = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin polling; requests older than this process are ignored. Idempotent."""
        if self._thread is None:
            self._poll()
            self.waiting.clear()
            self._thread = threading.Thread(target=self._run, name="ddprof-control", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End polling and wait for the thread: a daemon thread inside a call can abort the interpreter at exit."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def abandon(self) -> None:
        """After a fork: the child has no polling thread."""
        self._thread = None
        self._stop = threading.Event()

    def take(self) -> Request | None:
        """The oldest waiting request, handed out once."""
        return self.waiting.popleft() if self.waiting else None

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            self._poll()
            self._watch_stop()

    def _watch_stop(self) -> None:
        """Report, once, that the training thread hangs: a "stop" that no step boundary takes."""
        is_asked = any(request.action == "stop" for request in tuple(self.waiting))
        self._unheard = self._unheard + 1 if is_asked else 0
        if self._unheard == _STUCK_POLLS:
            self._on_stuck()

    def _poll(self) -> None:
        try:
            sent = _read(self._path)
        except (OSError, ValueError):
            return  # no request, or one of a newer version
        for identifier, request in sent:
            if identifier > self._seen_id:
                self._seen_id = identifier
                self._take_in(identifier, request)

    def _take_in(self, identifier: int, request: Request) -> None:
        if request.action != WHERE:
            self.waiting.append(request)
            self._on_request()
        elif self._thread is not None:  # else it was asked before this process was a rank
            self._on_asked(identifier)
