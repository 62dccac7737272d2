"""The timers in C: as those in Python, and what concerns them alone."""

import gc
import signal
import sys
import weakref
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import bare_run
from trackers import Recorder, let_the_clock_tick, make

from ddprof.capture.files.step import FORWARD, OPTIMIZER, PHASE_NAMES
from ddprof.capture.guard import Guard
from ddprof.capture.steps.native_tracker import native_tracker

EVENTS = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, len(PHASE_NAMES) - 1)),
    st.tuples(st.just("end"), st.integers(0, 3)),  # which of the open phases: they need not nest
    st.tuples(st.sampled_from(("optimizer_stepped", "optimizer_begins", "optimizer_died")), st.integers(1, 3)),
    st.tuples(st.just("iteration"), st.integers(0, 2)),
    st.tuples(st.sampled_from(("profiled", "disturbed", "finish", "restart", "mark_step")), st.integers(0, 1)),
    st.tuples(st.just("calm_until"), st.integers(0, 12)),
)


def play(kind: str, events: list[tuple[str, int]]) -> list[Any]:
    """A tracker's answers to the events, without the times themselves."""
    recorder = Recorder(kind)
    tracker, said, open_phases = recorder.tracker, [], []
    nets = False  # what a closure's own phases take is taken off its optimizer's: what is left may be nothing by chance
    for what, value in events:
        nets = nets or any(phase == OPTIMIZER for phase, _ in open_phases)
        if what == "begin":
            token = tracker.begin(value)
            open_phases.append((value, token))
            let_the_clock_tick()
            said.append(token)
        elif what == "end" and open_phases:
            tracker.end(*open_phases.pop(-1 - value % len(open_phases)))
        elif what.startswith("optimizer_"):
            getattr(tracker, what)(value)
        elif what == "iteration":
            recorder.iteration(data=value)
        elif what in ("finish", "restart", "mark_step"):
            said.append(getattr(tracker, what)())
        elif what != "end":
            setattr(tracker, what, value if what == "calm_until" else bool(value))
    said.append(tracker.index)
    for step, disturbed in tracker.logged():
        assert step.start_ns <= step.end_ns
        phases = [name for name in ("data", "forward", "backward", "collective") if getattr(step, f"{name}_ns") > 0]
        assert min(step[8:13]) >= 0
        said.append((step.number, phases, nets or step.optimizer_ns > 0, step.profiled, disturbed))
    return [*said, recorder.boundaries]


@given(st.lists(EVENTS, max_size=40))
def test_both_kinds_answer_alike(events: list[tuple[str, int]]) -> None:
    assert play("native", events) == play("python", events)


def test_the_guard_leads_the_timers_in_c() -> None:
    guard, tracker = Guard(), make("native", lambda index: False)
    guard.lead(tracker)
    assert tracker.begin(FORWARD) is True
    tracker.end(FORWARD, True)
    assert guard.spent_ns == 0
    began_ns = perf_counter_ns()
    guard.time_hooks(True)
    tracker.end(FORWARD, tracker.begin(FORWARD))
    guard.time_hooks(False)
    assert 0 < guard.spent_ns < perf_counter_ns() - began_ns
    guard.time_hooks(True)
    assert guard.spent_ns == 0
    guard.disable()
    assert tracker.begin(FORWARD) is None
    tracker.end(FORWARD, None)
    tracker.optimizer_stepped(1)
    assert not tracker.finish()


@pytest.mark.parametrize("arguments", [(), ("x",), (9,), (-1,), (2**70,)])
def test_what_is_no_phase_is_nothing(arguments: tuple[Any, ...]) -> None:
    tracker = make("native", lambda index: False)
    assert tracker.begin(*arguments) is None and tracker.end(*arguments, True) is None


def test_an_interrupt_between_two_steps_is_the_jobs() -> None:
    recorder = Recorder("native")
    recorder.tracker = make("native", lambda index: signal.raise_signal(signal.SIGINT))
    recorder.iteration()
    with pytest.raises(KeyboardInterrupt):
        recorder.iteration()


def test_a_ring_that_cannot_be_mapped_is_refused_and_a_tracker_in_a_cycle_freed(tmp_path: Path) -> None:
    gone = SimpleNamespace(place=(str(tmp_path / "missing").encode(), 4096, 4))
    wrong = SimpleNamespace(place=(b"x", 4096, 0))
    tracker = make("native", lambda index: False)
    with pytest.raises(FileNotFoundError):
        tracker.write_to(gone)
    with pytest.raises(ValueError, match="capacity"):
        tracker.write_to(wrong)
    with pytest.raises(AttributeError):
        tracker.write_to(3)

    owner = Recorder("native")  # whose tracker holds it
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_python_takes_over_where_the_timers_in_c_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = lambda *_: None  # noqa: E731
    monkeypatch.setenv("DDPROF_NATIVE", "0")
    assert native_tracker(nothing, nothing, nothing) is None
    monkeypatch.delenv("DDPROF_NATIVE")

    with monkeypatch.context() as patch:
        of_another_machine = Mock(side_effect=ImportError("_phases: wrong ELF class"))
        patch.setattr("ddprof.capture.native.import_module", of_another_machine)
        assert native_tracker(nothing, nothing, nothing) is None
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    assert native_tracker(nothing, nothing, nothing) is None


CUT = """
import faulthandler, mmap, os, sys
from pathlib import Path
from ddprof.capture.files.ring import StepRing, read_ring
from trackers import Recorder
path, first, then = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if first == "faulthandler before":
    faulthandler.enable()
recorder = Recorder("native")
for _ in range(2):  # as after a rank has been guessed and then told: the first ring goes
    recorder.tracker.write_to(StepRing(path, {"rank": 0, "host": "h"}))
    recorder.iterations(5)
    if first == "faulthandler between":
        faulthandler.enable()
assert len(read_ring(path).steps) == 5
os.truncate(path, 0)
if then == "another file":
    (path.parent / "other").write_bytes(bytes(9999))
    with open(path.parent / "other", "r+b") as stream:
        other = mmap.mmap(stream.fileno(), 9999)
    os.truncate(path.parent / "other", 0)
    other[0] = 1
if then == "a signal":
    os.kill(os.getpid(), 7)
recorder.iterations(5)
assert len(recorder.tracker.logged()) == 14
recorder.tracker.write_to(None)
recorder.iteration()
if then == "a signal later":
    os.kill(os.getpid(), 7)
print("goes on")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="signals are numbered as on Linux")
@pytest.mark.parametrize("first", ["nothing", "faulthandler before", "faulthandler between"])
@pytest.mark.parametrize("then", ["nothing", "another file", "a signal", "a signal later"])
def test_a_ring_that_is_cut_short_does_not_end_the_job(tmp_path: Path, first: str, then: str) -> None:
    """And whatever else is wrong with the memory of the process ends it as it would without us."""
    make("native", lambda index: False)
    line = [sys.executable, "-c", CUT, str(tmp_path / "a.ring"), first, then]
    done = bare_run(line, ASAN_OPTIONS="detect_leaks=0:handle_sigbus=0", PYTHONPATH=str(Path(__file__).parents[1]))
    if then == "nothing" and first != "faulthandler between":  # put over ours later, it is in charge
        assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
    else:
        assert done.returncode == -signal.SIGBUS, done.stderr
        assert ("Bus error" in done.stderr) == (first != "nothing")
