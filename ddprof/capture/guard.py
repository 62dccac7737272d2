"""The only place where ddprof swallows its own errors: a defect of the tool must never become a defect of the job.

Only the tool's own work runs under a guard, never the user's call, except a handler of a signal that comes meanwhile:
what that raises goes on to the script. The first error of the tool switches capture off in this process, is printed as
one line on stderr and kept for the sidecar.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, ParamSpec, Protocol, TypeVar

from ddprof.untrusted.plain_text import clean
from ddprof.untrusted.secrets import masked

P = ParamSpec("P")
R = TypeVar("R")

_MAX_KEPT = 8  # enough to diagnose; a fault in a hook would otherwise repeat on every step


class SelfGuarded(Protocol):
    """Hooks in C: they never raise, do nothing unless `enabled`, and add up their own time while `timed`."""

    enabled: bool
    timed: bool
    spent_ns: int


class Guard:
    """Wraps the tool's own functions. `enabled` is False after the first fault or `disable`.

    It can also measure them: from `time_hooks(True)` to `time_hooks(False)` it adds up the time inside them. `_plain`
    (enabled and not timed) is the one attribute that a call reads when it is not measured.
    """

    def __init__(self) -> None:
        self.enabled = True
        self._spent_ns = 0
        self._led: SelfGuarded | None = None
        self._plain = True
        self.faults: list[str] = []
        self.on_fault: Callable[[], object] = lambda: None  # called once, after the fault that switched capture off

    def wrap(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """A guarded `function`, which returns None instead of raising, and does nothing once capture is off."""

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            if self._plain:
                try:
                    return function(*args, **kwargs)
                except Exception as error:
                    self.fault(function.__qualname__, error)
                    return None
            return self._timed(function, *args, **kwargs) if self.enabled else None

        return guarded

    def wrap_hook(self, function: Callable[[Any, Any], R]) -> Callable[..., R | None]:
        """A guarded hook, as by `wrap`, of the step path: two positional arguments, the second one optional (None).

        Passing them without packing halves the cost of `wrap`.
        """

        def guarded(first: Any, second: Any = None) -> R | None:
            if self._plain:
                try:
                    return function(first, second)
                except Exception as error:
                    self.fault(function.__qualname__, error)
                    return None
            return self._timed(function, first, second) if self.enabled else None

        return guarded

    def shield(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """`wrap` for a callee of a hook, whose time is the hook's and which always runs to its end."""

        @functools.wraps(function)
        def shielded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.fault(function.__qualname__, error)
                return None

        return shielded

    def lead(self, hooks: SelfGuarded) -> None:
        """Enable, disable and time these hooks together with all wrapped functions."""
        self._led = hooks
        hooks.enabled = self.enabled

    def time_hooks(self, wanted: bool) -> None:
        """Start adding up the time inside the functions, from 0, or stop. A running call ends as it began."""
        self._plain = self.enabled and not wanted
        if wanted:
            self._spent_ns = 0
        if self._led is not None:
            self._led.timed = wanted
            if wanted:
                self._led.spent_ns = 0

    @property
    def spent_ns(self) -> int:
        """Time inside the functions during the last measurement."""
        return self._spent_ns + (self._led.spent_ns if self._led is not None else 0)

    def _timed(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        started_ns = time.perf_counter_ns()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self.fault(function.__qualname__, error)
            return None
        finally:
            self._spent_ns += time.perf_counter_ns() - started_ns

    def attempt(self, what: str, function: Callable[[], R]) -> R | None:
        """Run an optional piece of work (a description, a dump). Its error is kept for the sidecar; capture goes on."""
        try:
            return function()
        except Exception as error:
            self._keep(what, error)
            return None

    def fault(self, where: str, error: BaseException) -> None:
        """Keep an error of the tool and switch capture off."""
        self._keep(where, error)
        if self.enabled:
            self.disable()
            say(f"capture is off in this process, the job goes on: {self.faults[-1]}")
            self.attempt("after the fault", self.on_fault)

    def disable(self) -> None:
        """Stop doing anything, without an error."""
        self.enabled = self._plain = False
        if self._led is not None:
            self._led.enabled = False

    def _keep(self, where: str, error: BaseException) -> None:
        """Keep an error of the tool. Raises it where it is the script's, whose handler of a signal ran meanwhile."""
        if _is_of_a_handler(error):
            raise error
        if len(self.faults) < _MAX_KEPT:
            message = masked(" ".join(str(error).split()))[:300]
            self.faults.append(f"{where}: {type(error).__name__}: {message}")


def handler_codes(numbers: Iterable[int]) -> set[CodeType]:
    """The code that handles these signals: of functions, methods and objects that are called."""
    handlers: list[Any] = [signal.getsignal(number) for number in numbers]
    handlers = [getattr(handler, "func", handler) for handler in handlers]  # of functools.partial
    handlers += [getattr(handler, "__call__", None) for handler in handlers]  # noqa: B004  it is not asked whether
    return {code for handler in handlers if (code := getattr(handler, "__code__", None)) is not None}


def _is_of_a_handler(error: BaseException) -> bool:
    """True where a signal's handler raised it, as to leave the training: the frames here are those below ours."""
    codes, trace = handler_codes(signal.valid_signals()), error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


def say(line: str) -> None:
    """Print one line to stderr, if there is one.

    Python's stderr keeps unwritten text and fails again as the process ends, with exit code 120, so the line bypasses
    its buffer.
    """
    text = f"ddprof: {clean(line)}\n"
    stream = sys.stderr
    try:
        stream.flush()
        if stream is sys.__stderr__:
            os.write(sys.stderr.fileno(), text.encode("utf-8", "backslashreplace"))
        else:
            stream.write(text)
            stream.flush()
    except (OSError, ValueError, AttributeError):
        return
