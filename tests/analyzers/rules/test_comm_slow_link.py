"""Slow groups or pairs have these ranks in common; with one group and one pair nothing can be compared."""

from typing import Any

import pytest
from captured import with_sidecars
from labelled_runs import Labelled, Runs, abstains, candidate, candidates, fires

ID = "comm.slow_link"


@pytest.mark.parametrize("name", [ID, "slow link of a mesh, without arguments"])
def test_names_the_ranks_on_the_slow_link_once_for_all_their_groups(labelled: Runs, name: str) -> None:
    run = labelled(name)
    said = candidate(ID, run.measures)
    assert list(said.ranks) in [sorted(ranks) for ranks in run.fault["acceptable_culprits"]]
    assert said.evidence and said.fixes and len(said.changes) == 2  # its pairs, and the group of its replicas
    gain_us = run.report.steps.wall_us - run.pricer.step_us(said.changes)
    assert gain_us == pytest.approx(run.fault["recoverable_us"], abs=0.05 * run.report.steps.wall_us)


def test_one_group_and_one_link_have_nothing_to_be_compared_with(labelled: Runs) -> None:
    assert "one process group" in abstains(ID, labelled("clean.ddp").measures)
    assert abstains(ID, labelled("clean.pp").only(0)) and abstains(ID, labelled("pipeline.imbalance").measures)


@pytest.mark.parametrize("name", ["slow link between stages", "slow link of one replica, without arguments"])
def test_names_the_two_ranks_whose_messages_are_slow(labelled: Runs, name: str) -> None:
    run = labelled(name)
    said = fires(run, ID, *run.fault["culprit_ranks"])
    assert f"between ranks {said.ranks[0]} and {said.ranks[1]} take" in said.summary
    first = next(f for f in run.report.ranked_findings() if f.id != "pipeline.bubble")
    assert first.id == ID
    within_us = 0.05 * run.report.steps.wall_us
    assert first.recoverable_us.value == pytest.approx(run.fault["recoverable_us"], abs=within_us)


def host(rate: str, state: str = "ACTIVE", width: int = 16, transport: str = "NET/IB") -> dict[str, Any]:
    """The sidecar of a rank on a host with one card."""
    gpu = {"address": "0000:17:00.0", "pcie_width": width, "pcie_width_max": 16}
    topology = {"infiniband": {"mlx5_0/1": {"state": state, "rate": rate}}, "gpus": [gpu]}
    device = {"pci_address": "0000:17:00.0"}
    return {"device": device, "hardware": {"topology": topology}, "nccl": {"transports": {transport: 8}}}


GOOD, BAD = host("400 Gb/sec (4X NDR)"), host("100 Gb/sec (4X EDR)", width=8, transport="NET/Socket")
OF_TRANSPORT = "NCCL moves its data by NET/Socket, its peers' by NET/IB"
OF_RATE = "port mlx5_0/1 of its host runs at 100 Gbit/s, its peers' at 400 Gbit/s"
OF_STATE = "port mlx5_0/1 of its host is DOWN, that of its peers' hosts is active"


@pytest.mark.parametrize(
    ("slow", "peer", "told"),
    [
        (BAD, GOOD, [OF_TRANSPORT, OF_RATE, "its GPU has 8 of 16 PCIe lanes"]),
        (host("400 Gb/sec (4X NDR)", state="DOWN"), GOOD, [OF_STATE]),
        *((slow, peer, []) for slow, peer in ((GOOD, GOOD), (host("?"), host("")), ({}, GOOD), (GOOD, {}))),
    ],
    ids=["worse", "down", "equal", "of unknown rates", "its own is not known", "its peers' are not known"],
)
def test_says_what_differs_there(faulty: Labelled, slow: dict[str, Any], peer: dict[str, Any], told: list[str]) -> None:
    culprits = candidates(ID, faulty.measures)[0].ranks
    sidecars = [slow if rank in culprits else peer for rank in faulty.job.rank_ids]
    evidence = candidates(ID, with_sidecars(faulty, *sidecars))[0].evidence
    untimed = [e.text for e in evidence if e.start_us is None]  # an example of a transfer has a time
    assert [text for text in untimed if "per message against" not in text] == told
