"""Marks for a training script: `step()`, `annotate("name")` and `capture()`.

They do nothing, in less than a microsecond, unless the script runs under `ddprof run`; neither imports torch.
"""

from __future__ import annotations

import sys
from contextlib import ContextDecorator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from ddprof.capture.session import Session
    from ddprof.capture.window.annotate import Range

_CAPTURE = "_ddprof.capture.bootstrap"  # the name under which a job knows capture (capture/shim/sitecustomize.py)


def step() -> None:
    """End a training step here.

    For loops in which ddprof finds no steps: call it once at the end of each iteration, in the training thread, on
    every rank. After the first call nothing else marks steps, not even optimizers.
    """
    capture = _capture()
    if capture is not None:
        capture.step_marked()


class annotate(ContextDecorator):
    """Name a part of a step: `with ddprof.annotate("metrics"):`, or `@ddprof.annotate("metrics")` over a function.

    The range is in the traces of `ddprof run` and, under Nsight Systems, an NVTX range of the domain "ddprof". Outside
    trace windows it records nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._range: Range | None = None

    def __enter__(self) -> annotate:
        capture = _capture()
        self._range = None if capture is None else capture.open_range(self.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._range is not None:
            self._range.close()

    def _recreate_cm(self) -> annotate:
        """A fresh context manager per call of a decorated function, which may recurse or run in several threads."""
        return annotate(self.name)


class capture(ContextDecorator):
    """Trace the steps that begin inside: `with ddprof.capture():`, or `@ddprof.capture(steps=3)` over a function.

    At most `steps` of them, because a profiler keeps all events of its window in memory. Reach it on every rank, in the
    training thread. `ddprof run` opens its own window besides (`--skip`, `--mode monitor`).
    """

    def __init__(self, steps: int = 5) -> None:
        if steps < 1:
            raise ValueError(f"steps={steps}: want at least one")
        self.steps = steps

    def __enter__(self) -> capture:
        session = _capture()
        if session is not None:
            session.in_code.asked(self.steps)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session = _capture()
        if session is not None:
            session.in_code.done()


def _capture() -> Session | None:
    """The capture session of this process, None outside `ddprof run`."""
    session: Session | None = getattr(sys.modules.get(_CAPTURE), "active", None)
    return session
