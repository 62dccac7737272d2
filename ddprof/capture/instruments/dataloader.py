"""Data loading: the training thread's waits for batches, loader settings, contents of batches, and sample indices.

Beside them the passes over data that a DistributedSampler shuffles: does the order change from epoch to epoch?
"""

from __future__ import annotations

import sys
import weakref
from types import ModuleType
from typing import Any

from ddprof.capture.describe.loader import MAX_TENSORS, described, distributed_sampler, items_of
from ddprof.capture.describe.stacks import script_line
from ddprof.capture.files.step import DATA
from ddprof.capture.instruments.base import Instrumentor

EVALUATION = "ddprof::evaluation_data"  # the range of a fetch that no training step waits for
_MAX_INDICES = 512  # per loader
_MIN_INDICES = 64  # a pass that asked for fewer (a peek at one batch, a sanity check) gives way to the next
_MAX_LOADERS = 8  # whose indices are kept


class DataLoading(Instrumentor):
    """Times `_BaseDataLoaderIter.__next__`, through which every DataLoader hands out batches."""

    def _install(self, module: ModuleType) -> None:
        source = sys.modules["torch.utils.data.dataloader"]
        hub = self.hub
        self._indices: dict[int, list[int]] = {}  # by loader's number: what its first pass asked for
        self._loader_of: dict[int, int] = {}  # id of the sampler that the iterators hold -> number of the loader
        self._last: int | None = None  # number of the loader of the latest batch
        self._trains: int | None = None  # number of the loader that feeds the training, once known
        self._wanted: set[int] = set()  # samplers whose indices are still kept
        self._passes, self._datasets = SamplerPasses(), DatasetStates()
        self._described = False  # the first batch
        self._begun = 0  # passes of the training over its loaders
        self._tensor: Any = sys.modules["torch"].Tensor
        fetch: Any = source._BaseDataLoaderIter.__next__
        iterate: Any = source.DataLoader.__iter__
        begins = hub.guard.wrap(self._begins)
        saw_batch = hub.guard.wrap_hook(self.saw_batch)
        pass_ends, datasets_end = hub.guard.wrap(self._passes.ends), hub.guard.wrap(self._datasets.ends)
        begin, end, unmarked = hub.begin, hub.end, hub.unmarked
        learns = sys.modules["torch"].is_grad_enabled

        def __next__(iterator: Any) -> Any:
            if unmarked:
                unmarked[0].fetch_begins()
            # No training loop fetches with gradients disabled: once one has begun, that is an evaluation's batch.
            evaluates = self._trains is not None and not learns()
            token = begin(DATA, EVALUATION if evaluates else None)
            try:
                batch = fetch(iterator)
            except StopIteration:
                pass_ends(iterator)
                datasets_end(iterator)
                raise
            finally:
                end(DATA, token)
            if not evaluates:
                saw_batch(iterator, batch)
            return batch

        def __iter__(loader: Any) -> Any:
            begins(loader)
            evaluates = self._trains is not None and not learns()
            self._begun += not evaluates
            token = begin(DATA, EVALUATION if evaluates else None)  # workers start here
            try:
                return iterate(loader)
            finally:
                end(DATA, token)

        if hasattr(source._BaseDataLoaderIter, "_next_index"):
            self._watch_indices(source._BaseDataLoaderIter)
        self.patches.add(source._BaseDataLoaderIter, "__next__", __next__)
        self.patches.add(source.DataLoader, "__iter__", __iter__)
        self._time_ends_of_workers(source._MultiProcessingDataLoaderIter)

    def optimizer_stepped(self) -> bool:
        """Note the training's loader: that of the last batch before the first optimizer step."""
        if self._last is None:
            return True
        self._trains = self._last
        self.hub.observed.trains_with(self._last)
        return False

    def recorded(self) -> dict[str, Any]:
        """The first 512 indices of the training loader's first pass, in order, and passes of shuffling samplers."""
        first = next(iter(self._indices.values()), [])
        return {
            "sample_indices": first if self._trains is None else self._indices.get(self._trains, []),
            "sampler_passes": self._passes.recorded(self._trains),
            "loader_passes": self._begun,
            "dataset_changed": self._datasets.changed(self._trains),
        }

    def _begins(self, loader: Any) -> None:
        """Handle the beginning of a pass over a loader."""
        number = self.hub.observed.saw_loader(loader)
        self._passes.begins(loader, number)
        self._datasets.begins(loader, number)
        sampler = id(getattr(loader, "_index_sampler", None))
        self._wanted.discard(sampler)
        if number is None:
            self._loader_of.pop(sampler, None)
            return
        self._loader_of[sampler] = number
        # A later epoch is shuffled anew: what two ranks read then says nothing about how they share one.
        is_kept = len(self._indices.get(number, ())) >= _MIN_INDICES
        if not is_kept and (number in self._indices or len(self._indices) < _MAX_LOADERS):
            self._indices[number] = []
            self._wanted.add(sampler)

    def _time_ends_of_workers(self, cls: Any) -> None:
        """Book the end of a pass's worker processes to loading, as their start is."""
        original: Any = getattr(cls, "_shutdown_workers", None)
        begin, end = self.hub.begin, self.hub.end

        def _shutdown_workers(iterator: Any) -> Any:
            token = begin(DATA, None)
            try:
                return original(iterator)
            finally:
                end(DATA, token)

        if original is not None:
            self.patches.add(cls, "_shutdown_workers", _shutdown_workers)

    def _watch_indices(self, cls: Any) -> None:
        """Record a rank's first indices, which show whether ranks read the same samples."""
        draw = cls._next_index
        keep, wanted = self.hub.guard.wrap_hook(self._keep_indices), self._wanted

        def _next_index(iterator: Any) -> Any:
            drawn = draw(iterator)
            if wanted:
                keep(iterator, drawn)
            return drawn

        self.patches.add(cls, "_next_index", _next_index)

    def _keep_indices(self, iterator: Any, drawn: Any) -> None:
        sampler = id(getattr(iterator, "_index_sampler", None))
        if sampler not in self._wanted:
            return
        kept = self._indices.get(self._loader_of.get(sampler, -1))
        if kept is None or len(kept) >= _MAX_INDICES:
            self._wanted.discard(sampler)
            return
        batch = drawn if isinstance(drawn, (list, tuple)) else [drawn]
        kept.extend(index for index in batch[: _MAX_INDICES - len(kept)] if isinstance(index, int))

    def saw_batch(self, iterator: Any, batch: Any) -> None:
        """Book a batch to the open step."""
        journal = self.hub.journal
        size: Any = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
        if self._trains is None:
            self._last = self._loader_of.get(id(getattr(iterator, "_index_sampler", None)), self._last)
        if not self._described:
            self._described = True
            journal.batch = described(batch, self.hub.guard, journal.note)
        tensor, samples, elements, seen = self._tensor, 0, 0, 0
        for item in batch if type(batch) is list else items_of(batch):
            if isinstance(item, tensor):
                elements += item.numel()
                if not samples and item.dim():  # of sequences the first dimension may be the time
                    samples = size if not item.is_nested and size in item.shape else item.size(0)
                seen += 1
                if seen == MAX_TENSORS:
                    break
        journal.batch_fetched(self.hub.tracker.index, samples, elements)


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
