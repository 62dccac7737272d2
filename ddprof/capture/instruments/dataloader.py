"""Data loading: time the training thread waits for a batch, the loader's settings, the shape of a batch."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.steps import DATA

_MAX_TENSORS = 8
_MAX_INDICES = 512


class DataLoading(Instrumentor):
    """Times `_BaseDataLoaderIter.__next__`: the one door through which every DataLoader hands out batches."""

    def _install(self, module: ModuleType) -> None:
        source = sys.modules["torch.utils.data.dataloader"]
        session = self.session
        fetch: Any = source._BaseDataLoaderIter.__next__
        iterate: Any = source.DataLoader.__iter__
        saw_loader = session.guard.wrap(session.observed.saw_loader)
        saw_batch = session.guard.wrap(self._saw_batch)

        def __next__(iterator: Any) -> Any:
            token = session.begin(DATA)
            try:
                batch = fetch(iterator)
            finally:
                session.end(DATA, token)
            if session.journal.batch is None:
                saw_batch(batch)
            return batch

        def __iter__(loader: Any) -> Any:
            saw_loader(loader)
            return iterate(loader)

        if hasattr(source._BaseDataLoaderIter, "_next_index"):
            self._watch_indices(source._BaseDataLoaderIter)
        self.patches.add(source._BaseDataLoaderIter, "__next__", __next__)
        self.patches.add(source.DataLoader, "__iter__", __iter__)

    def _watch_indices(self, cls: Any) -> None:
        """The first indices a rank asks for: whether ranks read the same samples can be seen from them."""
        draw = cls._next_index
        keep = self.session.guard.wrap(self._keep_indices)

        def _next_index(iterator: Any) -> Any:
            drawn = draw(iterator)
            if len(self.session.journal.sample_indices) < _MAX_INDICES:
                keep(drawn)
            return drawn

        self.patches.add(cls, "_next_index", _next_index)

    def _keep_indices(self, drawn: Any) -> None:
        kept = self.session.journal.sample_indices
        batch = drawn if isinstance(drawn, (list, tuple)) else [drawn]
        kept.extend(index for index in batch[: _MAX_INDICES - len(kept)] if isinstance(index, int))

    def _saw_batch(self, batch: Any) -> None:
        self.session.journal.batch = {"tensors": _tensors(batch)}


def _tensors(batch: Any) -> list[dict[str, Any]]:
    """Shape and dtype of the tensors in a batch; nothing is read from them."""
    if isinstance(batch, dict):
        items = list(batch.values())
    elif isinstance(batch, (list, tuple)):
        items = list(batch)
    else:
        items = [batch]
    tensors = [item for item in items if hasattr(item, "dtype") and hasattr(item, "shape")]
    return [
        {"shape": [int(n) for n in tensor.shape], "dtype": str(tensor.dtype).removeprefix("torch.")}
        for tensor in tensors[:_MAX_TENSORS]
    ]
