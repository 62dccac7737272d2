"""Logs of NCCL's profiler plugin."""

from pathlib import Path

from reading import FORMATS, names, traces

from ddprof.model import Kind
from ddprof.readers.columns.groups import number_in_communicator


def test_nccl_profiler_kernels_belong_to_the_rank_that_launched_them(shared_dir: Path) -> None:
    ranks = traces(shared_dir / FORMATS / "nccl_profiler_jsonl")
    assert [t.identity.local_device for t in ranks] == [0, 1, 2, 3]
    assert [names(t, Kind.KERNEL) for t in ranks] == [["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]] * 4
    for trace in ranks:
        (row,) = trace.collectives.rows()
        assert (row["in_bytes"], row["group_size"]) == (4 * 33554432, 4)
        assert row["seq"] == number_in_communicator("AllReduce", 0)
