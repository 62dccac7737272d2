"""Volume too large for the link though it overlaps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured import with_sidecars
from labelled_runs import Runs, abstains, candidate, fires

from ddprof.analyzers.execution.cpu import CpuExecution
from ddprof.analyzers.job.efficiency import bus_bandwidth
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.findings import Basis, Candidate
from ddprof.tables import Array

ID = "comm.bandwidth_bound"


def test_blames_the_volume_and_tells_devices_alone_to_compress(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    said = fires(labelled(ID), ID)
    assert any("compress" in f"{fix.setting} {fix.suggested} {fix.patch}" for fix in said.fixes)
    assert any(fix.applies == (("gradient_compression", "bf16"),) for fix in said.fixes)
    # Over gloo 16 bit gradients made a job 45 % slower.
    monkeypatch.setattr("ddprof.analyzers.rules.comm_bandwidth_bound.execution_of", lambda _: CpuExecution())
    (fix,) = fires(labelled(ID), ID).fixes
    assert "compress" not in f"{fix.setting} {fix.suggested} {fix.patch}" and "no_sync" in str(fix.patch)


def connected(labelled: Runs, transports: dict[str, int], links: str = "SYS", **environment: str) -> Candidate:
    """The finding where capture saw how the ranks are connected."""
    port = {"state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)"}
    topology = {"links": {"GPU0-GPU1": links, "GPU0-NIC0": "PIX"}, "infiniband": {"mlx5_0/1": port}}
    known = {"communication_environment": environment, "hardware": {"topology": topology}}
    sidecar = {**known, "nccl": {"version": "2.27.3", "transports": transports}}
    return candidate(ID, with_sidecars(labelled(ID), sidecar))


def test_a_slow_way_beside_a_faster_one_comes_first(labelled: Runs) -> None:
    said = connected(labelled, {"NET/Socket": 4, "P2P/CUMEM": 12}, NCCL_IB_DISABLE="1", NCCL_DEBUG="INFO")
    texts = [e.text for e in said.evidence]
    assert "NCCL 2.27.3 moves data by P2P/CUMEM (75 %), NET/Socket (25 %) of its channels" in texts
    assert "set in the job's environment: NCCL_IB_DISABLE=1" in texts
    assert "GPUs of one host are joined by PCIe and the link between CPU sockets" in texts
    fix = said.fixes[0]
    assert (fix.current, fix.patch) == ("NET/Socket (NCCL_IB_DISABLE=1)", "unset NCCL_IB_DISABLE")
    assert "mlx5_0/1 is active (400 Gb/sec (4X NDR))" in fix.suggested
    assert "compress" in said.fixes[1].setting
    (fix, _) = connected(labelled, {"SHM": 16}, links="NV18").fixes
    assert "NVLink" in fix.suggested
    assert len(connected(labelled, {"SHM": 16}, links="PHB").fixes) == 1  # nothing faster is there


@pytest.mark.parametrize("sidecar", [{}, {"nccl": None, "hardware": {"topology": 3}}, {"nccl": {"transports": []}}])
def test_nothing_is_said_of_connections_that_were_not_captured(labelled: Runs, sidecar: dict[str, Any]) -> None:
    said = candidate(ID, with_sidecars(labelled(ID), sidecar))
    volume, reached = [e.text for e in said.evidence if e.start_us is None]  # the example of a transfer has a time
    assert "hidden" in volume and "GB/s" in reached and len(said.fixes) == 1


def test_the_bandwidth_that_is_reached_stands_beside_that_of_the_link(labelled: Runs) -> None:
    measures = with_sidecars(labelled(ID), {})
    (words,) = [e.text for e in candidate(ID, measures).evidence if "GB/s" in e.text]
    ((op, gbps),) = bus_bandwidth(measures).items()
    assert words.startswith(f"{op} reaches a bus bandwidth of {gbps:.3g} GB/s")


def with_times(measures: Measures, change: Callable[[Traffic], Array]) -> Measures:
    """The measures with other times for each message."""
    traffic = tuple(replace(t, times_us=change(t)) for t in measures.comm.traffic)
    return replace(measures, comm=replace(measures.comm, traffic=traffic))


def test_missing_ranks_may_be_waited_for_unless_bytes_explain_every_call(labelled: Runs) -> None:
    for measures in (labelled(ID).only(0, 1), labelled(ID).only(2)):
        assert candidate(ID, measures).basis is Basis.DEDUCED
    measures = labelled(ID).only(0, 1)
    late = with_times(measures, lambda t: t.times_us + 0.3 * float(np.median(t.times_us)))  # by as much at every call
    assert "2 missing ranks" in abstains(ID, late)
    measures = labelled(ID).only(0, 1, 2)
    assert candidate(ID, measures)
    waited = with_times(measures, lambda t: np.where(np.arange(len(t.times_us)) % 3, 2.5, 1.0) * t.times_us)
    assert "1 missing rank" in abstains(ID, waited)
