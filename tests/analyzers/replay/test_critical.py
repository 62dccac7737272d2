"""The critical path covers the run exactly once and runs through the rank that is to blame."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.replay.critical import critical_path
from ddprof.analyzers.replay.graph.program import write_program
from ddprof.analyzers.replay.model import Graph
from ddprof.causes import CAUSE_CODE
from ddprof.tables import Table


def _path(labelled: Runs, name: str) -> Table:
    run = labelled(name)
    return critical_path(run.job, run.pricer.graph)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.pp", "straggler.compute"])
def test_pieces_follow_one_another_from_first_mark_to_last_end(labelled: Runs, name: str) -> None:
    path, run = _path(labelled, name), labelled(name)
    assert (path["start_ns"][1:] == path["end_ns"][:-1]).all() and (path["end_ns"] > path["start_ns"]).all()
    graph = run.pricer.graph
    assert int(path["end_ns"][-1] - path["start_ns"][0]) == pytest.approx(graph.measured_ns, rel=0.02)
    assert int(path["start_ns"][0]) in {rank.origin_ns - rank.offset_ns for rank in graph.ranks}


def test_the_path_runs_through_the_slow_rank_waits_for_nobody_and_needs_a_graph(labelled: Runs) -> None:
    path, run = _path(labelled, "straggler.compute"), labelled("straggler.compute")
    assert CAUSE_CODE["comm_wait"] not in path["cause"]
    length = np.bincount(path["rank"], weights=path["end_ns"] - path["start_ns"], minlength=len(run.job.ranks))
    assert run.job.rank_ids[int(length.argmax())] == 2 and length.max() > 0.8 * length.sum()
    none = np.empty(0, np.int64)
    assert len(critical_path(labelled("clean.ddp").job, Graph((), none, 0.0, write_program((), none), ()))) == 0
