"""Detection of a hang while it lasts: no step for long, and ranks' reports that show that none can follow.

Time since the last step only decides when to ask. A job hangs where, in reports some seconds apart, no rank has moved
(same line, same call, no step), and either

- the reports prove it: ranks disagree about a collective or its order, wait for one another in a circle, or wait for
one that is gone; or - half of the time has passed after which c10d itself would give up on the call that they wait in,
and no rank computes.

So a long evaluation, a checkpoint, a compilation or a first step is never a hang: its stack moves, it uses a CPU, or it
ends before half of the time-out.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ddprof.capture.files.control import WHERE, Request, send
from ddprof.capture.files.last_resort import answer_signal, handles
from ddprof.capture.files.layout import ANSWER_SUFFIX, CONTROL, FAULT_SUFFIX, RING_SUFFIX, parse_stem
from ddprof.capture.files.ring import HEADER_BYTES, MAGIC, WRITTEN
from ddprof.capture.files.storage import names_in, read_object
from ddprof.capture.guard import say
from ddprof.capture.launcher.live import pid_here, rings_in, runs_here
from ddprof.untrusted.regular_files import read_bounded

LOOK_S = 5.0  # without a step before the ranks are asked: an answer costs them some ms
LOOK_STEPS = 10  # usual steps, as in `ddprof status`; the larger of the two counts
FIRST_LOOK_S = 30.0  # before the second step: start-up takes long, and nothing is usual yet
PERIOD_S = 2.0  # between two glances at the step rings
_ANSWER_S = 1.5  # ranks look for requests twice a second
_PATIENCE_S = 10.0  # for answers: a rank that computes in C answers late, one that holds the interpreter never
_GROWTH = 1.5  # of the time between two looks, so that a long evaluation is asked ten times an hour
_LONGEST_PAUSE_S = 300.0  # between two looks
_PROVEN = frozenset({"killed", "error", "mismatch", "skipped", "ended", "crossed"})
_UNPROVEN_LOOKS = 3  # without progress, before a cause that is not proven counts
_ENDING_S = 16.0  # a rank takes 15 s at most to write what it knows (capture/signals.py)
_DEFAULT_TIMEOUT_S = 1800.0  # of c10d for all backends but NCCL (torch.distributed.constants)
_RECENT_STEPS = 64  # of a rank, whose median is the usual step
_MAX_RING_BYTES = 16 << 20  # a ring has some 100 KB
_BUSY_SHARE = 0.5  # of the time between two answers: a thread that computes has all of it, one that polls a hundredth


@dataclass(frozen=True)
class Explained:
    """Verdict on the ranks' reports: kind (docs/hangs.md), sentence, and time-out of their call (None: unknown)."""

    kind: str
    sentence: str
    timeout_s: float | None = None


class HangWatch:
    """Detects hangs for `ddprof run`, twice a second. `explain` reads the ranks' files in the folder."""

    def __init__(
        self, folder: Path, explain: Callable[[Path], Explained | None], abort: bool, look_s: float = LOOK_S
    ) -> None:
        self._folder = folder
        self._explain = explain
        self._abort = abort
        self._look_s = look_s
        self._next = self._next_request = 0.0
        self._written = (0, 0)  # steps, and ranks that have begun
        self._still_since = time.monotonic()
        self._pause_s = look_s
        self._asked: tuple[int, float] | None = None  # number of the request, when
        self._signalled = 0  # the last request after which silent ranks were asked by a signal
        self._has_asked = False
        self._ending_until = 0.0  # when the command is ended, whether its ranks have or not; 0: it is not
        self._before: dict[str, Answer] = {}
        self._has_answers = False  # since the last step
        self._looks = 0  # answers in a row in which no rank has moved
        self.found: dict[str, Any] | None = None  # for the manifest: the hang that lasts, or lasted until the end

    def tidy(self, failed: bool = False) -> None:
        """After the job has ended, remove requests and reports unless they show a hang. Raises OSError.

        Those of a job that `failed` without a step since the request do: gloo counts collectives cut off at the end as
        completed, so that only earlier reports show where ranks stood.
        """
        if self.found is not None or not self._has_asked or (failed and self._has_answers):
            return
        (self._folder / CONTROL).unlink(missing_ok=True)
        for path in (*names_in(self._folder, ANSWER_SUFFIX), *names_in(self._folder, FAULT_SUFFIX)):
            path.unlink(missing_ok=True)

    def tick(self) -> int | None:
        """Check once. Returns a signal that is to end the job, if any. Raises OSError on an unwritable folder."""
        now = time.monotonic()
        if self._ending_until:
            return self._end(now)
        if self._asked is not None:
            return self._listen(now)
        if now < self._next:
            return None
        self._next = now + min(PERIOD_S, self._look_s)
        before, self._written = self._written, _steps_written(self._folder)
        if any(now_there > there for now_there, there in zip(self._written, before, strict=True)):
            self._went_on(self._written[0] > before[0], now)
        elif now >= self._next_request and self._is_long(now):
            self._has_asked = True
            self._asked = (send(self._folder, Request(WHERE, 0, 0, "no step for long")), now)
        return None

    def _went_on(self, by_steps: bool, now: float) -> None:
        """Note that a step has ended or a rank has begun: start-up does not count as a hang. Ranks that end take their
        step records along, which counts as neither.
        """
        if self.found is not None and by_steps:
            say(f"steps resumed after {now - self._still_since:.0f} s: the job did not hang for good")
        self.found = None
        self._still_since = now
        self._pause_s, self._before, self._looks = self._look_s, {}, 0
        self._has_answers = False
        self._next_request = now

    def _is_long(self, now: float) -> bool:
        """True where ranks run, and no step has ended for long against the median of the rank with the longest ones."""
        rings = list(rings_in(self._folder, _RECENT_STEPS))
        lengths_ns = [[step.end_ns - step.start_ns for step in ring.steps] for ring in rings]
        usual_ns = max((median(of) for of in lengths_ns if len(of) > 1), default=None)
        least_s = max(FIRST_LOOK_S * self._look_s / LOOK_S, self._look_s)
        if usual_ns is not None:
            least_s = max(self._look_s, LOOK_STEPS * usual_ns / 1e9)
        return bool(rings) and now - self._still_since > least_s

    def _listen(self, now: float) -> int | None:
        request, asked_at = self._asked or (0, 0.0)
        if now - asked_at < min(_ANSWER_S, self._look_s):
            return None
        given = answers(self._folder, request)
        silent = expected(self._folder) - given.keys()
        if silent and now - asked_at > _PATIENCE_S / 2 and self._signalled != request:
            self._signalled = request
            ask_by_signal(self._folder, silent)
        if silent and now - asked_at < _PATIENCE_S:
            return None
        self._asked = None
        self._next_request = now + self._pause_s
        self._pause_s = min(self._pause_s * _GROWTH, _LONGEST_PAUSE_S)
        stands = bool(given) and bool(self._before) and not has_moved(self._before, given)
        busy = is_busy(self._before, given)
        self._looks = self._looks + 1 if stands else 0
        self._before = given
        self._has_answers |= bool(given)  # of ranks that have ended since, too
        return self._judge(now, busy) if stands and self.found is None else None

    def _judge(self, now: float, busy: bool) -> int | None:
        explained = self._explain(self._folder)
        if explained is None or explained.kind == "none":
            return None
        if _steps_written(self._folder) != self._written:  # ranks went on, or ended, while their files were read
            return None
        still_s = now - self._still_since
        timeout_s = explained.timeout_s or _DEFAULT_TIMEOUT_S
        patient = self._looks + 1 >= _UNPROVEN_LOOKS and still_s > timeout_s / 2 and not busy
        if explained.kind not in _PROVEN and not patient:
            return None
        self.found = {"at_ns": time.time_ns(), "still_s": round(still_s, 1), "kind": explained.kind}
        self.found["sentence"] = explained.sentence
        say(f"the job hangs: no step for {still_s:.0f} s. {explained.sentence} More: ddprof hang {self._folder}")
        if self._abort:
            self._ending_until = now + _ENDING_S
            for pid in local_processes(self._before):  # a launcher may end without ending its ranks
                with suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
        return None

    def _end(self, now: float) -> int | None:
        """SIGTERM for the command, once its ranks of this host have written their state and ended."""
        if now < self._ending_until and any(map(runs_here, local_processes(self._before))):
            return None
        self._next, self._ending_until = math.inf, 0.0
        return signal.SIGTERM


def _steps_written(folder: Path) -> tuple[int, int]:
    """Numbers of steps that all ranks have closed, by their records, and of ranks that began."""
    total = ranks = 0
    for path in names_in(folder, RING_SUFFIX):
        try:
            data = read_bounded(path, _MAX_RING_BYTES)
        except OSError:
            continue
        records = data[HEADER_BYTES:]
        whole = len(records) // WRITTEN.size * WRITTEN.size
        if data[: len(MAGIC)] == MAGIC:
            ranks += 1
            total += max((number for (number,) in WRITTEN.iter_unpack(records[:whole])), default=0)
    return total, ranks


@dataclass(frozen=True)
class Answer:
    """Report of one rank: its stack, its last call, its steps; `cpu_ns` used so far."""

    at_ns: int
    cpu_ns: int
    place: tuple[Any, ...]


def answers(folder: Path, request: int) -> dict[str, Answer]:
    """The answers to a request, by the name of the rank's files."""
    by_name = {}
    for path in names_in(folder, ANSWER_SUFFIX):
        try:
            content = read_object(path)
        except (OSError, ValueError):
            continue
        at_ns, cpu_ns = content.get("at_ns"), content.get("cpu_ns")
        if content.get("request") == request and isinstance(at_ns, int) and isinstance(cpu_ns, int):
            by_name[path.name.removesuffix(ANSWER_SUFFIX)] = Answer(at_ns, cpu_ns, _place(content))
    return by_name


def expected(folder: Path) -> set[str]:
    """The ranks that run and can answer; on other hosts, all that have not ended normally."""
    names = {path.name.removesuffix(RING_SUFFIX) for path in names_in(folder, RING_SUFFIX)}
    return {name for name in names if _may_run(name)}


def local_processes(given: Mapping[str, Answer]) -> list[int]:
    """The process ids of this host's ranks that have just answered."""
    return [pid for name in given if (pid := pid_here(f"{name}."))]


def ask_by_signal(folder: Path, names: Iterable[str]) -> list[str]:
    """Make ranks of this host that do not answer write their threads' stacks, by a signal, which works even where C
    code holds the interpreter. Returns the ranks asked; those without the signal's handler are left alone.
    """
    number, asked = answer_signal(), []
    for name in names:
        pid = pid_here(f"{name}.")
        if number is not None and pid and (folder / f"{name}{FAULT_SUFFIX}").exists() and handles(pid, number):
            with suppress(OSError):
                os.kill(pid, number)
                asked.append(name)
    return asked


def has_moved(before: Mapping[str, Answer], now: Mapping[str, Answer]) -> bool:
    """True where any rank has another line, call or step than before, or is gone."""
    return before.keys() != now.keys() or any(before[name].place != now[name].place for name in now)


def is_busy(before: Mapping[str, Answer], now: Mapping[str, Answer]) -> bool:
    """True where a rank used a CPU in between: one long operation is not a hang."""
    pairs = [(before[name], now[name]) for name in now if name in before]
    return any(b.cpu_ns - a.cpu_ns > _BUSY_SHARE * max(b.at_ns - a.at_ns, 1) for a, b in pairs)


def _place(content: Mapping[str, Any]) -> tuple[Any, ...]:
    frames = content.get("frames")
    stack = [(f.get("file"), f.get("line")) for f in frames if isinstance(f, dict)] if isinstance(frames, list) else []
    calls = content.get("calls")
    last = calls[-1].get("entered_ns") if isinstance(calls, list) and calls and isinstance(calls[-1], dict) else None
    return (content.get("steps_total"), last, *stack)


def _may_run(stem: str) -> bool:
    pid = pid_here(f"{stem}.")
    return parse_stem(f"{stem}.") is not None and (pid is None or runs_here(pid))
