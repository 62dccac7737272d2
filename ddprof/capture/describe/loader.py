"""A DataLoader's settings and its sampler, and the first batch: shapes, types and fingerprints, without its values."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ddprof.capture.guard import Guard
from ddprof.capture.identity import joined

_MAP_STYLE = 0  # torch.utils.data.dataloader._DatasetKind.Map
_SETTINGS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
_MAX_NESTING = 4  # sampler inside batch sampler inside a framework's shard wrapper

MAX_TENSORS = 8  # described of the first batch
_MAX_HASHED_BYTES = 65536  # of a tensor: its fingerprint costs microseconds
_MAX_DISTINCT_OF = 1024  # values that are looked at for the next limit
_MIN_DISTINCT = 4  # values: masks and padding are alike on all ranks


def describe(loader: Any) -> dict[str, Any]:
    """The loader's settings. `dataset_length` is null for iterable data sets."""
    return {
        **{name: getattr(loader, name, None) for name in _SETTINGS},
        "batch_size": _batch_size(loader),
        "drop_last": getattr(loader, "drop_last", None),
        "dataset": type(getattr(loader, "dataset", None)).__name__,
        "dataset_length": _length(getattr(loader, "dataset", None)),
        "multiprocessing_context": getattr(getattr(loader, "multiprocessing_context", None), "_name", None),
        "batches_per_epoch": _batches(loader),
        "sampler": _sampler(loader),
    }


def distributed_sampler(holder: Any) -> Any:
    """The sampler that gives each rank its shard, of a loader or an iterator over one; None where there is none."""
    index_sampler = getattr(holder, "_index_sampler", None)
    for sampler in (*_chain(holder), index_sampler, _inner_sampler(index_sampler)):
        if isinstance(getattr(sampler, "num_replicas", None), int):
            return sampler
    return None


def _batches(loader: Any) -> int | None:
    """Number of batches of one pass on this rank; null for iterable data sets, whose length can raise a warning."""
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None or not hasattr(type(getattr(loader, "dataset", None)), "__getitem__"):
        return None
    return _length(sampler)


def _batch_size(loader: Any) -> int | None:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


def _length(dataset: Any) -> int | None:
    """Length of a data set or sampler; null where it has none or fails."""
    if dataset is None or not hasattr(type(dataset), "__len__"):
        return None
    try:
        return len(dataset)
    except TypeError:
        return None


def _sampler(loader: Any) -> dict[str, Any] | None:
    """The innermost sampler; `sharded` is null for samplers of unknown classes."""
    chain = _chain(loader)
    if not chain:
        return None
    distributed = joined()
    by_name = {type(sampler).__name__: sampler for sampler in chain}
    for sampler in chain:
        replicas = getattr(sampler, "num_replicas", None) or getattr(sampler, "num_processes", None)
        if isinstance(replicas, int):
            return _sharded(sampler, chain[-1], replicas)
    name = type(chain[-1]).__name__
    plain = name in ("SequentialSampler", "RandomSampler", "WeightedRandomSampler", "SubsetRandomSampler")
    return {
        "class": name,
        "num_replicas": None,
        "rank": None,
        "shuffle": "RandomSampler" in by_name if plain else None,
        "sharded": (distributed is None or distributed.get_world_size() == 1) if plain else None,
        "even": True if plain else None,
    }


def _sharded(sampler: Any, innermost: Any, replicas: int) -> dict[str, Any]:
    shuffle = getattr(sampler, "shuffle", None)
    if not isinstance(shuffle, bool):
        shuffle = type(innermost).__name__ == "RandomSampler"
    total, dataset = getattr(sampler, "total_size", None), _length(getattr(sampler, "dataset", None))
    return {
        "class": type(sampler).__name__,
        "num_replicas": replicas,
        "rank": getattr(sampler, "rank", getattr(sampler, "process_index", None)),
        "shuffle": shuffle,
        "sharded": replicas > 1,
        # Every rank gets the same count by padding or dropping; samples are repeated where the total is above the
        # data set.
        "even": None if total is None or dataset is None else total == dataset,
        "epoch": getattr(sampler, "epoch", None),
    }


def _chain(loader: Any) -> list[Any]:
    """The loader's samplers, outermost first; [] for an iterable data set, which draws its samples itself."""
    samplers: list[Any] = []
    if getattr(loader, "_dataset_kind", _MAP_STYLE) != _MAP_STYLE:
        return samplers
    current = _inner_sampler(loader)
    while current is not None and current not in samplers and len(samplers) < _MAX_NESTING:
        samplers.append(current)
        current = _inner_sampler(current)
    return samplers


def _inner_sampler(holder: Any) -> Any:
    """The sampler inside `holder`, compared only with None: a sampler's truth value is its length, if it has one."""
    inner = getattr(holder, "batch_sampler", None)
    return getattr(holder, "sampler", None) if inner is None else inner


def described(batch: Any, guard: Guard, note: Callable[[str], object]) -> dict[str, Any]:
    """The entry for the sidecar; `note` is told what is left out."""
    tensor = sys.modules["torch"].Tensor
    all_tensors = [item for item in items_of(batch) if isinstance(item, tensor)][:MAX_TENSORS]
    tensors = [tensor for tensor in all_tensors if not tensor.is_nested]
    if len(tensors) < len(all_tensors):
        note("nested tensors of the first batch are not described: they have no one shape")
    return {
        "tensors": [
            {
                "shape": [int(n) for n in tensor.shape],
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "fingerprint": guard.attempt("fingerprint", partial(_fingerprint, tensor)),
            }
            for tensor in tensors
        ]
    }


def items_of(batch: Any) -> Iterable[Any]:
    """Elements of a batch, tensors among them; their data is not read."""
    if isinstance(batch, (list, tuple)):  # first: it is the usual one, and asking for a Mapping takes a microsecond
        return batch
    return batch.values() if isinstance(batch, Mapping) else (batch,)


def _fingerprint(tensor: Any) -> str | None:
    """A checksum of the first 64 KiB of values: shows whether two ranks got the same batch, without keeping data.

    None for tensors on a device (nothing is copied) and where a few values repeat (labels of two classes are equal by
    chance).
    """
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu" or type(tensor) is not torch.Tensor or not tensor.numel():
        return None
    flat = tensor.detach().reshape(-1)[: _MAX_HASHED_BYTES // tensor.element_size()].contiguous()
    if len(torch.unique(flat[:_MAX_DISTINCT_OF])) < _MIN_DISTINCT:
        return None
    return f"{zlib.crc32(flat.view(torch.uint8).numpy().tobytes()):08x}"
