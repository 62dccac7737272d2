"""Calls that wait for what they started, told by when they return, and launch calls that take long."""

from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, loaded, meet

from ddprof import intervals
from ddprof.analyzers.execution.choose import rank_execution
from ddprof.analyzers.facts.device import waited_for
from ddprof.analyzers.facts.model import DEVICE_OPS, RankFacts, Work
from ddprof.analyzers.facts.work import blocked_launches, free_host, stalled_launches
from ddprof.findings import Change
from ddprof.tables import NULL

SAVE_US, LONG_US = 8_000.0, 4_000.0
TO_HOST = "Memcpy DtoH (Device -> Pageable)"


COPIES = (  # when the call returns, when the copy starts and ends (us after the call), and whether the call waited
    (995, 100, 1_000, True),  # pageable memory: its last part lies in the driver's buffer
    (983, 100, 1_000, True),
    (1_003, 100, 1_000, True),
    (900, 100, 1_000, False),  # so long before its end no call returns that waits for it
    (4, 100, 1_000, False),  # pinned memory, behind other work
    (4, 5, 7, False),  # a few bytes, right after the call
    (None, 5, 7, False),
)


def test_a_call_waits_that_returns_about_when_its_copy_ends() -> None:
    returns, start, end, waits = zip(*COPIES, strict=True)
    ns = {"work": [Work.COPY] * len(COPIES), "launch_ns": [NULL if at is None else 0 for at in returns]}
    ns |= {"launch_end_ns": [NULL if at is None else 1_000 * at for at in returns]}
    ns |= {"start_ns": [1_000 * at for at in start], "end_ns": [1_000 * at for at in end]}
    missing = {c.name: np.full(len(COPIES), NULL if c.dtype == "int64" else 0) for c in DEVICE_OPS.columns}
    ops = DEVICE_OPS.table({**missing, **{name: np.array(times) for name, times in ns.items()}})
    assert tuple(waited_for(ops).tolist()) == waits


@pytest.mark.parametrize("early_us", [0.0, 10.0])
def test_a_host_that_a_copy_holds_goes_on_when_a_late_peer_is_on_time(tmp_path: Path, early_us: float) -> None:
    """Rank 0 saves before its all-reduce; its peer waits for the loss, which is copied after the all-reduce."""
    scripts = [Script() for _ in range(2)]
    for step in range(5):
        begins_us = [script.now_us for script in scripts]
        scripts[0].host("save_checkpoint", SAVE_US, "user_annotation")
        for script in scripts:
            script.launch(dur_us=400.0)
        meet(scripts)
        for script, begin_us in zip(scripts, begins_us, strict=True):
            script.blocking_copy(TO_HOST, 4_096, 30.0, early_us)
            script.step(step + 1, begin_us)
    prices = loaded(scripts, tmp_path).pricer
    gain_us = prices.measures.step_us - prices.step_us((Change("remove_host", (0,), target="checkpoint"),))
    assert gain_us == pytest.approx(SAVE_US, rel=0.05)


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
    for backlog_us, blocked, stalled in ((9_000.0, 3, 0), (0.0, 0, 3)):
        facts = launched(tmp_path, backlog_us)
        assert blocked_launches(facts.device_ops).sum() == blocked
        assert stalled_launches(facts.device_ops).sum() == stalled
        assert (intervals.length(free_host(facts)) < 3e3 * LONG_US) == bool(blocked)


@pytest.mark.parametrize(("backlog_us", "waits_us"), [(0.0, 1.0), (9_000.0, 9_000.0 - LONG_US)])
def test_the_replay_launches_late_only_where_the_call_stood(tmp_path: Path, backlog_us: float, waits_us: float) -> None:
    facts = launched(tmp_path, backlog_us)
    moved = rank_execution(facts).operations(facts)
    lag_us = (moved.start_ns - moved.launch_ns) / 1e3
    assert lag_us.max() == pytest.approx(waits_us + (LONG_US if backlog_us else 4.0), rel=0.01, abs=10.0)
