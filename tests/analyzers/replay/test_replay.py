"""A replay without a change is the recorded run; its critical path covers it once, and runs through who is to blame."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.replay.critical import critical_path
from ddprof.analyzers.replay.graph.program import write_program
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.simulate import simulate
from ddprof.causes import CAUSE_CODE

of_each = pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.pp", "straggler.compute"])


@of_each
def test_an_empty_scenario_changes_nothing(labelled: Runs, name: str) -> None:
    graph = labelled(name).pricer.graph
    assert simulate(graph, Scenario()).span_ns == simulate(graph).span_ns
    assert simulate(graph, Scenario() + Scenario()).marks_ns == simulate(graph).marks_ns


@of_each
def test_pieces_follow_one_another_from_first_mark_to_last_end(labelled: Runs, name: str) -> None:
    graph = labelled(name).pricer.graph
    path = critical_path(labelled(name).job, graph)
    assert (path["start_ns"][1:] == path["end_ns"][:-1]).all() and (path["end_ns"] > path["start_ns"]).all()
    assert int(path["end_ns"][-1] - path["start_ns"][0]) == pytest.approx(graph.measured_ns, rel=0.02)
    assert int(path["start_ns"][0]) in {rank.origin_ns - rank.offset_ns for rank in graph.ranks}


def test_the_path_runs_through_the_slow_rank_waits_for_nobody_and_needs_a_graph(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    path, none = critical_path(run.job, run.pricer.graph), np.empty(0, np.int64)
    assert CAUSE_CODE["comm_wait"] not in path["cause"]
    length = np.bincount(path["rank"], weights=path["end_ns"] - path["start_ns"], minlength=len(run.job.ranks))
    assert run.job.rank_ids[int(length.argmax())] == 2 and length.max() > 0.8 * length.sum()
    assert len(critical_path(labelled("clean.ddp").job, Graph((), none, 0.0, write_program((), none), ()))) == 0


@pytest.mark.parametrize(("left", "late_ms"), [(0.0, 0), (0.6, 3), (1.0, 5)])
def test_what_made_a_rank_late_for_its_window_may_be_removed(labelled: Runs, left: float, late_ms: int) -> None:
    """Other ranks enter theirs 5 ms before rank 0, whose host is busy until then."""
    graph = labelled("clean.ddp").pricer.graph
    first, *others = graph.ranks
    begin, early = first.origin_ns, [replace(rank, begin_ns=rank.begin_ns - 5_000_000) for rank in others]
    graph = replace(graph, ranks=(first, *early))
    busy = np.array([begin - 9_000_000]), np.array([begin])
    outcome = simulate(graph, Scenario(host_scale={first.position: ((busy, left),)}))
    assert [lead / 1e6 for lead in outcome.lead_ns[1:]] == pytest.approx([late_ms] * len(others), abs=0.05)
    assert outcome.sections_ns[0][0] == pytest.approx(begin - first.offset_ns - (5 - late_ms) * 1e6, abs=50_000)
