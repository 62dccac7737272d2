"""Timelines with the operators of some ranks, which hold every slice again: the newest are kept, within a bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from ddprof.dashboard.timeline.lanes import Timeline

KEPT_BYTES = 128 * 2**20  # about 4 million slices: a page goes back and forth between two or three sets of open ranks
Key = tuple[int, frozenset[int]] | tuple[int, int]  # number of the run, and ranks or the run that it is laid beside


class KeptTimelines:
    """The most recently used timelines: as many as `most_bytes` hold, the newest in any case."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[Key, Timeline] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key, build: Callable[[], Timeline]) -> Timeline:
        """The timeline of a key, built where it is not kept."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
        made = build()  # outside of the lock: other runs go on meanwhile
        with self._lock:
            self._known[key] = made
            while len(self._known) > 1 and self.kept_bytes > self._most_bytes:
                self._known.popitem(last=False)
        return made

    @property
    def kept_bytes(self) -> int:
        """What the kept timelines hold."""
        return sum(timeline.held_bytes for timeline in self._known.values())


# One for the process: several open runs share the bound.
KEPT = KeptTimelines(KEPT_BYTES)
