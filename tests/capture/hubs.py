"""Stand-ins for what an instrument or an applier asks and writes to, without a session around it."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.guard import Guard
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.journal import Journal
from ddprof.settings.wanted import parse_set


def make_hub(**more: Any) -> Any:
    """A hub with a guard, a journal, and ranges and phases that nobody keeps; `more` is beside or in place of them."""
    ranges = SimpleNamespace(open=lambda name: None)
    phases = {"begin": lambda *_: False, "end": lambda *_: None, "unmarked": [], "user_profiler_starts": lambda: None}
    return SimpleNamespace(**{"guard": Guard(), "journal": Journal(), "annotator": ranges, **phases, **more})


@contextmanager
def installed(instrument: Any, module: Any) -> Iterator[Any]:
    """The instrument, which sits in the module meanwhile."""
    instrument.install(module)
    try:
        yield instrument
    finally:
        instrument.uninstall()


def on_another_thread(work: Callable[..., object], *arguments: Any) -> None:
    """Do it there, and wait for it."""
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    thread.join()


@contextmanager
def applying(cls: type[Instrumentor], *stated: Any, module: Any = None, of: tuple[str, ...] = ()) -> Iterator[Outcomes]:
    """`--set` for each of `stated`, text or fix. `of`: which wrapper, for appliers that each have one, in `module`."""
    import torch

    outcomes = Outcomes([parse_set(one) if isinstance(one, str) else one for one in stated])
    applier: Any = cls(None, outcomes, *of)  # type: ignore[arg-type, call-arg]
    with installed(applier, module or (sys.modules[of[0]] if of else torch)):
        yield outcomes
    assert outcomes.guard.faults == []


def told(outcomes: Outcomes) -> list[tuple[str, bool, object, str]]:
    """(setting, applied, before, why) of each row."""
    return [(row["setting"], row["applied"], row["before"], row["why"]) for row in outcomes.recorded()]
