"""Garbage collection at a fixed interval of optimizer steps."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from ddprof.capture.applying.process import CollectionSchedule

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def schedule() -> Iterator[CollectionSchedule]:
    """Every third step; as before afterwards."""
    made = CollectionSchedule(3)
    made.install()
    yield made
    made.uninstall()
    gc.enable()
    gc.unfreeze()


def _steps(count: int) -> list[int]:
    """The steps of an optimizer in which all generations were collected, counted from 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    collected: list[int] = []
    number = 0

    def saw(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            collected.append(number)

    gc.callbacks.append(saw)
    try:
        for number in range(1, count + 1):  # noqa: B007 - `saw` reads it
            optimizer.step()
    finally:
        gc.callbacks.remove(saw)
    return collected


def test_all_is_collected_at_the_interval_and_at_no_other_time(schedule: CollectionSchedule) -> None:
    assert schedule.why_not() == "no optimizer has stepped in this process" and _steps(10) == [1, 3, 6, 9]
    assert not gc.isenabled() and schedule.why_not() == ""
    gc.enable()
    assert schedule.why_not() == "the script has switched garbage collection on again"


def test_a_script_that_collects_by_itself_is_left_alone(schedule: CollectionSchedule) -> None:
    gc.disable()
    assert _steps(7) == [] and schedule.why_not() == "the script has switched garbage collection off itself"


def test_forked_children_collect_as_python_does(schedule: CollectionSchedule) -> None:
    _steps(1)
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0 and not gc.isenabled()
