"""Replay of one device's events: bytes held and reserved after each, and their blocks and segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.slices.memory.model import NO_STACK, Action, DeviceHistory
from ddprof.tables import Array, Table

BEFORE = -1  # `first` of a block that was there before the first event


@dataclass(frozen=True)
class Replayed:
    """The replayed memory. `stack`, `told`: rows of each block's stack and of its category in the file (-1: none).

    `held_bytes`, `reserved_bytes`: before the first event and after each, shape (events + 1,). `segments`: None where
    they are expandable, whose pages come and go one by one. `adrift_bytes`: difference between the blocks left by the
    events and those that the file states at its end.
    """

    blocks: Blocks
    stack: Array
    told: Array
    held_bytes: Array
    reserved_bytes: Array
    segments: Blocks | None
    adrift_bytes: int


def replay(history: DeviceHistory) -> Replayed:
    """The replayed memory, exact where no event is lost; a free without an allocation is of a block held before."""
    events, count = history.events, len(history.events)
    action = events["action"]
    freeing = Action.FREE_COMPLETED if (action == Action.FREE_COMPLETED).any() else Action.FREE_REQUESTED
    kept = np.flatnonzero((action == Action.ALLOC) | (action == freeing))
    seen = events.take(kept)
    blocks = pair(seen["address"], seen["size_bytes"], seen["action"] == Action.ALLOC, kept, count)
    at_end = blocks.last == count
    is_explained = np.isin(history.blocks["address"], blocks.address[at_end])
    untouched = history.blocks.take(~np.isin(history.blocks["address"], seen["address"]))
    adrift = int(history.blocks["size_bytes"][~is_explained].sum() - untouched["size_bytes"].sum())
    adrift += int(blocks.size_bytes[at_end & ~np.isin(blocks.address, history.blocks["address"])].sum())
    born = blocks.first != BEFORE
    row = np.where(born, blocks.first, 0)
    columns = [events[name][row] if count else np.empty(0, np.int64) for name in ("stack", "told")]
    stack, category = (np.where(born, column, NO_STACK) for column in columns)
    all_blocks = _with(blocks, untouched, count)
    return Replayed(
        all_blocks,
        np.concatenate((stack, untouched["stack"])),
        np.concatenate((category, np.full(len(untouched), -1))),
        held_bytes(all_blocks, count),
        _reserved(history),
        _segments(history),
        adrift,
    )


def _with(blocks: Blocks, untouched: Table, count: int) -> Blocks:
    """The blocks, with those that no event names: present before the first event and after the last."""
    return Blocks(
        np.concatenate((blocks.address, untouched["address"])),
        np.concatenate((blocks.size_bytes, untouched["size_bytes"])),
        np.concatenate((blocks.first, np.full(len(untouched), BEFORE))),
        np.concatenate((blocks.last, np.full(len(untouched), count))),
        blocks.lost,
    )


def _reserved(history: DeviceHistory) -> Array:
    """Reserved bytes after each event, from the segments at the end backwards."""
    action, size = history.events["action"], history.events["size_bytes"]
    more = np.isin(action, (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP))
    less = np.isin(action, (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP))
    change = np.where(more, size, 0) - np.where(less, size, 0)
    after = np.concatenate(([0], np.cumsum(change)))
    return np.asarray(after + int(history.segments["size_bytes"].sum()) - after[-1])


def _segments(history: DeviceHistory) -> Blocks | None:
    events, count = history.events, len(history.events)
    action = events["action"]
    by_pages = np.isin(action, (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)).any()
    if by_pages or history.segments["is_expandable"].any():
        return None
    kept = np.flatnonzero((action == Action.SEGMENT_ALLOC) | (action == Action.SEGMENT_FREE))
    seen = events.take(kept)
    segments = pair(seen["address"], seen["size_bytes"], seen["action"] == Action.SEGMENT_ALLOC, kept, count)
    return _with(segments, history.segments.take(~np.isin(history.segments["address"], seen["address"])), count)


def trapped_bytes(replayed: Replayed, event: int) -> tuple[int, int] | None:
    """Bytes reserved but not held after an event: (in segments in use, in empty ones); None: segments are unknown."""
    segments = replayed.segments
    if segments is None:
        return None
    there, live = segments.at(event), replayed.blocks.at(event)
    order = np.argsort(segments.address[there], kind="stable")
    start, size = segments.address[there][order], segments.size_bytes[there][order]
    if not len(start):
        return None
    address = replayed.blocks.address[live]
    inside = np.searchsorted(start, address, side="right") - 1
    is_inside = (inside >= 0) & (address < start[inside] + size[inside])
    held = np.zeros(len(start), np.int64)
    np.add.at(held, inside[is_inside], replayed.blocks.size_bytes[live][is_inside])
    used = held > 0
    return int(np.maximum(size - held, 0)[used].sum()), int(size[~used].sum())


@dataclass(frozen=True)
class Blocks:
    """Blocks as columns of equal length: held after event `first` and until event `last` (which frees it).

    `first` is BEFORE for earlier blocks; `last` is the number of events for blocks never freed. `lost`: frees of free
    addresses and allocations of held ones, due to missing events.
    """

    address: Array
    size_bytes: Array
    first: Array
    last: Array
    lost: int = 0

    def at(self, event: int) -> Array:
        """Mask of blocks held after this event."""
        return np.asarray((self.first <= event) & (self.last > event))


def pair(address: Array, size_bytes: Array, is_alloc: Array, order: Array, count: int) -> Blocks:
    """The blocks of some events. `order`: ascending number of each event; `count`: of all events.

    `size_bytes` is positive for frees too. A block existed before if the first event of its address is a free.
    """
    by_address = np.lexsort((order, address))
    address, size, alloc, number = (column[by_address] for column in (address, size_bytes, is_alloc, order))
    opens = np.append(True, address[1:] != address[:-1])[: len(address)]
    closes = np.append(opens[1:], True)[: len(address)]
    after = np.append(number[1:], count)[: len(address)]  # the next event of the same address ends it, whatever it is
    born = np.flatnonzero(alloc)
    inherited = np.flatnonzero(opens & ~alloc)
    twice = np.append(alloc[:-1] & alloc[1:], False)[: len(address)] & ~closes
    unheld = ~alloc & ~opens & ~np.append(False, alloc[:-1])[: len(address)]
    return Blocks(
        np.concatenate((address[inherited], address[born])),
        np.concatenate((size[inherited], size[born])),
        np.concatenate((np.full(len(inherited), BEFORE), number[born])),
        np.concatenate((number[inherited], np.where(closes[born], count, after[born]))),
        int(twice.sum() + unheld.sum()),
    )


def held_bytes(blocks: Blocks, count: int) -> Array:
    """Bytes held before the first event and after each; shape (count + 1,)."""
    change = np.zeros(count + 2, np.int64)
    np.add.at(change, blocks.first + 1, blocks.size_bytes)
    np.subtract.at(change, blocks.last + 1, blocks.size_bytes)
    return np.cumsum(change[: count + 1])
