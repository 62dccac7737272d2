"""NCCL's sequence numbers: it counts the calls of each function of a communicator on its own (comm->seqNumber[func],
src/include/comm.h), so that an AllGather and a ReduceScatter of one communicator have the same numbers."""

from __future__ import annotations

from ddprof.tables import NULL

# As ncclFunc_t counts them; those of other names share the last place.
_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv")
_PLACES = len(_FUNCTIONS) + 1
_MOST = 2**59  # so that it can be multiplied


def number_in_communicator(function: str, number: int) -> int:
    """A number that no other call of the communicator has; NULL where there is none."""
    if not 0 <= number < _MOST:
        return NULL
    place = _FUNCTIONS.index(function) if function in _FUNCTIONS else len(_FUNCTIONS)
    return number * _PLACES + place
