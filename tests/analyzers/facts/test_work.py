"""A launch call that takes long found the queue full, or its thread stood still: the device tells which."""

from pathlib import Path

import pytest
from kineto_run import Script

from ddprof import intervals
from ddprof.analyzers.execution.choose import rank_execution
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import blocked_launches, free_host, stalled_launches

LONG_US = 4_000.0


def launched(folder: Path, backlog_us: float) -> RankFacts:
    """Steps of kernels of which one is launched by a long call, behind so much work of the device."""
    script = Script()
    for _ in script.steps(3):
        script.launch(dur_us=10.0)
        if backlog_us:
            script.launch(dur_us=backlog_us)
        script.launch(dur_us=10.0, call_us=LONG_US)
        script.launch(dur_us=10.0)
        script.synchronise()
    script.launch()
    script.step(4, script.now_us - 20)
    return script.facts(folder)


def test_a_full_queue_blocks_the_host_and_a_thread_that_stands_still_is_none(tmp_path: Path) -> None:
    facts = launched(tmp_path, backlog_us=9_000.0)
    assert (int(blocked_launches(facts.device_ops).sum()), int(stalled_launches(facts.device_ops).sum())) == (3, 0)
    assert intervals.length(free_host(facts)) < 3e3 * LONG_US
    facts = launched(tmp_path, backlog_us=0.0)
    assert (int(blocked_launches(facts.device_ops).sum()), int(stalled_launches(facts.device_ops).sum())) == (0, 3)
    assert intervals.length(free_host(facts)) > 3e3 * LONG_US


@pytest.mark.parametrize(("backlog_us", "waits_us"), [(0.0, 1.0), (9_000.0, 9_000.0 - LONG_US)])
def test_the_replay_launches_late_only_where_the_call_stood(tmp_path: Path, backlog_us: float, waits_us: float) -> None:
    facts = launched(tmp_path, backlog_us)
    moved = rank_execution(facts).operations(facts)
    lag_us = (moved.start_ns - moved.launch_ns) / 1e3
    assert lag_us.max() == pytest.approx(waits_us + (LONG_US if backlog_us else 4.0), rel=0.01, abs=10.0)
