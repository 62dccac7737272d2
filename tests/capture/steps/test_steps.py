"""Typical steps of the log, and the stated cost of ddprof: hooks are timed in a sample of steps, and in no other."""

from types import SimpleNamespace

import pytest
from damage import step

from ddprof.capture import guard as guarding
from ddprof.capture.guard import Guard
from ddprof.capture.steps import own_cost
from ddprof.capture.steps.own_cost import FIRST_STEP, PERIOD_STEPS, OwnCost, whole_share
from ddprof.capture.steps.step_log import step_medians


def test_medians_leave_out_warm_up_and_what_follows_a_window() -> None:
    steps = [step(number, dur_ns) for number, dur_ns in enumerate([900, 800, 100, 100, 100])]
    steps += [step(5, 120, profiled=True), step(6, 999), step(7, 100)]
    logged = [*((each, False) for each in steps), (step(8, 999), True)]
    assert step_medians(logged) == {"bare_step_ns": 100, "profiled_step_ns": 120}
    assert step_medians([]) == {"bare_step_ns": None, "profiled_step_ns": None}


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
