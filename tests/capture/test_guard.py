"""The guard: a failure of ours costs one line and the capture, never the job."""

import pytest

from ddprof.capture.guard import Guard


def test_a_failure_costs_one_line_and_the_capture_interrupts_pass(capsys: pytest.CaptureFixture[str]) -> None:
    guard = Guard()
    calls = []

    def work() -> int:
        calls.append(1)
        raise KeyError("broken")

    guarded = guard.wrap(work)
    assert guarded() is None
    assert guarded() is None
    assert (len(calls), len(guard.faults), guard.enabled) == (1, 1, False)
    assert capsys.readouterr().err.count("\n") == 1

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guard().wrap(interrupted)()
    guard = Guard()
    hook = guard.wrap_hook(lambda first, second: first / (second or 1))
    assert hook(6) == 6
    assert hook(6, 3) == 2
    assert hook("x", 1) is None
    assert hook(6, 3) is None
    assert len(guard.faults) == 1
    assert capsys.readouterr().err.count("capture is off") == 1
