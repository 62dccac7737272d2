"""A memory snapshot: the peak of each device by category and by line, and memory over time."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Named, sheet
from ddprof.dashboard.figures.charts import Curve, Curves, Part, Stacked
from ddprof.slices.memory.model import DeviceMemory
from ddprof.slices.memory.text import failure_words, fragmentation_words, frame_words, sentence
from ddprof.units import format_bytes, format_share

GIB = 2**30
# No category is a cause of the ledger: the names of the theme in turn, the unknown ones pale.
_COLORS = {
    "parameters": "accent",
    "activations": "good",
    "gradients": "heat-less",
    "optimizer_state": "heat-more",
    "optimizer_temporary": "warning",
    "communication": "critical",
}


def device_exhibits(memory: DeviceMemory) -> Iterator[Exhibit]:
    """The charts of one device."""
    yield _peak(memory)
    yield _lines(memory)
    if len(memory.curve.at_us) > 1:
        yield _curve(memory)
    if memory.out_of_memory:
        yield _failures(memory)


def _peak(memory: DeviceMemory) -> Exhibit:
    rows = [(s.name, s.size_bytes, _percent(s.size_bytes, memory), s.blocks, s.how) for s in memory.shares]
    columns = ("what", "at the peak (bytes)", "share (%)", "blocks", "how it is told")
    parts = [Part(s.category, s.name, _COLORS.get(s.category, "quiet"), [s.size_bytes / GIB]) for s in memory.shares]
    unused = max(0, memory.reserved_bytes - memory.held_bytes)
    parts.append(Part("unused", "reserved and not held", "line", [unused / GIB]))
    unknown = (
        f" The purpose of {format_share(memory.unknown_bytes / memory.held_bytes)} is unknown."
        if (memory.unknown_bytes and memory.held_bytes)
        else ""
    )
    reading = " ".join((sentence(memory) + unknown, fragmentation_words(memory), *memory.advice))
    chart = Stacked([f"device {memory.device}"], parts, "GiB")
    return Exhibit(f"memory-peak-{memory.device}", "What is the peak made of?", reading, sheet(columns, rows), chart)


def _lines(memory: DeviceMemory) -> Exhibit:
    rows = [
        (
            Named(frame_words(line.frame)),
            line.size_bytes,
            _percent(line.size_bytes, memory),
            line.blocks,
            line.category,
            line.frame.file,
        )
        for line in memory.lines
    ]
    columns = ("line of the script", "at the peak (bytes)", "share (%)", "blocks", "mostly", "file")
    reading = "No stacks were recorded (torch.cuda.memory._record_memory_history records them)."
    if memory.lines:
        most = memory.lines[0]
        reading = (
            f"{frame_words(most.frame)} allocated {format_bytes(most.size_bytes)} of what is held at the peak, "
            f"{format_share(most.size_bytes / memory.held_bytes)} of it."
        )
    return Exhibit(f"memory-lines-{memory.device}", "Which lines allocated it?", reading, sheet(columns, rows))


def _curve(memory: DeviceMemory) -> Exhibit:
    curve = memory.curve
    timed = memory.at_us is not None
    at = [value / 1e3 if timed else float(value) for value in curve.at_us]
    title = "time since the first event (ms)" if timed else "event"
    rows = list(zip(at, curve.held_bytes, curve.reserved_bytes, strict=True))
    drawn = [
        Curve("held by tensors", at, [value / GIB for value in curve.held_bytes]),
        Curve("reserved by the allocator", at, [value / GIB for value in curve.reserved_bytes], dotted=True),
    ]
    reading = f"{memory.events} events; at most {format_bytes(memory.most_reserved_bytes)} were reserved."
    chart = Curves(drawn, title, "GiB", None, "")
    columns = (title, "allocated (bytes)", "reserved (bytes)")
    return Exhibit(f"memory-curve-{memory.device}", "When is it fullest?", reading, sheet(columns, rows), chart)


def _failures(memory: DeviceMemory) -> Exhibit:
    columns = ("after (ms)", "asked for (bytes)", "left on the device (bytes)", "held (bytes)", "reserved (bytes)")
    rows = [
        (None if f.at_us is None else f.at_us / 1e3, f.asked_bytes, f.device_free_bytes, f.held_bytes, f.reserved_bytes)
        for f in memory.out_of_memory
    ]
    reading = failure_words(memory.out_of_memory[0])
    return Exhibit(f"memory-failures-{memory.device}", "Which allocations failed?", reading, sheet(columns, rows))


def _percent(size_bytes: int, memory: DeviceMemory) -> float | None:
    return 100 * size_bytes / memory.held_bytes if memory.held_bytes else None
