"""Collections at different moments on different ranks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captured import on_cpu, steps, with_sidecars
from kineto_run import Script, in_step, loaded
from labelled_runs import Labelled, candidate, candidates, fires, serious

from ddprof.analyzers.catalogue import catalogue

ID = "host.gc"
MS = 1_000_000


def test_suggests_to_collect_at_once_also_by_the_record(faulty: Labelled, healthy: Labelled) -> None:
    said = fires(faulty, ID)
    assert "gc." in str(said.fixes[0].patch) and said.changes[0].target == "gc"
    pauses = [{"start_ns": 1_000_000 * i, "dur_ns": 50_000, "generation": 2} for i in range(1, 90)]
    window = {"start_ns": 0, "end_ns": 10_000_000, "export_pause_ns": 500_000}
    sidecar = {"steps": steps(100, 1_000_000), "gc": pauses, "windows": [window]}
    said = candidate(ID, with_sidecars(healthy, {}, sidecar, {}))
    assert "rank 1" in said.summary
    share = 79 * 50 / 89_500  # of the 90 steps after the first ten, without the window's export, which ends in one
    assert said.most_us == pytest.approx(share * healthy.measures.step_us) and said.evidence[0].rank == 1


@pytest.mark.parametrize(
    ("count", "pauses", "found"),
    [
        (20, [(1, 900_000)] * 3, 0),  # a short run
        (100, [(1, 900_000)] * 3, 0),  # its start
        (100, [(5, 600_000)], 0),  # rare
        (100, [(50, 4_000_000)], 0),  # one long collection of the whole run is no rate
        (100, [(50, 4_000_000), (70, 4_000_000)], 1),
    ],
)
def test_rare_or_early_collections(healthy: Labelled, count: int, pauses: list[tuple[int, int]], found: int) -> None:
    recorded = [{"start_ns": ms * 1_000_000, "dur_ns": dur_ns, "generation": 2} for ms, dur_ns in pauses]
    sidecar = {"steps": steps(count, 1_000_000), "gc": recorded}
    assert len(list(catalogue()[ID].detect(with_sidecars(healthy, sidecar)))) == found


@pytest.mark.parametrize(("called", "setting"), [(True, "calls of gc.collect()"), (False, "garbage collection")])
def test_what_the_script_calls_is_not_answered_by_switching_off(healthy: Labelled, called: bool, setting: str) -> None:
    pauses = [{"start_ns": 1_000_000 * i, "dur_ns": 50_000, "was_called": called} for i in range(1, 90)]
    mixed = [*pauses, {"start_ns": 95_000_000, "dur_ns": 50_000, "was_called": False}]
    for recorded, told in ((pauses, setting), (mixed, "garbage collection")):
        said = candidate(ID, with_sidecars(healthy, {}, {"steps": steps(100, 1_000_000), "gc": recorded}, {}))
        assert said.fixes[0].setting == told and bool(said.fixes[0].applies) == (told == "garbage collection")


def test_the_line_that_collects_is_told_whatever_was_collected_before_the_first_step(healthy: Labelled) -> None:
    """Importing a framework collects for longer than a short run of calls."""
    first_ns = 100 * 1_000_000
    timed = [{**step, **{k: step[k] + first_ns for k in ("start_ns", "end_ns")}} for step in steps(100, 1_000_000)]
    calls = [{"start_ns": first_ns + 1_000_000 * i, "dur_ns": 50_000, "at": "train.py:9 tidy()"} for i in range(1, 90)]
    early = {"start_ns": 1_000_000, "dur_ns": 90_000_000, "at": ""}
    said = candidate(ID, with_sidecars(healthy, {"steps": timed, "gc": [early, *calls]}))
    assert said.summary.endswith("called in train.py:9 tidy()")


def collecting(count: int) -> dict[str, Any]:
    """The record of a rank that collects in so many of 60 steps outside the trace."""
    gc = [{"start_ns": (20 * at + 5) * MS, "dur_ns": 4 * MS} for at in range(59, 59 - count, -1)][::-1]
    return {"steps": steps(60, 20 * MS), "gc": gc}


@pytest.mark.parametrize(
    ("counts", "who"),
    [
        *(((40, 0, 0, 0), [0]), ((0, 0, 40, 0), [2])),
        *(((40, 40, 40, 40), []), ((40, 38, 0, 0), [0, 1])),
        ((1, 0, 0, 0), []),  # one collection is on some rank
    ],
)
def test_who_collects_is_told_by_the_whole_run(faulty: Labelled, counts: tuple[int, ...], who: list[int]) -> None:
    measures = with_sidecars(faulty, *map(collecting, counts))
    (found,) = candidates(ID, measures)
    assert found.ranks == tuple(measures.job.rank_ids[at] for at in who)
    assert all(change.ranks == found.ranks for change in found.changes)


def test_the_run_prices_what_no_device_hides(faulty: Labelled) -> None:
    """Collections of 4 ms in 40 of 50 steps of 20 ms, whatever the few traced steps hold."""
    records = list(map(collecting, (40,) * 4))
    measures, with_devices = on_cpu(faulty, *records), with_sidecars(faulty, *records)
    assert candidate(ID, measures).lost_us == pytest.approx(0.16 * measures.step_us, rel=0.01)
    assert candidate(ID, with_devices).changes and not candidate(ID, measures).changes


@pytest.mark.parametrize(("ranks", "who"), [([1], (1,)), ([0, 1, 2, 3], ())])
def test_traced_steps_tell_who_collects_in_a_short_run(tmp_path: Path, ranks: list[int], who: tuple[int, ...]) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        script.launch(dur_us=500.0)
        if rank in ranks:
            script.host("Python GC", 4_000.0, cat="python_function")

    (said,) = candidates(ID, loaded(in_step(4, 8, work), tmp_path).measures)
    assert said.ranks == who and all(change.ranks == who for change in said.changes)


def stopping(pause_us: Callable[[int, int], float], times: int = 1) -> Callable[[Script, int, int], None]:
    """Work of a rank in a step: twenty kernels, and `times` pauses between them that nothing records."""

    def work(script: Script, rank: int, step: int) -> None:
        for call in range(20):
            script.launch(dur_us=30.0)
            script.host("aten::view", 2.0)
            if call % (20 // times) == (3 * rank + 5 * step) % (20 // times):
                script.idle(pause_us(rank, step))

    return work


def test_hosts_that_pause_once_in_turn_are_said_to_collect(tmp_path: Path) -> None:
    """On 4 ranks, now this one, now that one; neither what one rank has, nor every step, nor many stops of a step."""
    made = loaded(in_step(4, 8, stopping(lambda rank, step: 4_000.0 * ((step * 7 + 1) % 4 == rank))), tmp_path)
    said = candidate(ID, made.measures)
    assert said.lost_us == said.most_us == pytest.approx(4_000.0, rel=0.1) and not said.changes
    assert "8 times on 4 ranks" in said.summary and serious(made.report) == {ID: ()}
    for pause_us, times in (
        (lambda rank, step: 4_000.0 * (rank == 2), 1),
        (lambda rank, step: 4_000.0, 1),
        (lambda rank, step: 1_500.0 * ((step * 7 + 1) % 4 == rank), 5),
        (lambda rank, step: 4_000.0 * (rank == 1 and step == 3), 1),
        (lambda rank, step: 0.0, 1),
    ):
        assert candidates(ID, loaded(in_step(4, 8, stopping(pause_us, times)), tmp_path).measures) == []


@pytest.mark.parametrize("traced", range(4))
def test_a_short_collection_in_a_traced_step_hides_none_of_the_run(healthy: Labelled, traced: int) -> None:
    measures = with_sidecars(healthy, *map(collecting, (0, 0, 40, 0)))
    spans = {**measures.host_spans_us, "gc": 1e-4 * measures.step_us * np.eye(4)[traced]}
    said = candidate(ID, replace(measures, host_spans_us=spans))
    assert said.ranks == (measures.job.rank_ids[2],) and said.lost_us > 0.01 * measures.step_us
