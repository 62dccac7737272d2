"""Explanation of a snapshot: each device's peak, its composition, memory the allocator cannot use, and memory that a
job keeps more of after every step.

A loop over layers allocates again and again and keeps it all, too; but between two layers no gradient is made and no
optimizer runs, while between two steps of a training both are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ddprof.findings import WARNING_SHARE
from ddprof.slices.memory import category as categories
from ddprof.slices.memory.model import (
    NO_STACK,
    Action,
    CodeFrame,
    DeviceHistory,
    DeviceMemory,
    Line,
    MemoryCurve,
    OutOfMemory,
    Share,
    Snapshot,
    SnapshotMemory,
)
from ddprof.slices.memory.replay import BEFORE, Blocks, Replayed, replay, trapped_bytes
from ddprof.slices.memory.text import frame_words
from ddprof.tables import NULL, Array
from ddprof.units import format_bytes

CURVE_POINTS = 400  # more than a screen can show
MOST_LINES = 20
MOST_FAILURES = 20  # a job that catches them may fail a thousand times
# The pages of an expandable segment of large blocks, kLargeBuffer of c10/core/AllocatorConfig.h: what lies free within
# one such page stays lost with them too.
PAGE_BYTES = 20 << 20
_SETTING = "expandable_segments:True in PYTORCH_{}_ALLOC_CONF"


def explain(snapshot: Snapshot) -> SnapshotMemory:
    """Memory that each device held at its peak, without devices that held none."""
    devices = [device for history in snapshot.devices if (device := _device(snapshot, history)) is not None]
    expandable = bool(snapshot.settings.get("expandable_segments")) or any(
        bool(history.segments["is_expandable"].any()) for history in snapshot.devices
    )
    return SnapshotMemory(snapshot.path, tuple(devices), expandable)


def _device(snapshot: Snapshot, history: DeviceHistory) -> DeviceMemory | None:
    replayed = replay(history)
    top = int(replayed.held_bytes.argmax())
    held = int(replayed.held_bytes[top])
    failures = _failures(snapshot, history, replayed)
    if held <= 0 and not failures:
        return None
    live = replayed.blocks.at(top - 1)
    purpose = _purposes(snapshot, history, replayed)
    lines, lineless = _lines(snapshot, replayed, live, purpose)
    apart = trapped_bytes(replayed, top - 1)
    shares = _shares(replayed.blocks.size_bytes[live], purpose[live])
    trains = bool(np.isin(purpose.astype(str), categories.TRAINING).any())
    at, has_times = _times(history)
    return DeviceMemory(
        history.device,
        len(history.events),
        int(at[top]) if has_times else None,
        int(at[-1]) if has_times else None,
        held,
        int(replayed.reserved_bytes[top]),
        int(replayed.reserved_bytes.max()),
        shares,
        lines,
        lineless,
        None if apart is None else apart[0],
        None if apart is None else apart[1],
        failures[:MOST_FAILURES],
        _curve(at, replayed),
        (
            *growth(snapshot, replayed, purpose, held),
            *advice(apart, failures, int(replayed.reserved_bytes[top]), trains, _setting(snapshot)),
            *_smaller(shares, trains),
        ),
        _notes(replayed, len(failures)),
    )


def _purposes(snapshot: Snapshot, history: DeviceHistory, replayed: Replayed) -> Array:
    """Category of each block, as text."""
    by_stack = np.array([categories.category_of(stack) for stack in snapshot.stacks] + [""], object)
    by_told = np.array([categories.told_category(stated) for stated in snapshot.told] + [""], object)
    purpose = by_stack[replayed.stack]  # -1: the last
    before = replayed.blocks.first == BEFORE
    purpose[replayed.stack == NO_STACK] = categories.NO_STACK
    purpose[(replayed.stack == NO_STACK) & before] = categories.BEFORE
    passes = (purpose == categories.ACTIVATIONS) | (purpose == categories.GRADIENTS)
    stays = _outlive(replayed.blocks, np.sort(replayed.blocks.first[passes]), len(history.events))
    optimizer = purpose == categories.OPTIMIZER
    purpose[optimizer & stays] = categories.OPTIMIZER_STATE
    purpose[optimizer & ~stays] = categories.OPTIMIZER_TEMPORARY
    return np.where(replayed.told >= 0, by_told[replayed.told], purpose)


def _outlive(blocks: Blocks, passes: Array, end: int) -> Array:
    """Mask of blocks that are held when a later pass allocates (`passes`: these events, sorted), or at the end."""
    following = np.append(passes, end)[np.searchsorted(passes, blocks.first, side="right")]
    held: Array = (following < blocks.last) | (blocks.last == end)
    return held


def _shares(size: Array, purpose: Array) -> tuple[Share, ...]:
    shares = []
    for category, (name, how) in categories.WORDS.items():
        of_category = purpose == category
        if of_category.any():
            is_known = category not in categories.UNKNOWN
            shares.append(Share(category, name, how, int(size[of_category].sum()), int(of_category.sum()), is_known))
    return tuple(sorted(shares, key=lambda share: -share.size_bytes))


def _lines(snapshot: Snapshot, replayed: Replayed, live: Array, purpose: Array) -> tuple[tuple[Line, ...], int]:
    """The lines with most bytes, and the bytes of all other and unknown lines."""
    size, stack, purpose = replayed.blocks.size_bytes[live], replayed.stack[live], purpose[live]
    at = {row: categories.line_of(snapshot.stacks[row]) for row in np.unique(stack).tolist() if row != NO_STACK}
    held: dict[CodeFrame, list[int]] = {}
    for row, frame in at.items():
        if frame is not None:
            held.setdefault(frame, []).append(row)
    lines = []
    for frame, rows in held.items():
        of_line = np.isin(stack, rows)
        kinds = np.unique(purpose[of_line].astype(str))
        main = max(kinds.tolist(), key=lambda kind: int(size[of_line & (purpose == kind)].sum()))
        lines.append(Line(frame, int(size[of_line].sum()), int(of_line.sum()), categories.WORDS[main][0]))
    lines.sort(key=lambda line: -line.size_bytes)
    shown = tuple(lines[:MOST_LINES])
    return shown, int(size.sum()) - sum(line.size_bytes for line in shown)


def _failures(snapshot: Snapshot, history: DeviceHistory, replayed: Replayed) -> tuple[OutOfMemory, ...]:
    events = history.events
    at, has_times = _times(history)
    failures: list[OutOfMemory] = []
    for row in np.flatnonzero(events["action"] == Action.OOM).tolist():
        apart = trapped_bytes(replayed, row) if len(failures) < MOST_FAILURES else None
        stack = int(events["stack"][row])
        failures.append(
            OutOfMemory(
                int(at[row + 1]) if has_times else None,
                int(events["size_bytes"][row]),
                int(events["address"][row]),
                int(replayed.held_bytes[row + 1]),
                int(replayed.reserved_bytes[row + 1]),
                None if apart is None else apart[0],
                None if stack == NO_STACK else categories.line_of(snapshot.stacks[stack]),
            )
        )
    return tuple(failures)


def _times(history: DeviceHistory) -> tuple[Array, bool]:
    """Times from the first event, before it and after each; event numbers where an event has no time."""
    at = history.events["at_us"]
    if not len(at) or (at == NULL).any():
        return np.arange(len(at) + 1), False
    since = np.maximum.accumulate(at - at[0])
    return np.concatenate(([0], since)), True


def _curve(at: Array, replayed: Replayed) -> MemoryCurve:
    """At most CURVE_POINTS points, each the largest of those it replaces, so that no peak is lost."""
    cuts = np.unique(np.linspace(0, len(at), CURVE_POINTS + 1).astype(np.int64))[:-1]
    curves = (np.maximum.reduceat(values, cuts) for values in (replayed.held_bytes, replayed.reserved_bytes))
    held, reserved = (tuple(values.tolist()) for values in curves)
    return MemoryCurve(tuple(at[cuts].tolist()), held, reserved)


def _notes(replayed: Replayed, failures: int) -> tuple[str, ...]:
    notes: Sequence[str] = [
        f"{replayed.blocks.lost} events contradict others: some are missing" * (replayed.blocks.lost > 0),
        f"what the events leave differs from the blocks at the end by {format_bytes(replayed.adrift_bytes)}"
        * (replayed.adrift_bytes > 0),
        f"{failures} allocations failed; the first {MOST_FAILURES} are shown" * (failures > MOST_FAILURES),
    ]
    return tuple(note for note in notes if note)


def advice(
    apart: tuple[int, int] | None,
    failures: Sequence[OutOfMemory],
    reserved_bytes: int,
    trains: bool = True,
    setting: str = _SETTING.format("CUDA"),
) -> tuple[str, ...]:
    """Advice on fragmentation, as far as the numbers support any. `apart`: (trapped, empty) bytes at the peak, None if
    not known. `trains`: a backward pass or an optimizer was seen.
    """
    saved = next((failure for failure in failures if _would_fit(failure)), None)
    if saved is not None and saved.trapped_bytes is not None:
        return (
            f"{setting}: the allocation of {format_bytes(saved.asked_bytes)} failed while "
            f"{format_bytes(saved.trapped_bytes)} lay free in pieces between blocks, beside "
            f"{format_bytes(saved.device_free_bytes)} of the device.",
        )
    if failures:
        worst = max(failures, key=lambda failure: failure.asked_bytes)
        return (
            f"The allocation of {format_bytes(worst.asked_bytes)} would not have fitted without fragmentation either: "
            f"hold less (smaller batch, {'activation checkpointing, ' if trains else ''}sharding).",
        )
    if apart is not None and apart[0] > max(PAGE_BYTES, WARNING_SHARE * reserved_bytes):
        return (
            f"{setting} could give back up to {format_bytes(apart[0])} of what is reserved at the peak: it lay free "
            "in pieces between blocks.",
        )
    return ()


def _setting(snapshot: Snapshot) -> str:
    """The setting that lets segments grow, of the allocator whose package stands in the stacks."""
    is_npu = any("torch_npu" in frame.file for stack in snapshot.stacks for frame in stack)
    return _SETTING.format("NPU" if is_npu else "CUDA")


def _smaller(shares: Sequence[Share], trains: bool) -> Iterator[str]:
    """Ways to hold less of what is known to take most."""
    known = [share for share in shares if share.category not in categories.UNKNOWN]
    ways = categories.SMALLER if trains else categories.SMALLER_UNTRAINED
    if known and (way := ways.get(known[0].category)):
        part = "part" if known[0] is shares[0] else "part whose purpose is known"
        yield f"The largest {part} is {known[0].name} ({format_bytes(known[0].size_bytes)}): {way}."


def _would_fit(failure: OutOfMemory) -> bool:
    """True where the fragments, joined with the device's free memory, cover the failed request."""
    if failure.trapped_bytes is None:
        return False
    usable = failure.trapped_bytes - PAGE_BYTES + failure.device_free_bytes
    return failure.device_free_bytes < failure.asked_bytes <= usable


# Two blocks may be what this step reads and what the next one will.
FEWEST_BLOCKS = 3
_OF_STEPS = (categories.GRADIENTS, categories.OPTIMIZER_STATE, categories.OPTIMIZER_TEMPORARY)


def growth(snapshot: Snapshot, replayed: Replayed, purpose: Array, peak_bytes: int) -> Iterator[str]:
    """Advice on each stack whose blocks are never freed and lie a step apart, largest first, where they are a share of
    the peak, `peak_bytes`, that is worth a warning. `purpose`: of each block.
    """
    blocks = replayed.blocks
    stepping = np.sort(blocks.first[np.isin(purpose, _OF_STEPS)])
    own = np.flatnonzero((replayed.stack != NO_STACK) & (purpose == categories.OTHER))
    own = own[np.lexsort((blocks.first[own], replayed.stack[own]))]
    stacks, begins = np.unique(replayed.stack[own], return_index=True)
    kept: list[tuple[int, int, int]] = []
    for number, rows in zip(stacks.tolist(), np.split(own, begins)[1:], strict=True):
        passed = np.searchsorted(stepping, blocks.first[rows])
        stays = (blocks.last[rows] == len(replayed.held_bytes) - 1).all()
        if stays and len(rows) >= FEWEST_BLOCKS and (np.diff(passed) > 0).all():
            kept.append((int(blocks.size_bytes[rows].sum()), len(rows), number))
    for size_bytes, count, number in sorted(kept, reverse=True):
        line = categories.line_of(snapshot.stacks[number])
        if line is not None and size_bytes >= WARNING_SHARE * peak_bytes:
            yield (
                f"Each step keeps more memory: {frame_words(line)} allocated {format_bytes(size_bytes)} in {count} "
                "steps, and nothing freed it. Let go of what refers to it (a list, a graph of autograd)."
            )
