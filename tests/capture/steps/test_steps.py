"""Steps: their bounds and phases, by timers of both kinds; typical ones; the cost of hooks; no optimizer at all."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from damage import step
from hubs import on_another_thread
from trackers import KINDS, Recorder, make

from ddprof.capture import guard as guarding
from ddprof.capture.files.ring import StepRing, read_ring
from ddprof.capture.files.step import BACKWARD, COLLECTIVE, DATA, FORWARD, OPTIMIZER
from ddprof.capture.guard import Guard
from ddprof.capture.steps import own_cost
from ddprof.capture.steps.own_cost import FIRST_STEP, PERIOD_STEPS, OwnCost, whole_share
from ddprof.capture.steps.tracker import FIRST_STEPS, RECENT_STEPS, step_medians
from ddprof.capture.steps.unmarked import BACKWARDS, FETCHES, FORWARDS, UnmarkedSteps
from ddprof.capture.window.annotate import Range


def test_medians_leave_out_warm_up_and_what_follows_a_window() -> None:
    steps = [step(number, dur_ns) for number, dur_ns in enumerate([900, 800, 100, 100, 100])]
    steps += [step(5, 120, profiled=True), step(6, 999), step(7, 100)]
    logged = [*((each, False) for each in steps), (step(8, 999), True)]
    ranges = {"bare_range_ns": [100, 100], "profiled_range_ns": [120, 120]}
    assert step_medians(logged) == {"bare_step_ns": 100, "profiled_step_ns": 120, **ranges}


HOOK_NS, HOOKS = 2_000_000, 3  # of a step; the first one holds the boundary


class Job:
    """Steps of a job, on a clock that only its hooks move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.guard = Guard()
        self.cost = OwnCost(self.guard)
        self.timed: list[int] = []
        monkeypatch.setattr(guarding, "time", SimpleNamespace(perf_counter_ns=lambda: self.now_ns))

    def play(self, steps: int, unusable: tuple[int, ...] = ()) -> int | None:
        """Run some steps and return what they cost each."""

        def work(step: int, is_first: bool) -> None:
            if is_first and step >= self.cost.next_step:
                self.cost.step_begins(step, usable=step not in unusable)
            self.now_ns += HOOK_NS

        hook = self.guard.wrap_hook(work)
        for index in range(steps):
            for number in range(HOOKS):
                hook(index, number == 0)
            if self.guard.spent_ns == (HOOKS - 1) * HOOK_NS:  # all but the one that began it
                self.timed.append(index)
        return self.cost.per_step_ns()


def test_a_sample_holds_the_hooks_of_one_step_and_one_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch)
    found_ns = job.play(2 * PERIOD_STEPS + 3)
    assert job.timed == [FIRST_STEP, FIRST_STEP + 3, PERIOD_STEPS, 2 * PERIOD_STEPS]
    assert found_ns == int(HOOKS * HOOK_NS * whole_share())


def test_a_short_job_says_nothing_and_steps_beside_a_window_are_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch)
    assert job.play(12, unusable=(FIRST_STEP, FIRST_STEP + 2)) is not None
    assert job.timed == [FIRST_STEP + 1, FIRST_STEP + 3]  # the first one is dropped: a window opened at its end
    assert Job(monkeypatch).play(FIRST_STEP + 2) is None


def test_hooks_stay_guarded_while_they_are_timed() -> None:
    guard, calls = Guard(), []

    def broken(number: int, rest: object) -> None:
        calls.append(number)
        raise KeyError(number)

    hook, other = guard.wrap_hook(broken), guard.wrap(calls.append)
    guard.time_hooks(True)
    assert hook(1) is None and (guard.enabled, len(guard.faults)) == (False, 1) and guard.spent_ns > 0
    guard.time_hooks(False)
    assert (hook(2), other(3)) == (None, None) and calls == [1]


def test_what_surrounds_a_hook_is_part_of_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert whole_share() >= 1
    monkeypatch.setattr(own_cost, "_whole_share", [])
    monkeypatch.setattr(own_cost, "_per_call_ns", lambda *_: [10.0, 200.0, 110.0])  # nothing, a hook, its timer alone
    assert whole_share() == 1.9


MODEL, DECODER, LOSS = object(), object(), object()


class Loop:
    """Plays a loop, and keeps how many of its iterations had begun at each mark."""

    def __init__(self, allowed: bool = True) -> None:
        self.iterations = 0
        self.marks: list[int] = []
        self.asked: list[int] = []
        self.roots: list[Any] = []
        may_mark: Any = lambda kind: self.asked.append(kind) or allowed  # noqa: E731
        self.steps = UnmarkedSteps(Guard(), lambda: self.marks.append(self.iterations), may_mark, self.roots.append)

    def play(self, iteration: Callable[[UnmarkedSteps], None], count: int) -> None:
        for _ in range(count):
            iteration(self.steps)
            self.iterations += 1

    def every_iteration_from(self, first: int) -> bool:
        """True where one mark stands between any two iterations from `first` on."""
        return [mark for mark in self.marks if mark > first] == list(range(first + 1, self.iterations))


def looping(*events: object) -> Callable[[UnmarkedSteps], None]:
    """An iteration of these events: a fetch, a backward pass, or the forward pass of a module."""

    def iteration(steps: UnmarkedSteps) -> None:
        for event in events:
            if event == "fetch":
                steps.fetch_begins()
            elif event == "backward":
                steps.backward_ended()
            else:
                steps.forward_begins(event)

    return iteration


by_hand = looping("fetch", MODEL, "backward")
by_hand_without_batches = looping(MODEL, LOSS, "backward")
inference = looping("fetch", MODEL, DECODER)


@pytest.mark.parametrize(
    ("iteration", "kind", "settled"),
    [
        *((loop, BACKWARDS, 3) for loop in (by_hand, by_hand_without_batches)),
        *((loop, FORWARDS, 9) for loop in (inference, looping("fetch", *[MODEL] * 20), looping(MODEL, DECODER))),
        (looping("fetch"), FETCHES, 33),
    ],
)
def test_each_iteration_without_an_optimizer_is_one_step(
    iteration: Callable[[UnmarkedSteps], None], kind: int, settled: int
) -> None:
    loop = Loop()
    loop.play(iteration, 60)
    assert loop.steps.kind == kind and loop.every_iteration_from(settled) and loop.steps.under_way


def test_the_root_is_the_first_module_and_neither_one_batch_nor_evaluation_ends_a_step() -> None:
    loop = Loop()
    loop.play(inference, 12)
    assert loop.roots == [MODEL]
    loop = Loop()
    loop.steps.fetch_begins()
    loop.play(by_hand_without_batches, 200)
    assert loop.every_iteration_from(100)
    loop = Loop()
    loop.play(by_hand, 20)
    known = len(loop.marks)
    loop.play(inference, 5)
    assert len(loop.marks) == known + 1  # the step that ended before the evaluation began
    loop.play(by_hand, 1)
    assert len(loop.marks) == known + 1


def test_a_job_with_an_optimizer_is_waited_for_and_one_that_is_no_rank_asked_for_once() -> None:
    loop = Loop()
    loop.steps.optimizer_made()
    loop.play(by_hand, 300)
    loop.play(inference, 100)
    assert (loop.marks, loop.asked) == ([], [])
    loop = Loop(allowed=False)
    loop.play(inference, 100)
    assert (loop.marks, loop.asked) == ([], [FORWARDS])


def test_backward_passes_tell_more_than_calls_and_other_threads_nothing() -> None:
    loop = Loop()
    loop.play(inference, 20)
    loop.play(by_hand, 20)
    assert loop.asked == [FORWARDS, BACKWARDS] and loop.every_iteration_from(23)
    loop = Loop()
    on_another_thread(loop.play, by_hand, 20)
    assert loop.asked == []


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


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the kernel does not count it")
@pytest.mark.parametrize("kind", KINDS)
def test_each_phase_counts_what_it_lacked_a_cpu_for(kind: str) -> None:
    """A thread that computes on the CPU of another process, and is not blocked, lacks it while time passes."""
    tracker, usable = make(kind, lambda index: False), os.sched_getaffinity(0)
    spins = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    try:
        os.sched_setaffinity(0, {min(usable)})  # of this thread; a child gets it as well
        with subprocess.Popen(spins, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None and other.stdout.readline()
            tracker.end(FORWARD, tracker.begin(FORWARD))
            token, began_ns, ran_ns = tracker.begin(BACKWARD), time.monotonic_ns(), time.thread_time_ns()
            lacked_ns = 0
            while lacked_ns < 20e6:
                lacked_ns = time.monotonic_ns() - began_ns - (time.thread_time_ns() - ran_ns)
            tracker.end(BACKWARD, token)
            other.kill()
    finally:
        os.sched_setaffinity(0, usable)
    tracker.optimizer_stepped(1)
    assert tracker.finish()
    ((step, _),) = tracker.logged()
    assert step.waited_ns >= step.backward_waited_ns == pytest.approx(lacked_ns, rel=0.25)
    assert step.record()["backward_waited_ns"] == step.backward_waited_ns
    assert "waited_ns" not in step._replace(waited_ns=-1).record()
    assert "forward_waited_ns" not in (record := step._replace(waited_ns=0, forward_waited_ns=0).record())
    assert record["waited_ns"] == 0


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
