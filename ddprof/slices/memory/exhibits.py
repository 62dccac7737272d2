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


def device_exhibits(told: DeviceMemory) -> Iterator[Exhibit]:
    """The charts of one device."""
    yield _peak(told)
    yield _lines(told)
    if len(told.curve.at_us) > 1:
        yield _curve(told)
    if told.out_of_memory:
        yield _failures(told)


def _peak(told: DeviceMemory) -> Exhibit:
    rows = [(s.name, s.size_bytes, _percent(s.size_bytes, told), s.blocks, s.how) for s in told.shares]
    columns = ("what", "at the peak (bytes)", "share (%)", "blocks", "how it is told")
    parts = [Part(s.category, s.name, _COLORS.get(s.category, "quiet"), [s.size_bytes / GIB]) for s in told.shares]
    unused = max(0, told.reserved_bytes - told.held_bytes)
    parts.append(Part("unused", "reserved and not held", "line", [unused / GIB]))
    unknown = (
        f" The purpose of {format_share(told.unknown_bytes / told.held_bytes)} is unknown."
        if (told.unknown_bytes and told.held_bytes)
        else ""
    )
    reading = " ".join((sentence(told) + unknown, fragmentation_words(told), *told.advice))
    chart = Stacked([f"device {told.device}"], parts, "GiB")
    return Exhibit(f"memory-peak-{told.device}", "What is the peak made of?", reading, sheet(columns, rows), chart)


def _lines(told: DeviceMemory) -> Exhibit:
    rows = [
        (
            Named(frame_words(line.frame)),
            line.size_bytes,
            _percent(line.size_bytes, told),
            line.blocks,
            line.category,
            line.frame.file,
        )
        for line in told.lines
    ]
    columns = ("line of the script", "at the peak (bytes)", "share (%)", "blocks", "mostly", "file")
    reading = "No stacks were recorded (torch.cuda.memory._record_memory_history records them)."
    if told.lines:
        most = told.lines[0]
        reading = (
            f"{frame_words(most.frame)} allocated {format_bytes(most.size_bytes)} of what is held at the peak, "
            f"{format_share(most.size_bytes / told.held_bytes)} of it."
        )
    return Exhibit(f"memory-lines-{told.device}", "Which lines allocated it?", reading, sheet(columns, rows))


def _curve(told: DeviceMemory) -> Exhibit:
    curve = told.curve
    timed = told.at_us is not None
    at = [value / 1e3 if timed else float(value) for value in curve.at_us]
    title = "time since the first event (ms)" if timed else "event"
    rows = list(zip(at, curve.held_bytes, curve.reserved_bytes, strict=True))
    drawn = [
        Curve("held by tensors", at, [value / GIB for value in curve.held_bytes]),
        Curve("reserved by the allocator", at, [value / GIB for value in curve.reserved_bytes], dotted=True),
    ]
    reading = f"{told.events} events; at most {format_bytes(told.most_reserved_bytes)} were reserved."
    chart = Curves(drawn, title, "GiB", None, "")
    columns = (title, "allocated (bytes)", "reserved (bytes)")
    return Exhibit(f"memory-curve-{told.device}", "When is it fullest?", reading, sheet(columns, rows), chart)


def _failures(told: DeviceMemory) -> Exhibit:
    columns = ("after (ms)", "asked for (bytes)", "left on the device (bytes)", "held (bytes)", "reserved (bytes)")
    rows = [
        (None if f.at_us is None else f.at_us / 1e3, f.asked_bytes, f.device_free_bytes, f.held_bytes, f.reserved_bytes)
        for f in told.out_of_memory
    ]
    reading = failure_words(told.out_of_memory[0])
    return Exhibit(f"memory-failures-{told.device}", "Which allocations failed?", reading, sheet(columns, rows))


def _percent(size_bytes: int, told: DeviceMemory) -> float | None:
    return 100 * size_bytes / told.held_bytes if told.held_bytes else None
