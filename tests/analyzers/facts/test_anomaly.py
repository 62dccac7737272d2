"""Operators that write stacks in autograd's anomaly mode, and how much of them that is."""

from pathlib import Path

import pytest
from cpu_loop import operators
from kineto_run import Script

NODES = 10
LONG_US = 5_000.0


def node(script: Script, recomputed_us: float) -> None:
    with script.frame("autograd::engine::evaluate_function: TBackward0", "cpu_op"):
        with script.frame("TBackward0", "cpu_op"):
            script.host("aten::t", 1.0)
            if recomputed_us:
                script.host("aten::view", recomputed_us)
        operators(script, "isnan", "any", "item")


@pytest.mark.parametrize("recomputed_us", [0.0, 101.0])
def test_stacks_are_as_many_as_nodes_and_as_long_as_views_tell(tmp_path: Path, recomputed_us: float) -> None:
    """A stack is a small part of an operator that computes for long; one that calls another writes none itself. Views
    of a forward pass that is computed again, inside nodes, write stacks and do not tell how long others take.
    """
    script = Script()
    for _ in script.steps(3):
        for _ in range(NODES // 2):
            with script.frame("aten::linear", "cpu_op"):
                script.host("aten::t", 101.0)
                script.host("aten::addmm", LONG_US)
        operators(script, "view", count=50, dur_us=1.0)
        for _ in range(NODES):
            node(script, recomputed_us)
    work = script.facts(tmp_path, on_cpu=True).anomaly_work
    writes, searches = work.take(~work["is_check"]), work.take(work["is_check"])
    assert len(searches) == 3 * NODES and (searches["share"] == 1.0).all()
    length_us = (writes["end_ns"] - writes["start_ns"]) / 1e3
    assert sorted(set(length_us.tolist())) == [101.0, LONG_US]
    assert (length_us * writes["share"]).tolist() == pytest.approx([100.0] * 3 * NODES)
