"""Numbers behind the charts agree with the ledger, and hold only what lies inside the steps."""

from dataclasses import replace

import numpy as np
import pytest

from ddprof.analyzers.job.model import JobFacts
from ddprof.dashboard.exhibits.data import exhibits as data_exhibits
from ddprof.dashboard.exhibits.host import exhibits as host_exhibits
from ddprof.dashboard.exhibits.parts.numbers import group_times, lateness_us, readable_times
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.report.model import HealthItem
from tests.dashboard.browsing import Sample
from tests.dashboard.made import alone, with_job


def _without_last_step(job: JobFacts) -> JobFacts:
    """The job as if the mark of its last step were missing: its communication lies outside every step."""
    return replace(job, ranks=tuple(replace(f, steps=f.steps.take(np.arange(len(f.steps) - 1))) for f in job.ranks))


def test_groups_hold_the_traffic_of_the_steps(straggler: OpenRun) -> None:
    groups, traffic = group_times(straggler.job), straggler.measures.comm.traffic
    ranks = len(straggler.job.ranks)  # a rank is in several groups, and each group has the mean over its members
    assert sum(g.transfer_us * g.size for g in groups) / ranks == pytest.approx(sum(t.transfer_us for t in traffic))
    assert sum(g.calls * g.size for g in groups) / ranks == pytest.approx(sum(t.count for t in traffic))


def test_communication_outside_the_steps_is_in_no_group_and_makes_nobody_late(straggler: OpenRun) -> None:
    job, less = straggler.job, _without_last_step(straggler.job)
    whole, cut = group_times(job)[0], group_times(less)[0]
    assert cut.calls == pytest.approx(whole.calls)  # per step, and there is one step less
    assert cut.transfer_us == pytest.approx(whole.transfer_us, rel=0.1)
    np.testing.assert_allclose(lateness_us(less), lateness_us(job)[:, :-1], equal_nan=True)


def test_of_two_ranks_each_is_held_against_the_other(sample: Sample) -> None:
    job = sample("full_memory").job
    members, late_us = job.members, lateness_us(job)
    start_ns = members["start_ns"] - np.array([job.clock.offset_ns(position) for position in (0, 1)])[members["rank"]]
    start_us = (start_ns - start_ns.min()) / 1e3  # unix nanoseconds do not fit a float
    apart_us = np.zeros(len(job.instances))
    np.add.at(apart_us, members["instance"], np.where(members["rank"] == 0, start_us, -start_us))
    assert late_us[0].mean() == pytest.approx(apart_us.mean(), rel=1e-6)  # every step has as many collectives
    np.testing.assert_allclose(late_us[0], -late_us[1])


def test_short_times_are_drawn_in_microseconds() -> None:
    shown, unit, critical = readable_times(np.array([[0.0647, np.nan], [-0.002, 0.0]]), 50.0)
    assert unit == "µs" and shown[0, 0] == pytest.approx(64.7)
    assert critical == 5000.0  # us: a tenth of the step, in the unit of the picture
    assert readable_times(np.array([[0.0, 12.5]]), 50.0)[1:] == ("ms", 5.0)
    assert readable_times(np.array([[np.nan]]), 50.0)[1] == "µs"


def test_a_defect_of_many_ranks_is_one_line_and_a_table_of_zeros_is_not_shown(straggler: OpenRun) -> None:
    items = [HealthItem("the trace ends early", "its last step is left out", "warning", rank) for rank in range(4)]
    report = replace(straggler.report, health=(*items, HealthItem("no settings", "none are advised", "info")))
    health = next(e for e in data_exhibits(alone(OpenRun(report, straggler.loaded))) if e.id == "health")
    told = [("warning", "ranks 0-3", "the trace ends early"), ("info", "the run", "no settings")]
    assert [row[:3] for row in health.sheet.rows] == told and "conclusions: 1; remarks: 1" in health.reading
    nothing = np.empty(0, np.int64)
    ranks = tuple(replace(f, gaps=f.gaps.take(nothing)) for f in straggler.job.ranks)
    idle = with_job(straggler, ranks=ranks, ledger=straggler.job.ledger.take(nothing))
    loader = next(e for e in host_exhibits(alone(idle)) if e.id == "loader")
    assert loader.sheet.rows == () and loader.reading.startswith("No rank")


def test_steps_have_the_number_of_every_other_page(straggler: OpenRun) -> None:
    lane = next(lane for lane in straggler.timeline.lanes if lane.kind == "steps")
    marks = straggler.job.ranks[0].steps["index"].tolist()
    names = [name for name in straggler.timeline.names if name.startswith("step ")]
    assert lane.slices == len(marks)
    assert names == [f"step {i}" + (f" (marked {mark})" if i != mark else "") for i, mark in enumerate(marks)]
