"""Meaning of event categories and used arguments of operators, looked up once per name instead of once per event."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from enum import IntEnum
from itertools import islice

import numpy as np

from ddprof.model import Kind
from ddprof.readers.columns.kinds import FLOWS, IGNORED, kind_of, wants_shapes
from ddprof.tables import Array

UNKNOWN = 255  # stands for a kind where the category is not known: the event's arguments decide
PYTHON_FRAMES = frozenset({"python_function", "Python"})
_DROPPED = FLOWS - {"critical_path"}  # arrows, which say nothing that correlation does not


# A shorter Python frame is part of the one around it. A host that is held for less than this is not held: waking from a
# sleep takes as long (facts/stops.py). With this, 1 to 14 % of the frames of real recordings are kept.
MIN_FRAME_NS = 100_000


class Route(IntEnum):
    """Destination of a span in `scan.c`: columns, a count, columns for long Python frames only, msgspec, or columns
    with the used arguments of an operator.
    """

    KEEP, DROP, PYTHON, REST, OPERATOR = range(5)


class Categories(dict[str, int]):
    """Categories numbered in order of first use; `kind`, `dropped` and `is_python` are indexed by that number."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds, self._dropped, self._python = bytearray(), bytearray(), bytearray()

    def __missing__(self, category: str) -> int:
        kind = kind_of(category)
        code = int(kind) if kind is not None else int(Kind.OTHER) if category in IGNORED else UNKNOWN
        self._kinds.append(code)
        self._python.append(category in PYTHON_FRAMES)
        self._dropped.append(category in _DROPPED)
        self[category] = number = len(self)
        return number

    @property
    def kind(self) -> Array:
        """The code of each category's kind, or UNKNOWN; uint8."""
        return np.frombuffer(bytes(self._kinds), np.uint8)

    @property
    def dropped(self) -> Array:
        """Mask of categories of arrows."""
        return np.frombuffer(bytes(self._dropped), bool)

    @property
    def is_python(self) -> Array:
        """Mask of categories of Python frames."""
        return np.frombuffer(bytes(self._python), bool)

    def numbers(self, categories: list[str]) -> Array:
        """The number of each category, int32, shape (len(categories),)."""
        return np.frombuffer(array("i", list(map(self.__getitem__, categories))), np.int32)

    def route(self, number: int) -> int:
        """The Route of a category's spans in the native scanner."""
        if self._python[number]:
            return Route.PYTHON
        if self._dropped[number]:
            return Route.DROP
        if self._kinds[number] in (Kind.CPU_OP, Kind.ANNOTATION):
            return Route.OPERATOR
        return Route.REST if self._kinds[number] in (UNKNOWN, Kind.OTHER) else Route.KEEP

    def counts(self, numbers: Array) -> dict[str, int]:
        """Occurrences of each category among `numbers`, without zeros."""
        each = np.bincount(numbers, minlength=len(self)).tolist()
        return {category: n for category, n in zip(self, each, strict=True) if n}


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
