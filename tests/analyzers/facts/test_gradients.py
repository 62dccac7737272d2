"""Work of DistributedDataParallel for unused parameters: the search, and the node that outputs pass afterwards."""

from pathlib import Path

import pytest
from gloo_traces import Events, in_steps, operator

SEARCH_US, SINK_AT_US, SINK_US = 80.0, 200.0, 50.0


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
