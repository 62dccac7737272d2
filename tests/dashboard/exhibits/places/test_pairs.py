"""Rank against rank on the page Communication: hosts as blocks, host by host above what can be read, stated rates."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from ddprof.analyzers.job.traffic.matrix import Pairs
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.exhibits.places import pairs
from ddprof.dashboard.figures.charts import Heat
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.hardware import device_link
from ddprof.sidecar import HostHardware, Topology
from tests.dashboard.changed import with_job
from tests.dashboard.exhibits.places.test_by_host import on_hosts

PAIRS = Pairs(*(np.ones((2, 2)) for _ in range(4)))


def shown(view: View) -> dict[str, Exhibit]:
    return {exhibit.id: exhibit for exhibit in pairs.pair_exhibits(view)}


def heat_of(exhibit: Exhibit) -> Heat:
    assert isinstance(exhibit.chart, Heat)
    return exhibit.chart


def test_hosts_are_blocks_or_cells_of_many_ranks(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = heat_of(shown(on_hosts(straggler, 4))["waits"])
    assert chart.lines == ["node0", *(f"rank {n}" for n in range(4)), "node1", *(f"rank {n}" for n in range(4, 8))]
    assert len(chart.columns) == len(chart.lines) == len(chart.values)
    assert np.isnan(chart.values[[0, 5]]).all() and np.isnan(chart.values[:, [0, 5]]).all()
    monkeypatch.setattr(pairs, "MOST_RANKS", 7)
    chosen = on_hosts(straggler, 2)
    assert heat_of(shown(chosen)["waits"]).lines == ["node0", "node1", "node2", "node3"]
    assert heat_of(shown(replace(chosen, query={"ranks": "0-3"}))["waits"]).lines[1] == "rank 0"
    nowhere = replace(straggler, report=replace(straggler.report, run=replace(straggler.report.run, hosts={})))
    (only,) = pairs.pair_exhibits(View(nowhere, {}, (nowhere,)))
    assert only.chart is None and "choose up to 7 ranks" in only.reading


def test_what_a_cell_is_is_said_of_collectives_and_of_messages(straggler: OpenRun, pipeline: OpenRun) -> None:
    reading = shown(View(straggler, {}, (straggler,)))["shared"].reading
    assert "what goes from the one to the other depends on the algorithm, which is not recorded" in reading
    assert "sent" not in shown(View(straggler, {}, (straggler,)))  # no messages, no matrix of them
    exhibit = shown(View(pipeline, {}, (pipeline,)))["sent"]
    assert "Lines send, columns receive" in exhibit.reading and heat_of(exhibit).is_amount


def test_a_stated_rate_is_the_scale_where_the_table_knows_every_link(straggler: OpenRun) -> None:
    unknown = shown(View(straggler, {}, (straggler,)))["rates"]
    assert "below the fastest pair" in unknown.reading and "is not recorded" in unknown.reading
    hardware = HostHardware(topology=Topology(links={"GPU0-GPU1": "NV18"}))
    job = straggler.job
    ranks = []
    for facts in job.ranks:
        device, identity = replace(facts.device, name="NVIDIA H100 80GB HBM3"), replace(facts.identity, host="node0")
        sidecar = msgspec.structs.replace(facts.sidecar, hardware=hardware)
        ranks.append(replace(facts, sidecar=sidecar, device=device, identity=identity))
    joined = with_job(straggler, ranks=tuple(ranks))
    stated = shown(View(joined, {}, (joined,)))["rates"]
    assert "below the 450 GB/s of NVLink in one direction" in stated.reading
    assert heat_of(stated).unit == "% below 450 GB/s"
    assert device_link("NVIDIA A100-SXM4-80GB") == 300e9
    assert device_link("NVIDIA H100 PCIe") is None and device_link("AMD Instinct MI300X") is None
    assert device_link(None) is None


def test_rates_known_within_hosts_alone_are_told_of_their_ranks(
    straggler: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "MOST_RANKS", 3)
    view = on_hosts(straggler, 4)
    for slow_gbps, said in ((50.0, "Ranks of node1 are slowest, 50 GB/s"), (99.0, "All pairs are alike to 5.0 %")):
        rate_gbps = np.array([[100.0, np.nan], [np.nan, slow_gbps]])
        monkeypatch.setattr(pairs, "pairs_of", lambda *_, rate=rate_gbps: replace(PAIRS, rate_gbps=rate))
        assert shown(view)["rates"].reading.startswith(said)
