"""The sparse tables: arguments of collectives, copies, operators, synchronisations, and memory samples."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from ddprof.model import Kind
from ddprof.readers.groups import Groups
from ddprof.readers.numbers import one_int, to_int64
from ddprof.readers.trace_event import Args
from ddprof.tables import NULL, Array

# Bytes of one element, by the names of c10::ScalarType and by the C++ names that shapes are recorded with.
ELEMENT_BYTES: Mapping[str, int] = {
    **dict.fromkeys(
        ("double", "long", "long int", "complexfloat", "int64", "float64", "int64_t", "c10::complex<float>"), 8
    ),
    **dict.fromkeys(("float", "int", "int32", "float32", "complexhalf", "uint32"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "c10::half", "c10::bfloat16", "float16", "int16", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "uint8", "int8", "unsigned char", "signed char", "float8"), 1),
    **dict.fromkeys(("complexdouble", "c10::complex<double>"), 16),
}
_IS_COPY = np.isin(np.arange(256), (Kind.MEMCPY, Kind.MEMSET))  # by kind
_SYNC = int(Kind.SYNC)
_COLLECTIVE = attrgetter("collective")
_LIBRARY = re.compile(r"^(?:gloo|mpi|ucc|hccl|xccl):(?P<op>\w+)")
# Which of an operator's inputs are the peer and the tag (torch/csrc/distributed/c10d/Ops.cpp).
_MESSAGE_INPUTS: Mapping[str, tuple[int | None, int]] = {
    "c10d::send": (2, 3),
    "c10d::recv_": (2, 3),
    "c10d::recv_any_source_": (None, 2),
}
_FLOAT8 = re.compile(r"^(?:c10::)?float8_", re.IGNORECASE)
_DEVICE_MEMORY = (1, 2, 6, 12, 13, 20)  # c10::DeviceType: cuda, mkldnn, hip, xpu, mps, privateuse1


def element_bytes(dtype: str) -> int | None:
    """Size of one element of a dtype as traces name it; None where the name is unknown."""
    if _FLOAT8.match(dtype):
        return 1
    return ELEMENT_BYTES.get(dtype.lower())


class _JsonTexts(dict[bytes, int]):
    """The string number of a piece of JSON. The same few shapes recur, so its text is made once."""

    def __init__(self, strings: Any) -> None:
        super().__init__()
        self._strings = strings

    def __missing__(self, content: bytes) -> int:
        self[content] = number = self._strings[_text(content)]
        return int(number)


class ArgumentTables:
    """Collects the sparse tables of one rank; `row` is the number of the event in order of arrival."""

    def __init__(self, strings: Any) -> None:
        self.strings = strings
        self.groups = Groups()
        self.collectives: list[tuple[int, ...]] = []
        self.messages: list[tuple[int, int, int]] = []  # row, peer, tag
        self.copies: list[tuple[int, int]] = []
        self.operators: list[Array] = []  # blocks of shape (3, n)
        self.syncs: list[tuple[int, int, int]] = []
        self.memory: list[Array] = []
        self._texts = _JsonTexts(strings)
        self.ranks_seen: set[tuple[int, int]] = set()  # ("Rank", "Group size") as collectives state them

    def add(self, first_row: int, kind: Array, names: list[str], args: list[Args], shape_rows: Array) -> None:
        """The arguments of one block, whose first event is number `first_row`."""
        collectives = list(map(_COLLECTIVE, args))
        if collectives.count(None) < len(collectives):
            for at, name in enumerate(collectives):
                if name is not None:
                    self._collective(first_row + at, args[at])
        for at in np.flatnonzero(_IS_COPY[kind]).tolist():
            given = args[at]
            self.copies.append((first_row + at, one_int(given.bytes if given.bytes != NULL else given.size)))
        for at in np.flatnonzero(kind == _SYNC).tolist():
            given = args[at]
            self.syncs.append((first_row + at, _not_negative(given.wait_stream), _not_negative(given.wait_correlation)))
        self._operators(first_row, shape_rows, names, args)

    def _operators(self, first_row: int, shape_rows: Array, names: list[str], args: list[Args]) -> None:
        for row in shape_rows.tolist():
            if names[row] in _MESSAGE_INPUTS:
                self.messages.append((first_row + row, *_peer_and_tag(names[row], args[row].values)))
        rows = [row for row in shape_rows.tolist() if args[row].dims]
        if not rows:
            return
        dims = list(map(self._texts.__getitem__, [bytes(args[row].dims) for row in rows]))
        types = list(map(self._texts.__getitem__, [bytes(args[row].types) for row in rows]))
        self.operators.append(np.array(([first_row + row for row in rows], dims, types), np.int64))
        libraries = {name: found for name in {names[row] for row in rows} if (found := _LIBRARY.match(name))}
        for row in rows if libraries else ():
            if names[row] in libraries:
                operation = libraries[names[row]]["op"]
                self._library_call(first_row + row, operation, _text(args[row].dims), _text(args[row].types))

    def _library_call(self, row: int, op: str, dims: str, types: str) -> None:
        """A collective of a library that states no arguments (gloo): its size is that of its input tensors."""
        size, dtype = _tensor_bytes(dims, types)
        no_group = np.iinfo(np.int32).min
        self.collectives.append(
            (row, self.strings[op], no_group, NULL, size, NULL, self.strings[dtype], NULL, NULL, NULL)
        )

    def _collective(self, row: int, given: Args) -> None:
        dtype = str(given.dtype or "")
        size = element_bytes(dtype)
        group_size, rank = one_int(given.group_size), one_int(given.rank)
        if rank >= 0 and group_size > 0:
            self.ranks_seen.add((rank, group_size))
        self.collectives.append(
            (
                row,
                self.strings[str(given.collective)],
                self.groups.number(given),
                _not_negative(given.seq),
                _times(one_int(given.in_nelems), size),
                _times(one_int(given.out_nelems), size),
                self.strings[dtype],
                group_size,
                _not_negative(given.src),
                _not_negative(given.dst),
            )
        )

    def add_memory(self, ts_ns: Array, args: list[Args]) -> None:
        """A block of [memory] samples."""
        if not args:
            return
        kinds = to_int64([a.device_type for a in args])
        device = np.where(np.isin(kinds, _DEVICE_MEMORY), to_int64([a.device_id for a in args]), NULL)
        allocated, reserved = to_int64([a.allocated for a in args]), to_int64([a.reserved for a in args])
        self.memory.append(np.stack((ts_ns, device, allocated, reserved))[:, ts_ns != NULL])


def _peer_and_tag(operator: str, values: Any) -> tuple[int, int]:
    """What a c10d operator was called with; NULL where the trace does not say (inputs are recorded with shapes)."""
    try:
        given = json.loads(bytes(values) or b"[]")
    except ValueError:
        given = []
    inputs = given if isinstance(given, list) else []
    peer, tag = (inputs[at] if at is not None and at < len(inputs) else NULL for at in _MESSAGE_INPUTS[operator])
    return _not_negative(peer), _not_negative(tag)


def _not_negative(value: Any) -> int:
    """Kineto writes -1 where it does not know."""
    number = one_int(value)
    return number if number >= 0 else NULL


def _times(count: int, size: int | None) -> int:
    return count * size if count >= 0 and size is not None and count < 2**58 else NULL


def _text(raw: Any) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _tensor_bytes(dims: str, types: str) -> tuple[int, str]:
    """Bytes of all input tensors of a call, and the dtype of the first; (NULL, "") where the shapes do not say."""
    try:
        shapes, names = json.loads(dims), json.loads(types)
    except ValueError:
        return NULL, ""
    total, dtype = 0, ""
    for shape, name in zip(shapes, names, strict=False):
        size = element_bytes(str(name))
        if size is None or not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
            continue
        total += size * math.prod(shape)
        dtype = dtype or str(name)
    return (total, dtype) if dtype else (NULL, "")
