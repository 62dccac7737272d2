"""Step dots of the Overview, the peak of Memory, one step of Pipeline; hosts and pairs of ranks."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from ddprof.analyzers.job.charged import waited_for_us
from ddprof.analyzers.job.traffic.matrix import Pairs
from ddprof.causes import CAUSE_CODE
from ddprof.dashboard.exhibits import memory, overview, places
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.exhibits.parts.numbers import causes_by_step_us, rank_steps_us
from ddprof.dashboard.exhibits.pipeline import stage_schedule
from ddprof.dashboard.exhibits.places import by_host
from ddprof.dashboard.figures.charts import Dots, Heat, Stacked, StageChart
from ddprof.dashboard.figures.plotly.points import spread
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.hardware import device_link
from ddprof.report.model import Report
from ddprof.sidecar import HostHardware, Topology
from tests.dashboard.browsing import Sample
from tests.dashboard.made import alone, on_hosts, with_job, with_run

PAIRS = Pairs(*(np.ones((2, 2)) for _ in range(4)))
WITHIN_HOSTS = [(50.0, "Ranks of node1 are slowest, 50 GB/s"), (99.0, "All pairs are within 5.0 %")]


def _shown(opened: OpenRun, **query: str) -> tuple[Exhibit, Dots]:
    exhibit = overview.step_dots(alone(opened, **query))
    assert exhibit is not None and isinstance(exhibit.chart, Dots)
    return exhibit, exhibit.chart


def _slowed(opened: OpenRun, position: int, step: int, factor: float) -> OpenRun:
    """The run with one step of one rank `factor` times as long."""
    ranks = list(opened.job.ranks)
    steps = ranks[position].steps
    end_ns = steps["end_ns"].copy()
    end_ns[step] += round((end_ns[step] - steps["start_ns"][step]) * (factor - 1))
    ranks[position] = replace(ranks[position], steps=steps.replace(end_ns=end_ns))
    return with_job(opened, ranks=tuple(ranks))


def test_every_rank_and_step_has_its_dot_and_filters_leave_theirs(straggler: OpenRun) -> None:
    exhibit, dots = _shown(straggler)
    job, times = straggler.job, rank_steps_us(straggler.job)
    assert dots.ranks and len(dots.values) == len(job.ranks) * straggler.step_count == len(exhibit.sheet.rows)
    for step, rank, value in zip(dots.steps, dots.ranks, dots.values, strict=True):
        assert value == pytest.approx(times[job.rank_ids.index(rank), step] / 1e3)
    assert dots.outliers == [] and "stand out" not in exhibit.reading
    _, dots = _shown(straggler, ranks="1,3", steps="0")
    assert dots.steps == [0, 0] and dots.ranks == [1, 3]


def test_what_stands_out_is_named_and_of_too_many_stays(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    rank, slowed = straggler.job.rank_ids[2], _slowed(straggler, 2, 1, 1.6)
    exhibit, dots = _shown(slowed)
    assert dots.ranks is not None and [(dots.ranks[i], dots.steps[i]) for i in dots.outliers] == [(rank, 1)]
    assert f"farthest rank {rank} in step 1" in exhibit.reading
    monkeypatch.setattr(overview, "MAX_DOTS", 4)
    exhibit, dots = _shown(slowed)
    assert len(dots.values) <= 4 and len(dots.outliers) == 1
    assert dots.values[dots.outliers[0]] == max(row[2] for row in exhibit.sheet.rows)
    assert f"of {len(exhibit.sheet.rows)} dots" in exhibit.reading


def test_a_saved_report_has_the_jobs_steps_and_ranks_stand_side_by_side(straggler_report: Report) -> None:
    exhibit, dots = _shown(OpenRun(straggler_report))
    assert dots.ranks is None and dots.values == [99.0, 101.0, 100.5, 99.5]
    assert "The median of 4 steps is 100 ms" in exhibit.reading
    places = spread(Dots([0, 0, 0, 1, 1, 1], [1.0] * 6, 1.0, [4, 5, 9, 4, 5, 9]))
    assert list(places) == pytest.approx([-0.35, 0.0, 0.35, 0.65, 1.0, 1.35])


def test_the_peak_is_what_was_held_and_what_phases_added_where_that_is_known(sample: Sample) -> None:
    full = sample("full_memory")
    exhibit = memory.memory_peak(alone(full))
    rows = exhibit.sheet.rows
    assert rows and all(row[4] + sum(row[5:]) == row[3] for row in rows) and isinstance(exhibit.chart, Stacked)
    summed = np.sum([part.values for part in exhibit.chart.parts], axis=0)
    assert summed == pytest.approx([row[3] / 2**30 for row in rows])
    assert "parameters, gradients and states of the optimizer are not told apart" in exhibit.reading
    assert "of the device is left" in next(iter(memory.exhibits(alone(full)))).reading
    ranks = tuple(replace(facts, memory={**facts.memory, "curve": {}}) for facts in full.job.ranks)
    exhibit = memory.memory_peak(alone(with_job(full, ranks=ranks)))
    assert exhibit.chart is None and exhibit.reading.startswith("Not known")


def test_the_table_has_the_ledgers_bubble_the_picture_every_pass_and_what_is_unsure_is_said(pipeline: OpenRun) -> None:
    recorded = pipeline.job.pipeline
    assert recorded is not None
    exhibit = stage_schedule(alone(pipeline, steps="1"), recorded)
    bubble = causes_by_step_us(pipeline.job)[:, 1, CAUSE_CODE["pipeline_bubble"]] / 1e3
    of_rank = dict(zip(pipeline.job.rank_ids, bubble.tolist(), strict=True))
    column = exhibit.sheet.columns.index("bubble (ms)")
    assert [row[column] for row in exhibit.sheet.rows] == pytest.approx([of_rank[row[1]] for row in exhibit.sheet.rows])
    chart = exhibit.chart
    assert isinstance(chart, StageChart) and len(chart.lines) == len(recorded.stages)
    for line in range(len(chart.lines)):
        marks = sorted(int(block.mark) for block in chart.blocks if block.line == line and block.mark)
        assert marks == sorted([*range(1, recorded.microbatches * recorded.interleave + 1)] * 2)
    assert exhibit.reading.startswith("Step 1 ")
    exhibit = stage_schedule(alone(pipeline), replace(recorded, unsure="records are missing"))
    assert exhibit.reading.endswith("How many microbatches there are is unsure: records are missing.")


def shown(opened: OpenRun, **query: str) -> dict[str, Exhibit]:
    return {exhibit.id: exhibit for exhibit in places.pair_exhibits(alone(opened, **query))}


def heat_of(exhibit: Exhibit) -> Heat:
    assert isinstance(exhibit.chart, Heat)
    return exhibit.chart


def test_a_host_is_suspected_where_all_of_its_ranks_are_named_and_there_are_others(straggler: OpenRun) -> None:
    two, four = (by_host(alone(on_hosts(straggler, per_host))) for per_host in (2, 4))  # ranks 2 and 3 are slow
    assert two is not None and two.reading.startswith("node1 (ranks 2, 3)")
    assert "names all of its ranks: look at the host" in two.reading
    by_rank = waited_for_us(straggler.job).sum(axis=1) / 1e3
    assert [row[-1] for row in two.sheet.rows] == pytest.approx(by_rank.reshape(-1, 2).sum(axis=1))
    assert four is not None and "names ranks 2, 3 of its 4: look at that device or process first" in four.reading
    assert by_host(alone(on_hosts(straggler, 8))) is None


def test_hosts_are_blocks_or_cells_of_many_ranks(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = heat_of(shown(on_hosts(straggler, 4))["waits"])
    assert chart.lines == ["node0", *(f"rank {n}" for n in range(4)), "node1", *(f"rank {n}" for n in range(4, 8))]
    assert len(chart.columns) == len(chart.lines) == len(chart.values)
    assert np.isnan(chart.values[[0, 5]]).all() and np.isnan(chart.values[:, [0, 5]]).all()
    monkeypatch.setattr(places, "MOST_RANKS", 7)
    by_two = on_hosts(straggler, 2)
    assert heat_of(shown(by_two)["waits"]).lines == ["node0", "node1", "node2", "node3"]
    assert heat_of(shown(by_two, ranks="0-3")["waits"]).lines[1] == "rank 0"
    (only,) = shown(with_run(straggler, hosts={})).values()
    assert only.chart is None and "choose up to 7 ranks" in only.reading


def test_what_a_cell_is_is_said_of_collectives_and_of_messages(straggler: OpenRun, pipeline: OpenRun) -> None:
    reading = shown(straggler)["shared"].reading
    assert "not the bytes sent from one to the other" in reading
    assert "sent" not in shown(straggler)  # no messages, no matrix of them
    exhibit = shown(pipeline)["sent"]
    assert "Rows send, columns receive" in exhibit.reading and heat_of(exhibit).is_amount


def test_a_stated_rate_is_the_scale_where_the_table_knows_every_link(straggler: OpenRun) -> None:
    unknown = shown(straggler)["rates"]
    assert "below the fastest pair" in unknown.reading and "is not recorded" in unknown.reading
    hardware = HostHardware(topology=Topology(links={"GPU0-GPU1": "NV18"}))
    ranks = []
    for facts in straggler.job.ranks:
        device, identity = replace(facts.device, name="NVIDIA H100 80GB HBM3"), replace(facts.identity, host="node0")
        sidecar = msgspec.structs.replace(facts.sidecar, hardware=hardware)
        ranks.append(replace(facts, sidecar=sidecar, device=device, identity=identity))
    stated = shown(with_job(straggler, ranks=tuple(ranks)))["rates"]
    assert "below the 450 GB/s of NVLink in one direction" in stated.reading
    assert heat_of(stated).unit == "% below 450 GB/s"
    assert device_link("NVIDIA A100-SXM4-80GB") == 300e9
    assert [device_link(name) for name in ("NVIDIA H100 PCIe", "AMD Instinct MI300X", None)] == [None] * 3


@pytest.mark.parametrize(("slow_gbps", "said"), WITHIN_HOSTS, ids=["one host is slow", "hosts are alike"])
def test_rates_known_within_hosts_alone_are_told_of_their_ranks(
    straggler: OpenRun, monkeypatch: pytest.MonkeyPatch, slow_gbps: float, said: str
) -> None:
    rate_gbps = np.array([[100.0, np.nan], [np.nan, slow_gbps]])
    monkeypatch.setattr(places, "MOST_RANKS", 3)
    monkeypatch.setattr(places, "pairs_of", lambda *_: replace(PAIRS, rate_gbps=rate_gbps))
    assert shown(on_hosts(straggler, 4))["rates"].reading.startswith(said)
