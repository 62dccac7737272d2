"""PyTorch memory snapshots (`torch.cuda.memory._dump_snapshot`): no steps, so no run to analyze. What is said of one is
its peak: which work allocated what was held then, and at which lines.

The allocator's events are followed from the first to the last; what was there before them, and is never freed in them,
is known by the blocks at the end (torch.cuda.memory, `Snapshot`). Pickles are read as plain values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ddprof.errors import NoUsableInput
from ddprof.outside.plain_text import clean
from ddprof.readers.columns.numbers import one_int
from ddprof.readers.files.safe_pickle import UnsafePickle, load_plain
from ddprof.readers.files.streams import read_small
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source
from ddprof.units import format_bytes, format_share

_PICKLE = re.compile(rb"\A\x80[\x02-\x05]")
_MARKS = re.compile(rb"segments.{0,200}(?:device|address|total_size)|device_traces", re.S)
_WORDS = (b"segments", b"device_traces")
_HELD = ("active_allocated", "active_awaiting_free", "active_pending_free")
_SHOWN = 3  # lines in the message
_BEFORE = "before the recording"
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d")


@dataclass
class _Peak:
    """Bytes held on one device: now, and at most, by (work, line)."""

    now: Counter[tuple[str, str]] = field(default_factory=Counter)
    now_bytes: int = 0
    most: Counter[tuple[str, str]] = field(default_factory=Counter)
    most_bytes: int = 0

    def add(self, place: tuple[str, str], size_bytes: int) -> None:
        """Allocate (or, of a negative size, free); the peak is kept when it passes."""
        if size_bytes < 0 and self.now_bytes > self.most_bytes:
            self.most, self.most_bytes = self.now.copy(), self.now_bytes
        self.now[place] += size_bytes
        self.now_bytes += size_bytes

    def end(self) -> None:
        """The peak may be what is held at the end."""
        self.add((_BEFORE, ""), 0)
        if self.now_bytes > self.most_bytes:
            self.most, self.most_bytes = self.now.copy(), self.now_bytes


def _refuse(source: Source) -> NoReturn:
    """Raises NoUsableInput that says what the snapshot shows."""
    try:
        content = load_plain(read_small(source.path, source.member))
    except (ValueError, UnsafePickle) as error:
        raise NoUsableInput(f"{source.label}: a PyTorch memory snapshot that cannot be read ({error})") from error
    said = [words for device, peak in _peaks(content) if (words := _words(device, peak))]
    shown = "; ".join(said) or "nothing was held while it was recorded"
    why = "a PyTorch memory snapshot, which has no steps to analyze (`ddprof run` records steps)"
    raise NoUsableInput(f"{source.label}: {why}. {shown}")


def _peaks(content: Any) -> Iterator[tuple[int, _Peak]]:
    """Each device that held something."""
    fields = content if isinstance(content, dict) else {}
    blocks: dict[int, dict[int, tuple[tuple[str, str], int]]] = {}
    for segment in _dicts(fields.get("segments")):
        device = one_int(segment.get("device"))
        address = one_int(segment.get("address"))
        for block in _dicts(segment.get("blocks")):
            size = one_int(block.get("size"))
            at = one_int(block.get("address")) if "address" in block else address
            if block.get("state") in _HELD and size > 0:
                blocks.setdefault(device, {})[at] = (_place(block.get("frames")), size)
            address += max(size, 0)
    traces = fields.get("device_traces")
    events = {at: list(_dicts(trace)) for at, trace in enumerate(traces if isinstance(traces, list) else [])}
    for device in sorted({*blocks, *(at for at, found in events.items() if found)}):
        yield device, _follow(events.get(device, []), blocks.get(device, {}))


def _follow(events: list[dict[str, Any]], left: Mapping[int, tuple[tuple[str, str], int]]) -> _Peak:
    peak = _Peak()
    held: dict[int, tuple[tuple[str, str], int]] = {}
    for address, known in _before(events, left).items():
        held[address] = known
        peak.add(*known)
    for event in events:
        action, address, size = event.get("action"), one_int(event.get("addr")), one_int(event.get("size"))
        if action == "alloc" and size > 0:
            held[address] = (_place(event.get("frames")), size)
            peak.add(*held[address])
        elif action == "free_completed" and address in held:
            place, size = held.pop(address)
            peak.add(place, -size)
    peak.end()
    return peak


def _before(
    events: list[dict[str, Any]], left: Mapping[int, tuple[tuple[str, str], int]]
) -> dict[int, tuple[tuple[str, str], int]]:
    """What was held before the first event: freed in the events and not allocated in them before, or still there."""
    found: dict[int, tuple[tuple[str, str], int]] = {}
    seen: set[int] = set()
    for event in events:
        action, address, size = event.get("action"), one_int(event.get("addr")), one_int(event.get("size"))
        if action == "free_completed" and address not in seen and size > 0:
            found[address] = ((_BEFORE, ""), size)
        if action in ("alloc", "free_completed"):
            seen.add(address)
    return {**found, **{address: known for address, known in left.items() if address not in seen}}


def _place(frames: Any) -> tuple[str, str]:
    """(which work allocates here, the innermost line that is no library's)."""
    named = [
        (str(frame.get("filename", "")), str(frame.get("name", "")), one_int(frame.get("line")))
        for frame in _dicts(frames)
    ]
    if not named:
        return _BEFORE, ""
    own = (f"{_base_name(file)}:{at}" for file, _, at in named if file.endswith(".py") and not _LIBRARY.search(file))
    line = next(own, "")
    return _work(named), line


def _base_name(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _work(named: list[tuple[str, str, int]]) -> str:
    files, functions = [file.replace("\\", "/") for file, _, _ in named], {name for _, name, _ in named}
    if any("/torch/optim/" in file for file in files):
        return "optimizer"
    if any("/torch/autograd/" in file for file in files) or any("backward" in name.lower() for name in functions):
        return "backward"
    if "forward" in functions:
        return "forward"
    return "other"


def _words(device: int, peak: _Peak) -> str:
    if peak.most_bytes <= 0:
        return ""
    by_work: Counter[str] = Counter()
    by_line: Counter[str] = Counter()
    for (work, line), held in peak.most.items():
        by_work[work] += held
        by_line[line] += held if line else 0
    works = ", ".join(f"{work} {format_share(held / peak.most_bytes)}" for work, held in by_work.most_common() if held)
    lines = ", ".join(f"{clean(line)} {format_bytes(held)}" for line, held in by_line.most_common(_SHOWN) if held)
    text = f"device {device} held {format_bytes(peak.most_bytes)} at its peak, allocated by: {works}"
    return f"{text}; most at {lines}" if lines else text


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (entry for entry in value if isinstance(entry, dict))


def _recognise(sample: Sample) -> bool:
    return _PICKLE.match(sample.head) is not None and sample.has(_MARKS, _WORDS) and b"pg_config" not in sample.head


FORMAT = Format("memory_snapshot", "a PyTorch memory snapshot", _recognise, _refuse, _refuse)
