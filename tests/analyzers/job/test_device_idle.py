"""Devices that starve: the cost of launching, stops of the host, and idle time that blocking calls began."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script
from labelled_runs import Runs

from ddprof import intervals
from ddprof.analyzers.facts.model import GAPS, SPANS, RankFacts
from ddprof.analyzers.job.device_idle import idle_from_calls_us, launch_interval_ns, starved
from ddprof.causes import CAUSE_CODE


def run(pause_us: float = 0.0, stop_us: float = 0.0) -> Script:
    """Four steps of 30 tiny kernels; `pause_us`: Python in the middle of each; `stop_us`: once inside a view."""
    script = Script()
    for step in script.steps(4):
        for call in range(30):
            script.launch()
            script.host("aten::view", stop_us if stop_us and (step, call) == (2, 7) else 2.0)
        script.idle(pause_us)
        script.launch()
    return script


def test_short_gaps_between_launches_of_kernels_or_graphs_are_their_cost_and_rare_ones_are_not(tmp_path: Path) -> None:
    facts = run().facts(tmp_path)
    found = starved(facts)
    assert launch_interval_ns(facts) == found.interval_ns == 16_000 and intervals.length(found.launching) > 0
    assert intervals.length(found.held) == intervals.length(found.stalled) == 0
    # Thirty kernels per launch of a graph, and short gaps between graphs: none of them is long for this host.
    found = starved(replace(facts, device_ops=facts.device_ops.take(np.repeat(np.arange(len(facts.device_ops)), 30))))
    assert found.interval_ns == launch_interval_ns(facts) and intervals.length(found.held) == 0
    script = Script()
    for _ in range(6):
        script.idle(200_000.0)
        script.launch()
    found = starved(script.facts(tmp_path))
    assert intervals.length(found.launching) < 1_000_000 and intervals.length(found.held) > 5 * 199_000_000


def test_a_long_pause_of_every_step_is_not_nor_is_a_stop_inside_a_call(tmp_path: Path) -> None:
    found = starved(run(pause_us=5_000.0).facts(tmp_path))
    assert intervals.length(found.held) > 4 * 4_900_000 and intervals.length(found.launching) < 2_000_000
    found = starved(run(stop_us=7_000.0).facts(tmp_path))
    assert intervals.length(found.stalled) > 6_900_000 and intervals.length(found.held) == 0
    both = starved(run(pause_us=5_000.0, stop_us=7_000.0).facts(tmp_path))
    parts = (both.launching, both.stalled, both.held)
    assert intervals.length(intervals.merge(*parts)) == sum(map(intervals.length, parts))  # they are disjoint


MS = 1_000_000


def with_gaps(facts: RankFacts, *pieces: tuple[float, float, str]) -> RankFacts:
    """A rank whose steps hold these idle pieces alone (ms after the first step begins, cause)."""
    origin = int(facts.steps["start_ns"][0])
    start, end, cause = zip(*pieces, strict=True)
    start_ns, end_ns = (np.array([origin + int(at * MS) for at in bound]) for bound in (start, end))
    codes, next_op = np.array([CAUSE_CODE[each] for each in cause]), np.zeros(len(pieces), np.int64)
    gaps = GAPS.table({"start_ns": start_ns, "end_ns": end_ns, "cause": codes, "next_op": next_op})
    return replace(facts, gaps=gaps, silences=SPANS.empty())


def test_late_launches_count_where_a_call_began_the_stretch(labelled: Runs) -> None:
    facts = labelled("host.sync").job.ranks[0]
    steps = len(facts.steps)
    sync, launch, copy = "host_sync", "host_launch", "memcpy"
    after = with_gaps(facts, (1, 2, sync), (2, 4, launch), (6, 7, launch))
    assert idle_from_calls_us(after) == pytest.approx(3_000 / steps)
    origin = int(facts.steps["start_ns"][0])
    silent = SPANS.table({"start_ns": [origin + 3 * MS], "end_ns": [origin + 500 * MS]})
    assert idle_from_calls_us(replace(after, silences=silent)) == pytest.approx(2_000 / steps)
    assert idle_from_calls_us(with_gaps(facts, (1, 2, launch), (2, 3, sync))) == pytest.approx(1_000 / steps)
    allocating = with_gaps(facts, (1, 2, sync), (2, 2.005, copy), (2.005, 3.005, "allocator"), (3.005, 4.005, launch))
    assert idle_from_calls_us(allocating) == pytest.approx(2_000 / steps)
    assert idle_from_calls_us(with_gaps(facts, (1, 2, launch))) == 0.0
