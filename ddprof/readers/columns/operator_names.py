"""Used arguments of each operator, looked up once per name instead of once per event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from itertools import islice

import numpy as np

from ddprof.readers.columns.kinds import wants_shapes
from ddprof.tables import Array

LIBRARY = re.compile(r"^(?:gloo|mpi|ucc|hccl|xccl):(?P<op>\w+)")
# Which of an operator's inputs are the peer and the tag (torch/csrc/distributed/c10d/Ops.cpp).
MESSAGE_INPUTS: Mapping[str, tuple[int | None, int]] = {
    "c10d::send": (2, 3),
    "c10d::recv_": (2, 3),
    "c10d::recv_any_source_": (None, 2),
}


class Used(IntEnum):
    """Use of an operator's arguments in `scan.c`: none, shapes and types of the inputs, or more than it parses."""

    NOTHING, SHAPES, ALL = range(3)


class OperatorNames:
    """Used arguments by operator name; `strings` numbers the names in order of first use."""

    def __init__(self, strings: dict[str, int]) -> None:
        self._strings = strings
        self._used = bytearray()

    def _known(self) -> bytearray:
        if unknown := len(self._strings) - len(self._used):
            newest = list(islice(reversed(self._strings), unknown))  # from the end: to skip the others takes their time
            self._used.extend(map(_used, reversed(newest)))
        return self._used

    def route(self, number: int) -> int:
        """The Used value of an operator for the native scanner."""
        return self._known()[number]

    def are_used(self, names: Array) -> Array:
        """Mask of operators with used arguments, by the numbers of their names."""
        used: Array = np.frombuffer(bytes(self._known()), np.uint8)[names] != Used.NOTHING
        return used


def _used(name: str) -> Used:
    if not wants_shapes(name):
        return Used.NOTHING
    return Used.ALL if name in MESSAGE_INPUTS or LIBRARY.match(name) else Used.SHAPES
