"""Process groups that the trace abbreviates."""

from pathlib import Path
from typing import Any

import kineto_text as kt
import pytest
from reading import issues, trace_of

from ddprof.readers.columns.groups import number_in_communicator
from ddprof.readers.numbers import LARGEST_RANK
from ddprof.tables import NULL

pytestmark = pytest.mark.usefixtures("decoding")


@pytest.mark.parametrize(
    ("start", "stride", "size", "ranks"),
    [(0, 1, 64, tuple(range(64))), (3, 8, 4, (3, 11, 19, 27)), (5, -1, 64, ()), (7, 0, 1, (7,))],
)
def test_abbreviated_groups(tmp_path: Path, start: int, stride: int, size: int, ranks: tuple[int, ...]) -> None:
    arguments = {"Collective name": "allreduce", "Group size": size, "Process Group Name": "g"}
    arguments |= {"Process Group Ranks": "[0, 1, 2, ..., 63]", "Global rank start": start, "Global rank stride": stride}
    trace = trace_of(tmp_path / "t.json", [kt.span("record_param_comms", 0, 10, **arguments)])
    assert [(group.ranks, group.size) for group in trace.process_groups] == [(ranks, size)]


FIELDS = ("Process Group Name", "Process Group Description", "Process Group Ranks", "Group size", "Global rank start")
FIELDS += ("Global rank stride", "Rank", "Seq", "In msg nelems", "dtype")


@pytest.mark.parametrize("odd", [["a"], {"a": 1}, True, 10**30, -1, "9" * 6000, [10**30], float("nan"), None])
@pytest.mark.parametrize("field", FIELDS)
def test_arguments_of_any_type_leave_a_group_whose_ranks_can_be(tmp_path: Path, field: str, odd: Any) -> None:
    sound = {
        "Collective name": "allreduce",
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
    }
    header = {"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": odd, "pg_size": odd, "ranks": [odd]}]}}
    trace = trace_of(tmp_path / "t.json", [kt.kernel("nccl", 0, 10, **{**sound, field: odd})], header=header)
    assert len(trace.collectives) == 1
    assert all(rank <= LARGEST_RANK for group in trace.process_groups for rank in group.ranks)
    assert all(isinstance(group.name, str) and (group.size or 1) <= LARGEST_RANK for group in trace.process_groups)


@pytest.mark.parametrize("name", [["a"], {}, True])
def test_a_group_whose_name_is_no_text_is_said(tmp_path: Path, name: Any) -> None:
    event = kt.kernel("nccl", 0, 10, **{"Collective name": "allreduce", "Process Group Name": name})
    assert "1 collectives whose group has no usable name" in issues(trace_of(tmp_path / "t.json", [event]))


def test_functions_do_not_share_numbers_and_keep_their_order() -> None:
    functions = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll")
    numbers = {(function, n): number_in_communicator(function, n) for function in functions for n in range(20)}
    assert len(set(numbers.values())) == len(numbers)
    of_each = [[numbers[function, n] for n in range(20)] for function in functions]
    assert of_each == [sorted(its) for its in of_each]
    assert number_in_communicator("AllReduce", NULL) == NULL == number_in_communicator("AllReduce", 2**62)
