"""Numbers of calls in a communicator."""

from __future__ import annotations

from ddprof.readers.columns.nccl_numbers import number_in_communicator
from ddprof.tables import NULL


def test_functions_do_not_share_numbers_and_keep_their_order() -> None:
    functions = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll")
    numbers = {(function, n): number_in_communicator(function, n) for function in functions for n in range(20)}
    assert len(set(numbers.values())) == len(numbers)
    for function in functions:
        assert [numbers[function, n] for n in range(20)] == sorted(numbers[function, n] for n in range(20))
    assert number_in_communicator("AllReduce", NULL) == NULL == number_in_communicator("AllReduce", 2**62)
