"""The sparse tables: arguments of collectives, copies, operators and synchronizations, and memory samples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from ddprof.model import Kind, ProcessGroup, element_bytes
from ddprof.readers.columns.groups import Groups
from ddprof.readers.columns.kinds import LIBRARY, MESSAGE_INPUTS
from ddprof.readers.json_text.scanned import Block
from ddprof.readers.json_text.trace_event import NO_ARGS, Args, Event, as_text
from ddprof.readers.numbers import one_int, one_rank, to_int64
from ddprof.tables import NULL, Array

_IS_COPY = np.isin(np.arange(256), (Kind.MEMCPY, Kind.MEMSET))  # by kind
REMEMBERED = 2**12  # texts of inputs: a rank sends to few peers, with the same few tags
_MOST_DIMENSIONS = 64  # of a tensor (TensorImpl allows any number, operators at most 64)
_MOST_ELEMENTS = 2**58  # of a tensor: with 16 bytes each its size still fits int64
# All that a collective states but its number, which alone differs from call to call (STATED of statement.h).
_STATED = attrgetter(
    *("collective", "dtype", "in_nelems", "out_nelems", "group_size", "rank", "src", "dst"),
    *("group_name", "group_description", "group_ranks", "rank_start", "rank_stride"),
)
Two = tuple[int, int]
NULLS: Two = (NULL, NULL)
_DEVICE_MEMORY = (1, 2, 6, 12, 13, 20)  # c10::DeviceType: cuda, mkldnn, hip, xpu, mps, privateuse1


class ArgumentTables:
    """Collects the sparse tables of one rank; `row` is the number of the event in order of arrival."""

    def __init__(self, strings: Any, shapes: dict[Any, int]) -> None:
        self.strings = strings
        self._shapes = shapes  # texts of shapes and types by the scanner's own numbers
        self._shape_strings = np.empty(0, np.int64)  # of each of these, its number among the strings
        self.groups = Groups()
        self.collectives: list[tuple[int, ...]] = []
        self._scanned: list[Array] = []  # collectives too, blocks of shape (3, n): row, place in _statements, number
        self.messages: list[tuple[int, int, int]] = []  # row, peer, tag
        self.copies: list[tuple[int, int]] = []
        self.operators: list[Array] = []  # blocks of shape (3, n)
        self.memory: list[Array] = []
        self._stated: dict[tuple[Any, ...], tuple[int, ...]] = {}
        self._stated_as = np.empty(0, np.int64)  # of each statement by the scanner's number, its row in the next; or -1
        self._statements = np.empty((0, 8), np.int64)
        self.ranks_seen: set[tuple[int, int]] = set()  # ("Rank", "Group size") as collectives state them

    def add(
        self,
        first_row: int,
        kind: Array,
        collectives: Array,
        shape_rows: Array,
        events: Callable[[Array], Sequence[Event]],
    ) -> None:
        """The arguments of one block, whose first event is number `first_row`.

        `collectives`: rows that name one; `shape_rows`: rows whose shapes are used; `events` gives the events of rows.
        """
        for row, event in _with_rows(collectives, events):
            self._collective(first_row + row, event.args or NO_ARGS)
        self._copies(first_row, kind, events)
        self._operators(first_row, list(_with_rows(shape_rows, events)))

    def add_scanned(self, first_row: int, kind: Array, block: Block) -> None:
        """The arguments of a block whose collectives and shapes the scanner has read."""
        if len(block.collectives):
            self._scanned_collectives(first_row, block)
        self._copies(first_row, kind, block.events)
        if len(block.shaped):
            self._number_shapes(block)
            rows, numbers = block.shaped.astype(np.int64) + first_row, self._shape_strings
            self.operators.append(np.stack((rows, numbers[block.dims], numbers[block.types])))
        self._calls(first_row, _with_rows(block.calls, block.events))

    def _number_shapes(self, block: Block) -> None:
        """Add the block's new shape texts to the strings."""
        numbered = len(self._shape_strings)
        texts = [*islice(self._shapes, numbered, None)]
        if texts:
            self._shape_strings = np.append(self._shape_strings, np.zeros(len(texts), np.int64))
            for number in dict.fromkeys((*block.dims.tolist(), *block.types.tolist())):  # as if decoded one by one
                if number >= numbered:
                    self._shape_strings[number] = self.strings[texts[number - numbered]]

    def _copies(self, first_row: int, kind: Array, events: Callable[[Array], Sequence[Event]]) -> None:
        """The arguments of a block's copies."""
        for row, event in _with_rows(np.flatnonzero(_IS_COPY[kind]), events):
            given = event.args or NO_ARGS
            self.copies.append((first_row + row, one_int(given.bytes if given.bytes != NULL else given.size)))

    def _scanned_collectives(self, first_row: int, block: Block) -> None:
        """The collectives of a block. Decoded are the first of each new statement and what is not remembered."""
        numbers = block.stated_as
        unknown = int(numbers.max(initial=-1)) + 2 - len(self._stated_as)  # the last stands for what has no number
        if unknown > 0:
            self._stated_as = np.append(self._stated_as, np.full(unknown, -1))
        new = np.flatnonzero((self._stated_as[numbers] < 0) & (numbers >= 0))
        if len(new):
            firsts = new[np.sort(np.unique(numbers[new], return_index=True)[1])]
            for number, event in zip(numbers[firsts].tolist(), block.events(block.collectives[firsts]), strict=True):
                given = event.args or NO_ARGS
                if given.group_name is None or as_text(given.group_name) is not None:  # each of another name is counted
                    self._stated_as[number] = len(self._statements)
                    self._statements = np.append(self._statements, [self._made(given)], axis=0)
        places = self._stated_as[numbers]
        for row, event in _with_rows(block.collectives[places < 0], block.events):
            self._collective(first_row + row, event.args or NO_ARGS)
        self._scanned.append(np.array((block.collectives.astype(np.int64) + first_row, places, block.seq)))

    def collective_rows(self) -> Array:
        """All collectives, one row each, columns as in COLLECTIVES."""
        rows, places, seq = np.concatenate([np.empty((3, 0), np.int64), *self._scanned], axis=1)
        rows, stated, seq = rows[places >= 0], self._statements[places[places >= 0]], seq[places >= 0]
        scanned = np.column_stack((rows, stated[:, :2], np.where(seq >= 0, seq, NULL), stated[:, 2:]))
        return np.concatenate((np.array(self.collectives, np.int64).reshape(-1, 10), scanned))

    def _operators(self, first_row: int, shaped: list[tuple[int, Event]]) -> None:
        given = [(row, event.args) for row, event in shaped if event.args is not None and event.args.dims]
        if given:
            dims = [self.strings[_text(bytes(args.dims))] for _, args in given]
            types = [self.strings[_text(bytes(args.types))] for _, args in given]
            self.operators.append(np.array(([first_row + row for row, _ in given], dims, types), np.int64))
        self._calls(first_row, shaped)

    def _calls(self, first_row: int, called: Iterable[tuple[int, Event]]) -> None:
        """Messages, and collectives of libraries, among operators."""
        for row, event in called:
            given = event.args or NO_ARGS
            if event.name in MESSAGE_INPUTS:
                self.messages.append((first_row + row, *_peer_and_tag(event.name, bytes(given.values))))
            elif given.dims and (library := LIBRARY.match(event.name)):
                self._library_call(first_row + row, library["op"], _text(bytes(given.dims)), _text(bytes(given.types)))

    def add_collective(
        self, row: int, op: str, group: ProcessGroup, seq: int, sizes: Two = NULLS, dtype: str = "", peers: Two = NULLS
    ) -> None:
        """A collective of another format, at its event's row.

        `sizes`: bytes in and out. `peers`: ranks of a message's source and target.
        """
        number, size = self.groups.add(group), group.size or NULL
        self.collectives.append((row, self.strings[op], number, seq, *sizes, self.strings[dtype], size, *peers))

    def _library_call(self, row: int, op: str, dims: str, types: str) -> None:
        """A collective of a library that states no arguments (gloo), with the size of its input tensors.

        Of a sparse tensor only the shape that it stands for is recorded, not how much of that is sent.
        """
        size, dtype = _tensor_bytes(dims, types)
        if op.startswith("sparse_"):
            size = NULL
        no_group = np.iinfo(np.int32).min
        self.collectives.append(
            (row, self.strings[op], no_group, NULL, size, NULL, self.strings[dtype], NULL, NULL, NULL)
        )

    def _collective(self, row: int, given: Args) -> None:
        """One collective. A rank repeats few calls: all columns but the row and number are made once."""
        values = _STATED(given)
        try:
            key = (*values, *map(type, values))  # 1, 1.0 and true are equal keys, and not the same statement
            stated = self._stated.get(key) or self._first(key, given)
        except TypeError:  # a list among the values
            stated = self._made(given)
        self.collectives.append((row, *stated[:2], _not_negative(given.seq), *stated[2:]))

    def _first(self, key: tuple[Any, ...], given: Args) -> tuple[int, ...]:
        unnamed = self.groups.unnamed
        stated = self._made(given)
        if self.groups.unnamed == unnamed:  # each collective whose group has no name is counted
            self._stated[key] = stated
        return stated

    def _made(self, given: Args) -> tuple[int, ...]:
        """The columns of a collective except its row and its number."""
        dtype = as_text(given.dtype) or ""
        size = element_bytes(dtype)
        group_size, rank = one_rank(given.group_size), one_rank(given.rank)
        if rank is not None and group_size:
            self.ranks_seen.add((rank, group_size))
        return (
            self.strings[as_text(given.collective) or ""],
            self.groups.number(given),
            _times(one_int(given.in_nelems), size),
            _times(one_int(given.out_nelems), size),
            self.strings[dtype],
            NULL if group_size is None else group_size,
            _not_negative(given.src),
            _not_negative(given.dst),
        )

    def add_memory(self, ts_ns: Array, args: list[Args]) -> None:
        """A block of [memory] samples."""
        if not args:
            return
        kinds = to_int64([a.device_type for a in args])
        device = np.where(np.isin(kinds, _DEVICE_MEMORY), to_int64([a.device_id for a in args]), NULL)
        allocated, reserved = to_int64([a.allocated for a in args]), to_int64([a.reserved for a in args])
        self.memory.append(np.stack((ts_ns, device, allocated, reserved))[:, ts_ns != NULL])


def _with_rows(rows: Array, events: Callable[[Array], Sequence[Event]]) -> Iterable[tuple[int, Event]]:
    return zip(rows.tolist(), events(rows), strict=True) if len(rows) else ()


@lru_cache(maxsize=REMEMBERED)
def _peer_and_tag(operator: str, values: bytes) -> tuple[int, int]:
    """Peer and tag arguments of a c10d operator; NULL where the trace lacks them (recorded with shapes)."""
    try:
        given = json.loads(values or b"[]")
    except (ValueError, RecursionError):
        given = []
    inputs = given if isinstance(given, list) else []
    peer, tag = (inputs[at] if at is not None and at < len(inputs) else NULL for at in MESSAGE_INPUTS[operator])
    return _not_negative(peer), _not_negative(tag)


def _not_negative(value: Any) -> int:
    """A number, missing where it is negative: Kineto writes -1 for unknown."""
    number = one_int(value)
    return number if number >= 0 else NULL


def _times(count: int, size: int | None) -> int:
    return count * size if count >= 0 and size is not None and count < _MOST_ELEMENTS else NULL


@lru_cache(maxsize=REMEMBERED)  # the same few shapes recur
def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _tensor_bytes(dims: str, types: str) -> tuple[int, str]:
    """Bytes of all input tensors of a call, and the dtype of the first; (NULL, "") without shapes."""
    try:
        shapes, names = json.loads(dims), json.loads(types)
    except (ValueError, RecursionError):
        return NULL, ""
    if not isinstance(shapes, list) or not isinstance(names, list):
        return NULL, ""
    total, dtype = 0, ""
    for shape, name in zip(shapes, names, strict=False):
        size = element_bytes(str(name)) if isinstance(name, str) else None
        count = _elements(shape)
        if size is None or count is None:
            continue
        total += size * count
        dtype = dtype or str(name)
    return (total, dtype) if dtype and total < 2**62 else (NULL, "")


def _elements(shape: Any) -> int | None:
    """Elements of a tensor of this shape; None for an invalid shape, or for more elements than any memory holds."""
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        return None
    if not all(type(n) is int and 0 <= n < _MOST_ELEMENTS for n in shape):
        return None
    count = math.prod(shape)
    return count if count < _MOST_ELEMENTS else None
