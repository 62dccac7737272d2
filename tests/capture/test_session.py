"""A session without a job around it: what becomes of a trace window, and of the end, after a fault of ddprof."""

import dataclasses
import gc
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from ddprof.capture import clock
from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.files.layout import SIDECAR_SUFFIX
from ddprof.capture.files.storage import read_object
from ddprof.capture.identity import RankIdentity
from ddprof.capture.session import Session


class Optimizer:
    """An optimizer as far as it is read."""

    param_groups: tuple[object, ...] = ()


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """The session of a rank that nothing has happened to yet."""
    made = Session(CaptureConfig(run_dir=str(tmp_path)))
    made.identity = RankIdentity(0, 1, 0, "h", 7, 0, "single", None)
    return made


def test_a_fault_closes_the_window_and_is_kept_in_the_sidecar(session: Session) -> None:
    profiler = SimpleNamespace(stop=Mock(), profiler=None)
    session.window._profiler = profiler
    broken = SimpleNamespace(window_closed=Mock(side_effect=KeyError("broken")))
    session._listeners = Mock(window_closed=[broken.window_closed])
    session.guard.wrap(lambda: 1 / 0)()
    assert profiler.stop.call_count == 1 and not session.window.is_open and not session.guard.enabled
    session.finish("exit")
    written = read_object(session.path(SIDECAR_SUFFIX))
    assert written["state"] == "exit" and len(written["windows"]) == 1
    assert any("ZeroDivisionError" in note for note in written["notes"])
    assert "end of a trace window: KeyError: 'broken'" in written["notes"]


class Fetch(list[int]):
    """One as whose fields are read another thread fetches."""

    def __init__(self, fetches: deque[list[int]]) -> None:
        super().__init__(range(5))
        self.fetches = fetches

    def __iter__(self) -> Iterator[int]:
        self.fetches.append([0] * 5)
        return super().__iter__()


def test_a_sidecar_is_written_while_another_thread_fetches(session: Session) -> None:
    session.journal.fetches.append(Fetch(session.journal.fetches))
    session.write_sidecar("running")
    assert len(read_object(session.path(SIDECAR_SUFFIX))["fetches"]) == 1


def test_an_optimizer_is_not_taken_for_one_that_was_freed_and_had_its_id(session: Session) -> None:
    freed, trains = Optimizer(), Optimizer()
    session.observed.optimizers[id(trains)] = weakref.ref(freed)
    del freed
    session.optimizer_stepped(trains)
    assert session.observed.living_optimizers() == [trains]


def test_an_optimizer_that_the_script_lets_go_of_is_said_once(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[int] = []
    monkeypatch.setattr(session, "optimizer_died", gone.append)
    kept, dropped = Optimizer(), Optimizer()
    for optimizer in (kept, dropped, dropped):
        session.optimizer_stepped(optimizer)
    number = id(dropped)
    del dropped, optimizer
    gc.collect()
    assert gone == [number] and session.observed.living_optimizers() == [kept]


def test_a_store_that_cannot_be_asked_costs_the_clock_alone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's FakeStore, and stores of a script's own."""
    assert session.identity is not None
    session.identity = dataclasses.replace(session.identity, source="c10d")
    monkeypatch.setattr(clock, "_store", object)
    session.guard.wrap(session._boundary)(1)
    assert session.guard.enabled and len(session.guard.faults) == 1
