"""A memory snapshot's pickle to columns. Values of a wrong type are dropped; each stack is parsed once, however many
events refer to it.

The fields are those that torch's allocator writes (torch/csrc/cuda/Module.cpp, memory_snapshot.cpp); older files have
fewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.readers.files.safe_pickle import UnsafePickle, plain_value
from ddprof.readers.files.streams import read_small
from ddprof.readers.numbers import one_int
from ddprof.readers.source import Source
from ddprof.slices.memory.model import (
    ALLOCATOR_EVENTS,
    HELD_BLOCKS,
    NO_STACK,
    SEGMENTS,
    Action,
    CodeFrame,
    DeviceHistory,
    Snapshot,
)
from ddprof.tables import NULL

MAX_BYTES = 512 << 20  # a million events with their stacks are some 200 MB
MAX_EVENTS = 4_000_000  # a file may refer to one event many times
MAX_FRAMES = 512  # of a stack: deeper ones are recursion
_ACTIONS = {action.name.lower(): int(action) for action in Action}
_HELD = ("active_allocated", "active_awaiting_free", "active_pending_free")
# torch.profiler._memory_profiler.Category, which a file may state by number.
_CATEGORIES = ("input", "temporary", "activation", "gradient", "autograd_detail", "parameter", "optimizer_state")
MAX_OBJECTS = 12_000_000  # of a million events: a dict, a tuple, a list and three numbers each, and their stacks
# What makes no object and has a fixed length: marks, appending, references, small numbers, constants. In one
# expression, because it is most of such a file.
_CHEAP = re.compile(rb"(?:[(\x94aesuN\x88\x89.]|h.|q.|K.|\x80.|j.{4}|\x95.{8})+", re.S)
_FIXED = {
    **dict.fromkeys(b"])}\x8f\x91tld\x85\x86\x870120b", 0),
    **{ord("M"): 2, ord("J"): 4, ord("G"): 8},
}
_COUNTED = {  # operation: width of the length that follows it
    **dict.fromkeys(b"UC\x8a\x8c", 1),
    **dict.fromkeys(b"TXB\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}
_LINES = frozenset(b"IFLSVgp")  # protocol 0: the argument ends with the line
_CODE = frozenset(b"c\x93R\x81\x92oiPQ\x82\x83\x84b")


def read_snapshot(source: Source) -> Snapshot:
    """A whole snapshot file. Raises NoUsableInput where it cannot be read."""
    try:
        content = load_shared(read_small(source.path, source.member, MAX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("its root is not a dict")
        return _Reading(source.label).snapshot(content)
    except (ValueError, UnsafePickle) as error:
        raise NoUsableInput(f"{source.label}: a PyTorch memory snapshot that cannot be read ({error})") from error


class _Reading:
    """The tables of one file that other entries refer to: stacks, and stated categories."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._left = MAX_EVENTS
        self._of_list: dict[int, int] = {}  # id of a list of frames, which lives as long as the content
        self._of_frame: dict[int, CodeFrame] = {}
        self._stacks: dict[tuple[CodeFrame, ...], int] = {}
        self._told: dict[str, int] = {}

    def snapshot(self, content: dict[str, Any]) -> Snapshot:
        """The snapshot. Raises ValueError where it holds more than a file can."""
        traces = content.get("device_traces")
        events = {at: self._events(trace) for at, trace in enumerate(traces if isinstance(traces, list) else [])}
        held = self._held(content.get("segments"))
        devices = [
            DeviceHistory(
                device,
                ALLOCATOR_EVENTS.table(_columns(ALLOCATOR_EVENTS, events.get(device, []))),
                HELD_BLOCKS.table(_columns(HELD_BLOCKS, held.get(device, ([], []))[0])),
                SEGMENTS.table(_columns(SEGMENTS, held.get(device, ([], []))[1])),
            )
            for device in sorted({*held, *(at for at, rows in events.items() if rows)})
        ]
        settings = content.get("allocator_settings")
        plain = (
            {key: value for key, value in settings.items() if isinstance(value, str | int | float)}
            if (isinstance(settings, dict))
            else {}
        )
        return Snapshot(self._path, tuple(devices), tuple(self._stacks), tuple(self._told), plain)

    def _events(self, trace: Any) -> list[tuple[int, ...]]:
        rows: list[tuple[int, ...]] = []
        for event in self._dicts(trace):
            action = event.get("action")
            code = _ACTIONS.get(action, 0) if isinstance(action, str) else 0
            size = one_int(event.get("size"))
            address = one_int(event.get("device_free" if code == Action.OOM else "addr"))
            if size < 0 or address == NULL:
                continue
            stack, category = self._stack(event.get("frames")), self._category(event.get("category"))
            rows.append((code, address, size, one_int(event.get("time_us")), stack, category))
        return rows

    def _held(self, segments: Any) -> dict[int, tuple[list[tuple[int, ...]], list[tuple[int, ...]]]]:
        """Held blocks and segments by device."""
        by_device: dict[int, tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = {}
        for segment in self._dicts(segments):
            address, size = one_int(segment.get("address")), one_int(segment.get("total_size"))
            device = max(one_int(segment.get("device")), 0)
            blocks, reserved = by_device.setdefault(device, ([], []))
            if address != NULL and size > 0:
                reserved.append((address, size, segment.get("is_expandable") is True))
            for block in self._dicts(segment.get("blocks")):
                whole = one_int(block.get("size"))
                at = one_int(block.get("address", address))
                asked = one_int(block["requested_size"]) if "requested_size" in block else whole
                if block.get("state") in _HELD and asked > 0 and at != NULL:
                    blocks.append((at, asked, self._stack(_frames(block))))
                address += max(whole, 0) if address != NULL else 0
        return by_device

    def _dicts(self, value: Any) -> Iterator[dict[str, Any]]:
        entries = value if isinstance(value, list | tuple) else []
        self._left -= len(entries)
        if self._left < 0:
            raise ValueError(f"more than {MAX_EVENTS} events and blocks")
        return (entry for entry in entries if isinstance(entry, dict))

    def _stack(self, frames: Any) -> int:
        if not isinstance(frames, list | tuple) or not frames:
            return NO_STACK
        number = self._of_list.get(id(frames))
        if number is None:
            stack = tuple(self._frame(frame) for frame in frames[:MAX_FRAMES] if isinstance(frame, dict))
            number = self._stacks.setdefault(stack, len(self._stacks)) if stack else NO_STACK
            self._of_list[id(frames)] = number
        return number

    def _frame(self, frame: dict[str, Any]) -> CodeFrame:
        code_frame = self._of_frame.get(id(frame))
        if code_frame is None:
            line = one_int(frame.get("line"))
            code_frame = CodeFrame(_text(frame.get("filename")), max(line, 0), _text(frame.get("name")))
            self._of_frame[id(frame)] = code_frame
        return code_frame

    def _category(self, value: Any) -> int:
        if type(value) is int and 0 <= value < len(_CATEGORIES):
            value = _CATEGORIES[value]
        if not isinstance(value, str) or value.lower() not in _CATEGORIES:
            return -1
        return self._told.setdefault(value.lower(), len(self._told))


def _frames(block: dict[str, Any]) -> Any:
    """Frames of a block's stack, which files of torch 1.13 to 2.0 keep in its history."""
    history = block.get("history")
    if "frames" in block or not isinstance(history, list) or not history or not isinstance(history[0], dict):
        return block.get("frames")
    return history[0].get("frames")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _columns(schema: Any, rows: list[tuple[int, ...]]) -> dict[str, Any]:
    values = np.array(rows, np.int64).reshape(-1, len(schema.columns))
    return {column.name: values[:, at] for at, column in enumerate(schema.columns)}


def load_shared(content: bytes) -> Any:
    """The value of a large pickle of plain values; a stack shared by a million events is one list.

    Copying it as a tree (safe_pickle) would make each event its own stack. Instead what comes out is as it was written,
    and who reads it must look at each list once. What makes an object is counted before anything is made; what refers
    to one costs the few bytes that it takes in the file, which is bounded. Raises UnsafePickle, or ValueError where it
    is damaged.
    """
    _check(content)
    return plain_value(content)


def _check(content: bytes) -> None:
    at, size, made = 0, len(content), 0
    while at < size:
        cheap = _CHEAP.match(content, at)
        if cheap is not None:
            at = cheap.end()
            continue
        op = content[at]
        made += 1
        if op in _CODE:
            raise UnsafePickle("the pickle needs a class or function: refused")
        if op in _FIXED:
            at += 1 + _FIXED[op]
        elif op in _COUNTED:
            width = _COUNTED[op]
            at += 1 + width + int.from_bytes(content[at + 1 : at + 1 + width], "little")
        elif op == ord("r"):  # the place of a value among those that may be referred to: the table is as long as that
            if int.from_bytes(content[at + 1 : at + 5], "little") > at:
                raise ValueError("a pickle that refers to more values than it holds")
            at, made = at + 5, made - 1
        elif op in _LINES:
            raise ValueError("a pickle of protocol 0, which no snapshot uses")
        else:
            raise ValueError("damaged pickle")
        if made > MAX_OBJECTS:
            raise ValueError(f"a pickle of more than {MAX_OBJECTS} values")
