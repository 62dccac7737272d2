"""Hosts and pairs of ranks: which host is suspected, hosts as blocks of a picture, rates that the hardware states."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from ddprof.analyzers.job.charged import waited_for_us
from ddprof.analyzers.job.traffic.matrix import Pairs
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.exhibits.places import pairs
from ddprof.dashboard.exhibits.places.by_host import by_host
from ddprof.dashboard.figures.charts import Heat
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.hardware import device_link
from ddprof.sidecar import HostHardware, Topology
from tests.dashboard.made import alone, on_hosts, with_job, with_run

PAIRS = Pairs(*(np.ones((2, 2)) for _ in range(4)))
WITHIN_HOSTS = [(50.0, "Ranks of node1 are slowest, 50 GB/s"), (99.0, "All pairs are alike to 5.0 %")]


def shown(opened: OpenRun, **query: str) -> dict[str, Exhibit]:
    return {exhibit.id: exhibit for exhibit in pairs.pair_exhibits(alone(opened, **query))}


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
    monkeypatch.setattr(pairs, "MOST_RANKS", 7)
    by_two = on_hosts(straggler, 2)
    assert heat_of(shown(by_two)["waits"]).lines == ["node0", "node1", "node2", "node3"]
    assert heat_of(shown(by_two, ranks="0-3")["waits"]).lines[1] == "rank 0"
    (only,) = shown(with_run(straggler, hosts={})).values()
    assert only.chart is None and "choose up to 7 ranks" in only.reading


def test_what_a_cell_is_is_said_of_collectives_and_of_messages(straggler: OpenRun, pipeline: OpenRun) -> None:
    reading = shown(straggler)["shared"].reading
    assert "what goes from the one to the other depends on the algorithm, which is not recorded" in reading
    assert "sent" not in shown(straggler)  # no messages, no matrix of them
    exhibit = shown(pipeline)["sent"]
    assert "Lines send, columns receive" in exhibit.reading and heat_of(exhibit).is_amount


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
    monkeypatch.setattr(pairs, "MOST_RANKS", 3)
    monkeypatch.setattr(pairs, "pairs_of", lambda *_: replace(PAIRS, rate_gbps=rate_gbps))
    assert shown(on_hosts(straggler, 4))["rates"].reading.startswith(said)
