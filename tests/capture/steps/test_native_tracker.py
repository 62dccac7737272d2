"""The timers in C: as those in Python, and what concerns them alone."""

from __future__ import annotations

import gc
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trackers import Boundary, Recorder, make

from ddprof.capture.files.step import FORWARD, PHASE_NAMES
from ddprof.capture.guard import Guard
from ddprof.capture.steps.native_tracker import native_tracker

EVENTS = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, len(PHASE_NAMES) - 1)),
    st.tuples(st.just("end"), st.integers(0, 3)),  # which of the open phases: they need not nest
    st.tuples(st.just("stepped"), st.integers(1, 3)),
    st.tuples(st.just("iteration"), st.integers(0, 2)),
    st.tuples(st.sampled_from(("profiled", "disturbed", "finish", "restart")), st.integers(0, 1)),
    st.tuples(st.just("calm"), st.integers(0, 12)),
)


def play(kind: str, events: list[tuple[str, int]]) -> list[Any]:
    """What a tracker answers to the events: all but the times themselves."""
    recorder = Recorder(kind)
    tracker, said, open_phases = recorder.tracker, [], []
    for what, value in events:
        if what == "begin":
            token = tracker.begin(value)
            open_phases.append((value, token))
            said.append(token)
        elif what == "end" and open_phases:
            tracker.end(*open_phases.pop(-1 - value % len(open_phases)))
        elif what == "stepped":
            tracker.optimizer_stepped(value)
        elif what == "iteration":
            recorder.iteration(data=value)
        elif what in ("finish", "restart"):
            said.append(getattr(tracker, what)())
        elif what == "calm":
            tracker.calm_until = value
        elif what != "end":
            setattr(tracker, what, bool(value))
    said.append(tracker.index)
    for step, disturbed in tracker.logged():
        assert step.start_ns <= step.end_ns
        # Where a closure's phase outlives its optimizer, that has spent less than nothing.
        phases = [name for name in ("data", "forward", "backward", "collective") if getattr(step, f"{name}_ns") > 0]
        said.append((step.number, phases, bool(step.optimizer_ns), step.profiled, disturbed))
    return [*said, recorder.boundaries]


@given(st.lists(EVENTS, max_size=40))
def test_both_kinds_answer_alike(events: list[tuple[str, int]]) -> None:
    assert play("native", events) == play("python", events)


def native(on_boundary: Boundary) -> Any:
    return make("native", on_boundary)


def test_the_guard_leads_the_timers_in_c() -> None:
    guard, tracker = Guard(), native(lambda index: False)
    guard.lead(tracker)
    assert tracker.begin(FORWARD) is True
    tracker.end(FORWARD, True)
    assert guard.spent_ns == 0
    guard.time_hooks(True)
    tracker.end(FORWARD, tracker.begin(FORWARD))
    guard.time_hooks(False)
    assert 0 < guard.spent_ns < 1e7
    guard.time_hooks(True)
    assert guard.spent_ns == 0
    guard.disable()
    assert tracker.begin(FORWARD) is None
    tracker.end(FORWARD, None)
    tracker.optimizer_stepped(1)
    assert not tracker.finish()


@pytest.mark.parametrize("arguments", [(), ("x",), (9,), (-1,), (2**70,)])
def test_what_is_no_phase_is_nothing(arguments: tuple[Any, ...]) -> None:
    tracker = native(lambda index: False)
    assert tracker.begin(*arguments) is None
    assert tracker.end(*arguments, True) is None


def test_an_interrupt_between_two_steps_is_the_jobs() -> None:
    def interrupted(index: int) -> bool:
        signal.raise_signal(signal.SIGINT)
        return False

    recorder = Recorder("native")
    recorder.tracker = native(interrupted)
    recorder.iteration()
    with pytest.raises(KeyboardInterrupt):
        recorder.iteration()


def test_a_ring_that_cannot_be_mapped_is_refused(tmp_path: Path) -> None:
    class Gone:
        place = (str(tmp_path / "missing").encode(), 4096, 4)

    class Wrong:
        place = (b"x", 4096, 0)

    tracker = native(lambda index: False)
    with pytest.raises(FileNotFoundError):
        tracker.write_to(Gone())
    with pytest.raises(ValueError, match="capacity"):
        tracker.write_to(Wrong())
    with pytest.raises(AttributeError):
        tracker.write_to(3)


def test_a_tracker_in_a_cycle_is_freed() -> None:
    class Owner:
        def __init__(self) -> None:
            self.tracker = native(self.boundary)

        def boundary(self, index: int) -> bool:
            return False

    owner = Owner()
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_python_takes_over_where_the_timers_in_c_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = lambda *_: None  # noqa: E731
    monkeypatch.setenv("DDPROF_NATIVE", "0")
    assert native_tracker(nothing, nothing, nothing) is None
    monkeypatch.delenv("DDPROF_NATIVE")

    def of_another_machine(name: str) -> Any:
        raise ImportError(f"{name}: wrong ELF class")

    with monkeypatch.context() as patch:
        patch.setattr("ddprof.capture.steps.native_tracker.import_module", of_another_machine)
        assert native_tracker(nothing, nothing, nothing) is None
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    assert native_tracker(nothing, nothing, nothing) is None
