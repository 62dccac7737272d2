"""The cost of launching: what every step has, and not what one slow step alone or an old profiler costs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, in_step, loaded
from labelled_runs import abstains, candidate, candidates, on_every_rank

ID = "host.launch_bound"


def run(folder: Path, slow_us: float, slow_steps: tuple[int, ...], cat: str = "cpu_op") -> Script:
    """Six steps of 40 launches, and kernels that keep the device busy but where each call is `slow_us` slower."""
    script = Script()
    for step in script.steps(6):
        for _ in range(40):
            script.launch(dur_us=20.0)
            script.host("aten::view", slow_us if step in slow_steps else 1.0, cat)
    return script


def test_a_host_that_is_slower_in_one_step_alone_is_not_launch_bound(tmp_path: Path) -> None:
    assert candidates(ID, loaded([run(tmp_path, 60.0, (3,))], tmp_path).measures) == []
    for slow in ((1, 4), (0, 2, 4), range(6)):  # every third, every second, every step
        assert candidate(ID, loaded([run(tmp_path, 60.0, tuple(slow))], tmp_path).measures).lost_us > 0


def test_a_recording_with_shapes_is_said_to_slow_the_host(tmp_path: Path) -> None:
    measures = loaded([run(tmp_path, 60.0, tuple(range(6)))], tmp_path).measures
    shaped = on_every_rank(measures, top={**measures.job.ranks[0].top, "record_shapes": 1})
    assert "record_shapes slows the host" in candidate(ID, shaped).evidence[1].text
    assert not any("slows the host" in seen.text for seen in candidate(ID, measures).evidence)


def test_what_an_old_profiler_costs_the_host_is_no_gain(tmp_path: Path) -> None:
    measures = loaded([run(tmp_path, 60.0, tuple(range(6)))], tmp_path).measures
    (facts,) = measures.job.ranks

    def recorded(operators: int) -> object:
        old = replace(facts, top={**facts.top, "categories": {"Operator": 1}})
        old = replace(old, counts={**facts.counts, "operators_per_step": operators})
        return replace(measures, job=replace(measures.job, ranks=(old,)))

    new, old = candidate(ID, measures), candidate(ID, recorded(80))
    assert new.ceiling_us - old.ceiling_us == pytest.approx(4.0 * 80) and "old profiler" in old.evidence[1].text
    assert "old profiler" in abstains(ID, recorded(600))


@pytest.mark.parametrize(("busy", "paces"), [((0.88, 0.96, 0.97, 0.98), True), ((0.8, 0.85, 0.96, 0.97), False)])
def test_waits_for_the_last_to_launch_are_launching_where_hosts_are_busy_all_the_time(
    tmp_path: Path, busy: tuple[float, ...], paces: bool
) -> None:
    """Only one device idles itself, the others wait for it: so do eight GPUs of a job that is bound by its hosts."""

    def work(script: Script, rank: int, step: int) -> None:
        for _ in range(40):
            script.launch(dur_us=60.0)
            script.idle(70.0 if rank == 0 else 45.0)

    measures = loaded(in_step(4, 5, work), tmp_path).measures
    host = replace(measures.host, time_us=measures.step_us * np.array(busy))
    found = candidates(ID, replace(measures, host=host, launching_us=measures.launching_us * [1, 0, 0, 0]))
    assert bool(found) == paces
