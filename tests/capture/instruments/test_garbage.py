"""Garbage collections: who began them."""

import gc
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.instruments.garbage import GarbageCollection

LONG_NS = 2_000_000


@pytest.fixture
def automatic() -> Iterator[None]:
    """Automatic collection as it was, whatever the test has made of it."""
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()


@pytest.mark.usefixtures("automatic")
def test_a_collection_while_automatic_ones_are_off_was_called() -> None:
    kept: list[dict[str, Any]] = []
    hub: Any = SimpleNamespace(
        journal=SimpleNamespace(gc=kept),
        annotator=SimpleNamespace(open=lambda name: None),
        guard=SimpleNamespace(wrap=lambda function: function),
    )
    collections = GarbageCollection(hub)
    collections.install(ModuleType("torch"))
    try:
        gc.enable()
        for switch in (gc.enable, gc.disable):
            collections._event("start", {"generation": 2})
            collections._started_ns -= LONG_NS
            switch()
            collections._event("stop", {"generation": 2})
    finally:
        collections.uninstall()
    told = [row["was_called"] for row in kept if row["dur_ns"] >= LONG_NS]
    assert told == [False, True]
