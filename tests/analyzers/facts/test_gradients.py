"""What DistributedDataParallel does for unused parameters: the search, and the node that outputs pass afterwards."""

from pathlib import Path

import gloo_traces
import pytest

from ddprof.analyzers.engine import Options, load_runs

SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
SEARCH_US, SINK_AT_US, SINK_US = 80.0, 200.0, 50.0


@pytest.mark.parametrize(
    ("following", "counted_us"),
    [
        ("_DDPSink", SINK_AT_US + SINK_US),
        ("aten::cross_entropy_loss", SEARCH_US),  # another operator comes first: no node was passed
    ],
)
def test_a_search_lasts_until_the_outputs_have_passed_its_node(
    tmp_path: Path, following: str, counted_us: float
) -> None:
    events: gloo_traces.Events = []
    for step in range(3):
        at = 1_000.0 + step * 5_000.0
        events += [
            gloo_traces.operator(0, "aten::addmm", at, 500.0),
            gloo_traces.operator(0, SEARCH, at + 600.0, SEARCH_US),
            gloo_traces.operator(0, following, at + 600.0 + SINK_AT_US, SINK_US),
            gloo_traces.operator(0, "_DDPSink", at + 1_500.0, SINK_US),
            gloo_traces.annotation(0, f"ProfilerStep#{step}", at, 4_900.0),
        ]
    (run,) = load_runs([gloo_traces.write(tmp_path, [events])], Options(cache=False, workers=1))
    searches = run.job.ranks[0].unused_searches
    assert ((searches["end_ns"] - searches["start_ns"]) / 1e3).tolist() == pytest.approx([counted_us] * 3)
