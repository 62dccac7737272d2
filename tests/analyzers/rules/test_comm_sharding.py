"""Sharding that is exposed: less of it, as the framework of the job spells it, and none that the job cannot have."""

from dataclasses import replace
from typing import Any

import pytest
from captured import on_hosts, with_sidecars
from labelled_runs import Labelled, abstains, candidate

from ddprof.analyzers.rules.evidence.sharded.unit_costs import unit_costs

ID = "comm.sharding"
FSDP_1, FSDP_2 = ({"fsdp": {"version": version}} for version in (1, 2))
ZERO_3 = {"deepspeed": {"zero_stage": 3}}


@pytest.mark.parametrize(
    ("sidecar", "kept", "hybrid"),
    [
        (FSDP_1, "ShardingStrategy.SHARD_GRAD_OP", "ShardingStrategy.HYBRID_SHARD"),
        (FSDP_2, "fully_shard(module, reshard_after_forward=False)", "init_device_mesh("),
        (ZERO_3, '"stage": 2', ""),
    ],
    ids=["FSDP 1", "FSDP 2", "ZeRO-3"],
)
def test_each_framework_gets_its_own_call_and_hosts_are_needed_to_replicate_across(
    faulty: Labelled, sidecar: dict[str, Any], kept: str, hybrid: str
) -> None:
    measures = with_sidecars(faulty, sidecar)
    (fix,) = candidate(ID, measures).fixes
    assert kept in str(fix.patch)
    patches = [str(fix.patch) for fix in candidate(ID, on_hosts(measures, 2)).fixes]
    assert len(patches) == (2 if hybrid else 1) and hybrid in patches[-1]


def test_one_host_that_gathers_once_has_no_less_sharding(faulty: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = unit_costs(faulty.measures)
    assert costs is not None and costs.gathers_again
    once = replace(costs, gathers_again=False)
    monkeypatch.setattr("ddprof.analyzers.rules.comm_sharding.unit_costs", lambda _: once)
    assert "no setting moves less" in abstains(ID, faulty.measures)
    (fix,) = candidate(ID, on_hosts(faulty.measures, 2)).fixes
    assert fix.setting == "hybrid sharding"
