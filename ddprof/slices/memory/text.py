"""Snapshots as text: a sentence per device, its peak's composition, the largest lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ddprof.slices.memory.model import CodeFrame, DeviceMemory, OutOfMemory, SnapshotMemory
from ddprof.units import format_bytes, format_share, format_us
from ddprof.untrusted.plain_text import clean

WIDTH = 100
SHOWN_LINES = 8


def render_memory(files: Sequence[SnapshotMemory]) -> str:
    """The memory report as plain characters, ending in a newline."""
    lines: list[str] = []
    for file in files:
        lines += [f"Memory snapshot {file.path}", ""]
        for device in file.devices:
            lines += [*_device(device), ""]
        if not file.devices:
            lines += ["Nothing was held while it was recorded.", ""]
    return "\n".join(clean(line).rstrip() for line in lines)


def _device(memory: DeviceMemory) -> Iterator[str]:
    yield from textwrap.wrap(sentence(memory), WIDTH)
    yield ""
    rows = [(s.name, format_bytes(s.size_bytes), _share(s.size_bytes, memory), s.how) for s in memory.shares]
    yield from _table((("what", "at the peak", "share", "how it is told"), *rows))
    if memory.unknown_bytes:
        yield f"The purpose of {_share(memory.unknown_bytes, memory)} of it is unknown."
    if memory.lines:
        yield ""
        rows = [
            (format_bytes(line.size_bytes), _share(line.size_bytes, memory), frame_words(line.frame), line.category)
            for line in memory.lines[:SHOWN_LINES]
        ]
        yield from _table((("at the peak", "share", "allocated at", "mostly"), *rows))
    yield ""
    yield from textwrap.wrap(fragmentation_words(memory), WIDTH)
    for failure in memory.out_of_memory:
        yield from textwrap.wrap(failure_words(failure), WIDTH)
    for words in memory.advice:
        yield from textwrap.wrap(f"Do: {words}", WIDTH)
    for words in memory.notes:
        yield from textwrap.wrap(f"Note: {words}.", WIDTH)


def sentence(memory: DeviceMemory) -> str:
    """The peak in one sentence."""
    when = "" if memory.at_us is None else f", {format_us(memory.at_us)} after the first of {memory.events} events"
    most = max(memory.reserved_bytes, memory.most_reserved_bytes)
    later = f" (at most {format_bytes(most)})" if most > memory.reserved_bytes else ""
    return (
        f"Device {memory.device}: tensors held {format_bytes(memory.held_bytes)} at the peak{when}; "
        f"{format_bytes(memory.reserved_bytes)} were reserved then{later}."
    )


def fragmentation_words(memory: DeviceMemory) -> str:
    """Memory reserved but not held at the peak, in words."""
    if memory.trapped_bytes is None or memory.empty_bytes is None:
        return f"Reserved and not held at the peak: {format_bytes(max(0, memory.reserved_bytes - memory.held_bytes))}."
    return (
        f"Reserved and not held at the peak: {format_bytes(memory.trapped_bytes)} in segments in use (fragmentation, "
        f"rounding), {format_bytes(memory.empty_bytes)} in empty segments (cache)."
    )


def failure_words(failure: OutOfMemory) -> str:
    """Sentence on one failed allocation."""
    when = "" if failure.at_us is None else f" after {format_us(failure.at_us)}"
    where = "" if failure.frame is None else f" at {frame_words(failure.frame)}"
    return (
        f"Out of memory{when}{where}: asked for {format_bytes(failure.asked_bytes)}; the device had "
        f"{format_bytes(failure.device_free_bytes)} left, {format_bytes(failure.held_bytes)} were held of "
        f"{format_bytes(failure.reserved_bytes)} reserved."
    )


def frame_words(frame: CodeFrame) -> str:
    """File name, line and function of a frame; for autograd its node alone."""
    if not frame.file:
        return f"{frame.function} (autograd)"
    name = frame.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{frame.line} {frame.function}"


def _share(size_bytes: int, memory: DeviceMemory) -> str:
    return format_share(size_bytes / memory.held_bytes) if memory.held_bytes else "-"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
