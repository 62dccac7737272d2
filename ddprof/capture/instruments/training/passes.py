"""Passes over data: the order of a DistributedSampler, and the state of the data set, from epoch to epoch."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from ddprof.capture.describe.loader import distributed_sampler
from ddprof.capture.describe.stacks import script_line

_MAX_SAMPLERS = 16
_MAX_NESTING, _MAX_ATTRIBUTES = 4, 64  # of data sets in data sets; of a data set, whose state is compared
_PLAIN = (int, float, str, type(None))


class _Passes:
    """Passes over one sampler. A pass that was left early (a peek at one batch) is not an epoch."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = weakref.ref(sampler)
        self.loaders: set[int] = set()
        self.begun = self.ended = self.repeated = 0
        self.line: Any = None
        self._order: Any = None  # what decides the order of the pass under way
        self._complete = False

    def begins(self, sampler: Any, loader: int | None) -> None:
        order = (getattr(sampler, "epoch", None), getattr(sampler, "seed", None))
        self.repeated += self._complete and order == self._order
        if loader is not None:
            self.loaders.add(loader)
        self.begun += 1
        self.line = script_line()
        self._order, self._complete = order, False

    def ends(self) -> None:
        self.ended += 1
        self._complete = True


class SamplerPasses:
    """Passes over loaders whose sampler shuffles by `set_epoch`."""

    def __init__(self) -> None:
        self._passes: dict[int, _Passes] = {}

    def begins(self, loader: Any, number: int | None) -> None:
        """Handle the beginning of a pass over a loader, with its number."""
        sampler = distributed_sampler(loader)
        if sampler is None or not _is_shuffled_by_epoch(sampler):
            return
        passes = self._passes.get(id(sampler))
        if passes is None or passes.sampler() is not sampler:
            if len(self._passes) >= _MAX_SAMPLERS:
                return
            passes = self._passes[id(sampler)] = _Passes(sampler)
        passes.begins(sampler, number)

    def ends(self, iterator: Any) -> None:
        """Handle a loader's last batch."""
        sampler = distributed_sampler(iterator)
        passes = None if sampler is None else self._passes.get(id(sampler))
        if passes is not None:
            passes.ends()

    def recorded(self, trains: int | None) -> list[dict[str, Any]]:
        """The record for the sidecar; `trains`: number of the loader that feeds the training."""
        return [
            {
                "begun": passes.begun,
                "ended": passes.ended,
                "repeated": passes.repeated,
                "trains": trains in passes.loaders,
                "line": passes.line,
            }
            for passes in self._passes.values()
        ]


class DatasetStates:
    """Data sets that the training process itself changes between two passes: workers that live on keep the old copy."""

    def __init__(self) -> None:
        self._state: dict[int, Any] = {}  # by id of the data set
        self._changed: set[int] = set()
        self._of: dict[int, int] = {}  # loader's number -> id of its data set

    def begins(self, loader: Any, number: int | None) -> None:
        """Handle the beginning of a pass over a loader, with its number."""
        dataset = getattr(loader, "dataset", None)
        state, last = _state(dataset), self._state.get(id(dataset))
        if last is not None and last != state:
            self._changed.add(id(dataset))
        if number is not None:
            self._of[number] = id(dataset)
            self._state[id(dataset)] = state

    def ends(self, iterator: Any) -> None:
        """Handle a loader's last batch: what making batches has changed is no change between passes."""
        dataset = getattr(iterator, "_dataset", None)
        if id(dataset) in self._state:
            self._state[id(dataset)] = _state(dataset)

    def changed(self, number: int | None) -> bool:
        """True where the data set of a loader was changed between passes."""
        return self._of.get(-1 if number is None else number) in self._changed


def _state(dataset: Any) -> list[Any]:
    """Attributes of a data set and of those inside it: plain values, and the identity of others."""
    state: list[Any] = []
    for _ in range(_MAX_NESTING):
        held = list(getattr(dataset, "__dict__", {}).items())[:_MAX_ATTRIBUTES]
        state.append([(name, value if isinstance(value, _PLAIN) else id(value)) for name, value in held])
        dataset = getattr(dataset, "dataset", None)
    return state


def _is_shuffled_by_epoch(sampler: Any) -> bool:
    """True where `set_epoch` decides the sampler's order; a class with its own drawing of indices may not need it."""
    module = sys.modules.get("torch.utils.data.distributed")
    base = getattr(module, "DistributedSampler", None)
    plain = base is not None and isinstance(sampler, base) and type(sampler).__iter__ is base.__iter__
    return bool(plain and sampler.shuffle is True and sampler.num_replicas > 1)
