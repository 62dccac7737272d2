"""Volume too large for the link though it overlaps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured import on_hosts, with_sidecars, with_traffic
from labelled_runs import Labelled, abstains, candidate, fires, on_every_rank, run_of
from msgspec import structs

from ddprof.analyzers.execution.choose import CpuExecution
from ddprof.analyzers.job.efficiency import bus_bandwidth
from ddprof.findings import Basis, Candidate
from ddprof.sidecar import DeepSpeedSettings

ID = "comm.bandwidth_bound"


def test_blames_volume_and_tells_devices_alone_to_compress(faulty: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    said = fires(faulty, ID)
    assert any("compress" in f"{fix.setting} {fix.suggested} {fix.patch}" for fix in said.fixes)
    assert any(fix.applies == (("gradient_compression", "bf16"),) for fix in said.fixes)
    # Over gloo 16 bit gradients made a job 45 % slower.
    monkeypatch.setattr("ddprof.analyzers.rules.comm_bandwidth_bound.execution_of", lambda _: CpuExecution())
    (fix,) = fires(faulty, ID).fixes
    assert "compress" not in f"{fix.setting} {fix.suggested} {fix.patch}" and "no_sync" in str(fix.patch)


@pytest.mark.parametrize("dtype", ["BFloat16", "Half", "Float"])
def test_gradients_of_16_bits_are_not_to_be_compressed_to_16_bits(faulty: Labelled, dtype: str) -> None:
    ranks = []
    for facts in faulty.job.ranks:
        comms = facts.comms.replace(dtype=np.full(len(facts.comms), len(facts.strings)))
        ranks.append(replace(facts, strings=(*facts.strings, dtype), comms=comms))
    said = candidate(ID, run_of(ranks).measures)
    assert ("compression" in said.fixes[0].setting) == (dtype == "Float") != ("link" in said.fixes[0].setting)
    assert said.changes  # half the bytes, or a link twice as fast


def test_the_hook_of_ddp_is_offered_where_ddp_was_seen(faulty: Labelled) -> None:
    measures = faulty.measures
    others = on_every_rank(measures, strings=tuple(s.replace("Data", "Model") for s in measures.job.ranks[0].strings))
    deepspeed = DeepSpeedSettings(zero_stage=1)
    of_deepspeed = replace(others, settings=structs.replace(measures.settings, deepspeed=deepspeed))
    hook, plain, key = (candidate(ID, one).fixes[0] for one in (measures, others, of_deepspeed))
    assert "bf16_compress_hook" in str(hook.patch) and plain.patch is None and not plain.applies
    assert key.patch == '"communication_data_type": "bf16"' and not key.applies


def connected(
    run: Labelled, transports: dict[str, int], links: str = "SYS", hosts: int = 2, **environment: str
) -> Candidate:
    """The finding where capture saw how the ranks of one or two hosts are connected."""
    port = {"state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)"}
    topology = {"links": {"GPU0-GPU1": links, "GPU0-NIC0": "PIX"}, "infiniband": {"mlx5_0/1": port}}
    known = {"communication_environment": environment, "hardware": {"topology": topology}}
    measures = with_sidecars(run, {**known, "nccl": {"version": "2.27.3", "transports": transports}})
    return candidate(ID, on_hosts(measures, hosts))


def test_a_slow_way_beside_a_faster_one_comes_first(faulty: Labelled) -> None:
    said = connected(faulty, {"NET/Socket": 4, "P2P/CUMEM": 12}, NCCL_IB_DISABLE="1", NCCL_DEBUG="INFO")
    texts = [e.text for e in said.evidence]
    assert "NCCL 2.27.3 moves data by P2P/CUMEM (75 %), NET/Socket (25 %) of its channels" in texts
    assert "set in the job's environment: NCCL_IB_DISABLE=1" in texts
    assert "GPUs of one host are joined by PCIe and the link between CPU sockets" in texts
    fix = said.fixes[0]
    assert (fix.current, fix.patch) == ("NET/Socket (NCCL_IB_DISABLE=1)", "unset NCCL_IB_DISABLE")
    assert "mlx5_0/1 is active (400 Gb/sec (4X NDR))" in fix.suggested and "compress" in said.fixes[1].setting
    (fix, _) = connected(faulty, {"SHM": 16}, links="NV18").fixes
    assert "NVLink" in fix.suggested
    assert len(connected(faulty, {"SHM": 16}, links="PHB").fixes) == 1  # nothing faster is there


@pytest.mark.parametrize(
    ("environment", "patch"),
    [({"NCCL_SHM_DISABLE": "1"}, "unset NCCL_SHM_DISABLE"), ({}, "docker run --ipc=host")],
)
def test_sockets_within_a_host_come_first(faulty: Labelled, environment: dict[str, str], patch: str) -> None:
    fix = connected(faulty, {"NET/Socket": 4}, hosts=1, **environment).fixes[0]
    assert "on one host" in fix.suggested and str(fix.patch).startswith(patch)


@pytest.mark.parametrize("sidecar", [{}, {"nccl": None, "hardware": {"topology": 3}}, {"nccl": {"transports": []}}])
def test_without_captured_connections_only_the_bandwidth_is_said(faulty: Labelled, sidecar: dict[str, Any]) -> None:
    measures = with_sidecars(faulty, sidecar)
    said = candidate(ID, measures)
    volume, reached = [e.text for e in said.evidence if e.start_us is None]  # the example of a transfer has a time
    ((op, gbps),) = bus_bandwidth(measures).items()
    assert reached.startswith(f"{op} reaches a bus bandwidth of {gbps:.3g} GB/s")
    assert "hidden" in volume and len(said.fixes) == 1


def test_missing_ranks_may_be_waited_for_unless_bytes_explain_every_call(faulty: Labelled) -> None:
    for measures in (faulty.only(0, 1), faulty.only(2)):
        assert candidate(ID, measures).basis is Basis.DEDUCED
    measures = faulty.only(0, 1)
    (times_us,) = (each.times_us for each in measures.comm.traffic)
    late_us = times_us + 0.3 * float(np.median(times_us))  # by as much at every call
    assert "2 missing ranks" in abstains(ID, with_traffic(measures, times_us=late_us, is_all_transfer=False))
    measures = faulty.only(0, 1, 2)
    assert candidate(ID, measures)
    waited_us = np.where(np.arange(len(times_us)) % 3, 2.5, 1.0) * measures.comm.traffic[0].times_us
    assert "1 missing rank" in abstains(ID, with_traffic(measures, times_us=waited_us, is_all_transfer=False))


@pytest.mark.parametrize("latency", [0.0, 0.25])
def test_half_the_bytes_leave_the_latency_of_each_call(faulty: Labelled, latency: float) -> None:
    """Messages of 8 to 24 MiB, a byte a ns, and so much of a call's time that bytes do not explain."""
    sizes = np.tile(np.array([8.0, 16.0, 24.0]) * 2**20, 8)
    each_us = sizes / 1e3 + latency / (1 - latency) * float(sizes.mean()) / 1e3
    said = candidate(ID, with_traffic(faulty.measures, sizes_bytes=sizes, times_us=each_us))
    assert said.changes[0].values[0] == pytest.approx(1 - 0.5 * (1 - latency), abs=0.01)
