"""Typical steps of the log, inside the window and outside."""

from ddprof.capture.files.step import Step
from ddprof.capture.steps.step_log import step_medians


def test_medians_leave_out_warm_up_and_what_follows_a_window() -> None:
    def step(number: int, dur_ns: int, profiled: bool = False) -> tuple[Step, bool]:
        return Step(number, number * 100, number * 100 + dur_ns, 1, 2, 3, 4, 5, profiled), False

    logged = [step(number, dur_ns) for number, dur_ns in enumerate([900, 800, 100, 100, 100])]
    logged += [step(5, 120, profiled=True), step(6, 999), step(7, 100), (step(8, 999)[0], True)]
    assert step_medians(logged) == {"bare_step_ns": 100, "profiled_step_ns": 120}
    assert step_medians([]) == {"bare_step_ns": None, "profiled_step_ns": None}
