"""Garbage collections: who began them."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.instruments.garbage import GarbageCollection
from ddprof.capture.steps.native_tracker import outside

LONG_NS = 2_000_000


@pytest.fixture
def automatic() -> Iterator[None]:
    """Automatic collection as it was, whatever the test has made of it."""
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()


def test_what_a_handler_raises_in_the_callback_ends_the_script() -> None:
    """A signal that comes while the collector runs is handled in the first Python code after it: our callback."""
    ending, dropped = [SystemExit(4)], list[Any]()

    def handled(*_: object) -> None:
        if ending:
            raise ending.pop()

    def another(*_: object) -> None:  # Python code in which the interpreter looks for what is pending, as jax has it
        for _each in range(2):
            pass

    callback = outside(handled)
    assert callback is not None
    gc.callbacks.append(callback)
    gc.callbacks.insert(0, another)
    try:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit, match="4"):
            patch.setattr(sys, "unraisablehook", dropped.append)
            gc.collect()
            for _ in range(2):  # where the interpreter looks for what is pending
                pass
    finally:
        gc.callbacks[:] = [each for each in gc.callbacks if each not in (callback, another)]
    assert dropped == []


@pytest.mark.usefixtures("automatic")
def test_a_collection_while_automatic_ones_are_off_was_called() -> None:
    kept: list[dict[str, Any]] = []
    hub = make_hub(journal=SimpleNamespace(gc=kept))
    with installed(GarbageCollection(hub), ModuleType("torch")) as collections:
        gc.enable()
        for switch in (gc.enable, gc.disable):
            collections._event("start", {"generation": 2})
            collections._started_ns -= LONG_NS
            switch()
            collections._event("stop", {"generation": 2})
    assert [row["was_called"] for row in kept if row["dur_ns"] >= LONG_NS] == [False, True]
