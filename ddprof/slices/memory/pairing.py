"""Allocations and frees to blocks: from which event to which each was held. Exact for any order of events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.tables import Array

BEFORE = -1  # `first` of a block that was there before the first event


@dataclass(frozen=True)
class Blocks:
    """Blocks as columns of equal length: held after event `first` and until event `last` (which frees it).

    `first` is BEFORE for what was there already; `last` is the number of events for what is never freed. `lost`: frees
    of an address that nothing held, and allocations at one that was held: events that the recording is missing.
    """

    address: Array
    size_bytes: Array
    first: Array
    last: Array
    lost: int = 0

    def at(self, event: int) -> Array:
        """Which are held after this event; bool."""
        return np.asarray((self.first <= event) & (self.last > event))


def pair(address: Array, size_bytes: Array, is_alloc: Array, order: Array, count: int) -> Blocks:
    """The blocks of some events. `order`: the number of each event, rising; `count`: of all events there are.

    `size_bytes` is positive for frees too. The first event of an address being a free, its block was there before.
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
