"""Stand-in for what an instrument asks and writes to, without a session around it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ddprof.capture.guard import Guard
from ddprof.capture.journal import Journal


def make_hub(**more: Any) -> Any:
    """A hub with a guard, a journal, and ranges and phases that nobody keeps; `more` is beside or in place of them."""
    ranges = SimpleNamespace(open=lambda name: None)
    phases = {"begin": lambda *_: False, "end": lambda *_: None, "unmarked": []}
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
