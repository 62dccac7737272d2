"""The What-if page replays: nothing changed is the measured step, and the culprit's cause is the one that pays."""

from __future__ import annotations

import time

import pytest

from ddprof.dashboard.pages import what_if
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View


def test_as_recorded_is_the_measured_step(straggler: OpenRun) -> None:
    found = what_if.predict(straggler, what_if.settings({}))
    assert found.levels == () and found.after_us == pytest.approx(straggler.report.steps.wall_us)


def test_removing_the_straggler_pays_and_faster_kernels_pay_more(straggler: OpenRun) -> None:
    before = straggler.report.steps.wall_us
    balanced = what_if.predict(straggler, what_if.settings({"balance": "1"})).after_us
    faster = what_if.predict(straggler, what_if.settings({"balance": "1", "compute": "2"})).after_us
    assert balanced < before * 0.99
    assert faster < balanced


def test_every_control_can_be_replayed_alone_within_a_second(straggler: OpenRun) -> None:
    assert straggler.pricer.error is not None  # built outside the measured time, as on the page
    for control in what_if.CONTROLS:
        started = time.process_time()  # of this process alone: the machine may be busy
        found = what_if.predict(straggler, what_if.settings({control.key: "1" if control.is_switch else "2"}))
        assert time.process_time() - started < 1.0, control.key
        assert len(found.levels) == 1 and 0 < found.after_us <= found.before_us * 1.001, control.key
        assert found.low_us <= found.after_us <= found.high_us, control.key


@pytest.mark.parametrize("text", ["nan", "inf", "-5", "x", "", "1e9"])
def test_nonsense_in_the_address_is_clipped(text: str) -> None:
    values = what_if.settings({"bandwidth": text, "loader": text})
    assert 1.0 <= values["bandwidth"] <= 8.0 and 0.0 <= values["loader"] <= 1.0


def test_the_result_is_a_sentence_with_both_times(view: View) -> None:
    sentence = what_if.outcome(view, {"balance": "1"})[0].children
    assert "→" in sentence and "less" in sentence
