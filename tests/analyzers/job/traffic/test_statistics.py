"""Traffic of which some members recorded nothing is not whole, though their files are there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, loaded
from labelled_runs import Runs, sample_run

from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.traffic.statistics import comm_stats, is_all_transfer, with_known_transfer

SIZES = np.tile([1.0, 25.0, 25.0, 6.0], 4) * 2**20
TIMES = 40.0 + SIZES / 10_000.0  # us: a latency, and 10 GB/s


@pytest.mark.parametrize(("share", "is_whole"), [(0.2, True), (0.8, False)])
def test_traffic_of_which_most_calls_are_missing_is_not_whole(labelled: Runs, share: float, is_whole: bool) -> None:
    job = labelled("comm.bandwidth_bound").job
    rows = np.flatnonzero(job.instances["op"] == OP_CODE["all_reduce"])
    complete = job.instances["complete"].copy()
    complete[rows[: round(share * len(rows))]] = False
    stats = comm_stats(replace(job, instances=job.instances.replace(complete=complete)), {})
    largest = max((t for t in stats.traffic if t.op == "all_reduce"), key=lambda t: t.total_bytes)
    assert largest.is_whole == is_whole


def test_bytes_at_one_rate_explain_small_and_large_messages() -> None:
    assert is_all_transfer(SIZES, TIMES) and is_all_transfer(SIZES, TIMES * np.linspace(1.0, 1.05, len(SIZES)))


@pytest.mark.parametrize("which", [SIZES > 0, SIZES == 2**20, np.arange(len(SIZES)) == 3])
def test_lateness_at_every_call_at_the_first_or_once_is_not_explained(which: np.ndarray) -> None:
    assert not is_all_transfer(SIZES, TIMES + 6_000.0 * which)


def test_equal_messages_few_ones_and_unknown_sizes_prove_nothing() -> None:
    assert not is_all_transfer(SIZES[1::4], TIMES[1::4])
    assert not is_all_transfer(np.full(16, 2.0**20), np.full(16, 145.0))
    assert not is_all_transfer(SIZES[:7], TIMES[:7]) and not is_all_transfer(np.zeros(16), TIMES)


def test_one_rank_tells_its_transfers_unless_it_waits_in_them(labelled: Runs) -> None:
    assert with_known_transfer(labelled("comm.bandwidth_bound").only(2).job).all()
    assert not with_known_transfer(labelled("straggler.compute").only(0).job).any()
    assert with_known_transfer(labelled("straggler.compute").job).all()


def test_the_exposed_time_of_communications_at_once_is_counted_once(tmp_path: Path) -> None:
    scripts = [Script(), Script()]
    for script in scripts:
        for _ in script.steps(4):
            script.launch(dur_us=100.0, times=10)
            begin_us = script.free_us + 10
            for stream in (20, 21):  # two groups of the same ranks
                script.free_us = begin_us
                script.reduce(begin_us + 2_000)
                script.events[-1]["tid"] = script.events[-1]["args"]["stream"] = stream
                script.events[-1]["args"]["Process Group Name"] = str(stream)
            script.synchronise()
    measures = loaded(scripts, tmp_path).measures
    assert measures.comm.exposed_us == pytest.approx(measures.cause_us("comm_transfer").mean()) == pytest.approx(2_000)
    (traffic,) = measures.comm.traffic
    assert (traffic.transfer_us, traffic.hidden_share) == (pytest.approx(4_000), 0.0)  # neither is under compute


def test_traffic_sums_to_the_transfer_of_the_ledger() -> None:
    measures = sample_run("slow_link").measures
    assert measures.comm.exposed_us == pytest.approx(measures.cause_us("comm_transfer").mean())
