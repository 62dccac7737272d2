"""Work beside training's own: DistributedDataParallel's search for unused parameters, stacks of anomaly mode."""

from pathlib import Path

import pytest
from cpu_loop import operators
from gloo_traces import Events, in_steps, operator
from kineto_run import Script

SEARCH_US, SINK_AT_US, SINK_US = 80.0, 200.0, 50.0
NODES, LONG_US = 10, 5_000.0


@pytest.mark.parametrize(
    ("following", "counted_us"),
    [
        ("_DDPSink", SINK_AT_US + SINK_US),
        ("aten::cross_entropy_loss", SEARCH_US),  # another operator comes first: no node was passed
    ],
)
def test_a_search_lasts_until_outputs_have_passed_its_node(tmp_path: Path, following: str, counted_us: float) -> None:
    def play(rank: int, at: float) -> Events:
        return [
            operator(rank, "aten::addmm", at, 500.0),
            operator(rank, "torch.distributed.ddp.reducer::search_unused_parameters", at + 600.0, SEARCH_US),
            operator(rank, following, at + 600.0 + SINK_AT_US, SINK_US),
            operator(rank, "_DDPSink", at + 1_500.0, SINK_US),
        ]

    searches = in_steps(tmp_path, 3, 5_000.0, play, 1).job.ranks[0].unused_searches
    assert ((searches["end_ns"] - searches["start_ns"]) / 1e3).tolist() == pytest.approx([counted_us] * 3)


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
            with script.frame("autograd::engine::evaluate_function: TBackward0", "cpu_op"):
                with script.frame("TBackward0", "cpu_op"):
                    script.host("aten::t", 1.0)
                    if recomputed_us:
                        script.host("aten::view", recomputed_us)
                operators(script, "isnan", "any", "item")
    work = script.facts(tmp_path, on_cpu=True).anomaly_work
    writes, searches = work.take(~work["is_check"]), work.take(work["is_check"])
    assert len(searches) == 3 * NODES and (searches["share"] == 1.0).all()
    length_us = (writes["end_ns"] - writes["start_ns"]) / 1e3
    assert sorted(set(length_us.tolist())) == [101.0, LONG_US]
    assert (length_us * writes["share"]).tolist() == pytest.approx([100.0] * 3 * NODES)
