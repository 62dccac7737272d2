"""Devices that starve: the cost of launching, stops of the host, and what else held it for long."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from kineto_run import Script

from ddprof import intervals
from ddprof.analyzers.job.idle_before_launches import launch_interval_ns, starved


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
    ops = facts.device_ops.take(np.repeat(np.arange(len(facts.device_ops)), 30))
    found = starved(replace(facts, device_ops=ops))
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
    assert intervals.length(both.every) == sum(map(intervals.length, parts))  # they are disjoint
