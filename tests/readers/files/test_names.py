"""Ranks and stamps in the names of files."""

import pytest

from ddprof.readers.files.names import rank_in_name, without_stamp

RANKS = {"rank12.json": 12, "run_r5.json": 5, "trace_rank_3.json": 3, "trace1.json": 1}
RANKS |= {"rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": 34, "worker0_step_12.1694128201545.pt.trace.json.gz": 0}
RANKS |= {"rank3.host.999.0.pt.trace.json": 3, "global_rank7_local_rank3.json": 7}
SILENT = ("gpu-worker-00_4013.1764638676001234567.pt.trace.json.gz", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
SILENT += ("control.json.gz", "franks2.json", "llama_trace_4layers0_dim_1024.json.gz")
SILENT += ("rank10000000000000000000000000000000000000000.pt.trace.json", f"rank{'9' * 5000}.json")


@pytest.mark.parametrize(("name", "rank"), [*RANKS.items(), *((name, None) for name in SILENT)])
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert rank_in_name(f"/some/rank9/{name}") == rank


def test_windows_of_one_process_have_one_name() -> None:
    assert {without_stamp(f"h_77.{stamp}.pt.trace.json") for stamp in (1623143089861, 1623143099861)} == {"h_77"}
