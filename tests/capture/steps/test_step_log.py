"""Typical steps of the log, inside the window and outside."""

from damage import step

from ddprof.capture.steps.step_log import step_medians


def test_medians_leave_out_warm_up_and_what_follows_a_window() -> None:
    steps = [step(number, dur_ns) for number, dur_ns in enumerate([900, 800, 100, 100, 100])]
    steps += [step(5, 120, profiled=True), step(6, 999), step(7, 100)]
    logged = [*((each, False) for each in steps), (step(8, 999), True)]
    assert step_medians(logged) == {"bare_step_ns": 100, "profiled_step_ns": 120}
    assert step_medians([]) == {"bare_step_ns": None, "profiled_step_ns": None}
