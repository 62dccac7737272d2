"""Bounds of steps and their phases: the timers in Python and those in C, by the same rules."""

import time
from pathlib import Path
from typing import Any

import pytest
from hubs import on_another_thread
from trackers import KINDS, Recorder, make

from ddprof.capture.files.ring import StepRing, read_ring
from ddprof.capture.files.step import BACKWARD, COLLECTIVE, DATA, FORWARD, OPTIMIZER
from ddprof.capture.steps.step_log import FIRST_STEPS, RECENT_STEPS
from ddprof.capture.window.annotate import Range


@pytest.fixture(params=KINDS)
def seen(request: pytest.FixtureRequest) -> Recorder:
    return Recorder(request.param)


@pytest.mark.parametrize(
    "shape",
    [{}, {"data": 4, "micro": 4}, {"optimizers": (1, 2)}, {"data": 0}, {"data": 0, "micro": 3}],
    ids=["plain", "accumulation", "two optimizers", "no loader", "no loader, accumulation"],
)
def test_each_iteration_is_one_step(shape: dict[str, Any], seen: Recorder) -> None:
    seen.iterations(6, **shape)
    assert seen.boundaries == [1, 2, 3, 4, 5] and len(seen.closed) == 5
    assert seen.tracker.finish() and [step.number for step in seen.closed] == [0, 1, 2, 3, 4, 5]
    assert all(step.backward_ns > 0 for step in seen.closed)
    assert all(before.end_ns == after.start_ns for before, after in zip(seen.closed, seen.closed[1:], strict=False))
    assert seen.tracker.booked == 6 and not seen.tracker.finish()


def test_two_optimizers_without_a_loader_settle_on_one_step_per_cycle(seen: Recorder) -> None:
    seen.iterations(10, data=0, optimizers=(1, 2))
    assert 9 <= len(seen.closed) <= 10


def test_recomputation_inside_backward_is_not_a_forward(seen: Recorder) -> None:
    outer = seen.tracker.begin(BACKWARD)
    assert seen.tracker.begin(FORWARD) is False
    seen.tracker.end(FORWARD, False)
    seen.tracker.end(BACKWARD, outer)
    assert seen.ended().forward_ns == 0


def test_closure_inside_the_optimizer_keeps_its_own_phases(seen: Recorder) -> None:
    def slow(phase: int) -> None:
        token = seen.tracker.begin(phase)
        time.sleep(0.02)
        seen.tracker.end(phase, token)

    seen.phase(DATA)
    began_ns, outer = time.monotonic_ns(), seen.tracker.begin(OPTIMIZER)
    slow(FORWARD)
    slow(BACKWARD)
    time.sleep(0.002)
    seen.tracker.end(OPTIMIZER, outer)
    took_ns, found = time.monotonic_ns() - began_ns, seen.ended()
    assert min(found.forward_ns, found.backward_ns) >= 20e6 and found.optimizer_ns >= 2e6
    assert found.optimizer_ns + found.forward_ns + found.backward_ns <= took_ns + 1e6  # of another clock


def test_an_optimizer_that_computes_in_its_closure_alone_marks_every_step(seen: Recorder) -> None:
    """LBFGS over all data."""
    for _ in range(6):
        seen.tracker.optimizer_begins(1)
        outer = seen.tracker.begin(OPTIMIZER)
        for _ in range(3):
            seen.phase(FORWARD)
            seen.phase(BACKWARD)
        seen.tracker.end(OPTIMIZER, outer)
        seen.tracker.optimizer_stepped(1)
    assert seen.tracker.finish() and [step.number for step in seen.closed] == [0, 1, 2, 3, 4, 5]
    assert all(step.backward_ns > 0 for step in seen.closed)


def test_an_optimizer_that_is_made_anew_in_every_step_marks_it(seen: Recorder) -> None:
    """Nobody waits for the one before it, which the script has let go of."""
    for number in range(5):
        seen.tracker.optimizer_died(number - 1)
        seen.iteration(data=0, optimizers=(number,))
    assert seen.tracker.finish() and [step.number for step in seen.closed] == [0, 1, 2, 3, 4]


def test_a_marked_step_ends_there(seen: Recorder) -> None:
    for _ in range(4):
        for _ in range(3):
            seen.phase(DATA)
            seen.phase(FORWARD)
        seen.tracker.mark_step()
    assert [step.number for step in seen.closed] == [0, 1, 2, 3]
    assert all(step.data_ns > 0 for step in seen.closed)


def test_other_threads_are_not_counted(seen: Recorder) -> None:
    seen.phase(DATA)
    seen.phase(BACKWARD)
    tokens: list[object] = []

    def fetch() -> None:
        tokens.append(seen.tracker.begin(FORWARD))
        seen.tracker.end(FORWARD, tokens[0])

    on_another_thread(fetch)
    assert tokens == [False] and seen.ended().forward_ns == 0


def test_nobody_is_called_before_there_is_something_to_do(seen: Recorder) -> None:
    seen.tracker.calm_until = 4
    seen.iterations(7)
    assert seen.boundaries == [4, 5, 6] and seen.tracker.booked == 6


@pytest.mark.parametrize("kind", KINDS)
def test_heavy_work_between_two_steps_is_in_neither(kind: str) -> None:
    recorder = Recorder(kind)
    recorder.tracker = make(kind, lambda index: time.sleep(0.02) or index == 1)
    recorder.iterations(3)
    assert recorder.tracker.finish()
    first, second, third = recorder.closed
    assert second.start_ns - first.end_ns >= 20e6
    assert third.start_ns == second.end_ns  # light work is part of the step


@pytest.mark.parametrize("kind", KINDS)
def test_phases_are_named_while_somebody_listens_and_nobody_needs_to(kind: str) -> None:
    opened: list[str] = []
    closed: list[Range] = []

    def open_range(name: str) -> Range:
        opened.append(name)
        return Range(None, lambda record: None, None)

    tracker = make(kind, lambda index: False, open_range, closed.append)
    tracker.end(FORWARD, tracker.begin(FORWARD))
    assert opened == []
    tracker.listening = True
    token = tracker.begin(BACKWARD)
    tracker.end(COLLECTIVE, tracker.begin(COLLECTIVE, "ddprof::collective.barrier"))
    tracker.end(BACKWARD, token)
    assert opened == ["ddprof::backward", "ddprof::collective.barrier"] and closed[1] is token
    tracker.optimizer_stepped(1)
    assert tracker.finish()
    ((step, _),) = tracker.logged()
    assert step.backward_ns > step.collective_ns > 0
    tracker = make(kind, lambda index: False)
    tracker.listening = True  # but `open_range` has nothing to give: nvtx is missing
    assert tracker.begin(FORWARD) is True


def test_steps_reach_the_ring_once_there_is_one(seen: Recorder, tmp_path: Path) -> None:
    seen.iterations(2)
    ring = StepRing(tmp_path / "a.ring", {"rank": 0, "host": "h"}, capacity=4)
    seen.tracker.write_to(ring)
    for number in range(6):
        seen.tracker.profiled = number == 5
        seen.iteration()
    content = read_ring(tmp_path / "a.ring")  # while the writer is alive
    assert content.written == 6 and list(content.steps) == seen.closed[-4:]
    assert [step.number for step in content.steps] == [3, 4, 5, 6]
    assert [step.profiled for step in content.steps] == [False, False, False, True]
    seen.tracker.write_to(None)
    ring.close()
    seen.iteration()
    assert read_ring(tmp_path / "a.ring").written == 6 and seen.tracker.booked == 8


def test_a_forked_child_begins_its_own_life(seen: Recorder, tmp_path: Path) -> None:
    seen.tracker.write_to(StepRing(tmp_path / "a.ring", {"rank": 0, "host": "h"}))
    seen.iterations(3)
    seen.tracker.restart()
    seen.iterations(3)
    assert [step.number for step in seen.closed] == [0, 1]
    assert read_ring(tmp_path / "a.ring").written == 2  # the parent's


def test_the_start_and_the_recent_past_are_kept(seen: Recorder) -> None:
    steps = FIRST_STEPS + RECENT_STEPS + 10
    seen.tracker.calm_until = steps + 1
    for number in range(steps + 1):
        seen.tracker.disturbed = number == steps - 1
        seen.iteration()
    logged = seen.tracker.logged()
    assert seen.tracker.booked == steps
    assert [step.number for step, _ in logged] == [*range(FIRST_STEPS), *range(steps - RECENT_STEPS, steps)]
    assert [step.number for step, disturbed in logged if disturbed] == [steps - 2]
