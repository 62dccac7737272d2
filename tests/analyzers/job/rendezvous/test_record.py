"""Inferred rendezvous in the facts: as communication, marked as inferred, with sums that stay exact."""

import numpy as np
import pytest
from labelled_runs import run_of
from meeting_hosts import LAYERS, STEPS, facts_of, longer_kernels, train

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.names import INFERRED
from ddprof.causes import CAUSE_CODE
from ddprof.intervals import intersect, length, union

LATE_US = 1_500.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return run_of(facts_of(train(4, longer_kernels(1, LATE_US)), tmp_path_factory.mktemp("run")))


def test_waiting_is_booked_once_and_charged_to_what_made_the_rank_late(run: LoadedRun) -> None:
    for rank, causes in run.report.ledger.per_rank.items():
        parts = {cause: us for cause, us in causes.items() if cause != "wall_us"}
        assert abs(sum(parts.values()) - causes["wall_us"]) < 0.001 * causes["wall_us"]
        waited = parts["comm_wait"]
        assert waited < 60.0 if rank == 1 else abs(waited - LATE_US) < 0.1 * LATE_US, (rank, waited)
        assert parts["host_sync"] < 100.0
    for facts in run.job.ranks:
        assert length(intersect(union(*facts.gaps.bounds), union(*facts.exposed.bounds))) == 0
    blame = run.job.blame
    mine = blame["culprit"] == 1
    assert blame["dur_ns"][mine].sum() > 0.9 * blame["dur_ns"].sum()
    assert blame["dur_ns"][mine & (blame["cause"] == CAUSE_CODE["compute"])].sum() > 0.9 * blame["dur_ns"].sum()
    (finding,) = [f for f in run.report.findings if run.report.severity_of(f) != "info"]
    assert finding.ranks == (1,) and finding.id.startswith("straggler")
    assert abs(finding.recoverable_us.value - LATE_US) < 0.08 * LATE_US
    assert (run.pricer.error or 0.0) < 0.01


def test_it_is_marked_as_inferred_in_tables_that_stay_in_order_and_carries_no_traffic(run: LoadedRun) -> None:
    for facts in run.job.ranks:
        mine = [row for row, name in enumerate(facts.device_ops["name"]) if facts.strings[name] == INFERRED]
        assert len(mine) == STEPS
        assert len(np.unique(facts.device_ops["track"][mine])) == 1  # a stream of its own
    assert not any("barrier" in e.text for f in run.report.findings for e in f.evidence)
    assert any("resumed together" in note.issue for note in run.report.health)
    assert INFERRED not in {traffic.op for traffic in run.measures.comm.traffic}
    for facts in run.job.ranks:
        assert (np.diff(facts.device_ops["start_ns"]) >= 0).all() and (np.diff(facts.comms["start_ns"]) >= 0).all()
        ops = facts.comms["device_op"]
        assert (facts.device_ops["start_ns"][ops] == facts.comms["start_ns"]).all()
        assert (facts.device_ops["comm"][ops] == np.arange(len(facts.comms))).all()
        assert len(facts.device_ops) == STEPS * (LAYERS + 2 + (facts.identity.rank == 1))
