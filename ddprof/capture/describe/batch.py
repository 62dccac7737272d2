"""The first batch: shapes, types and fingerprints of its tensors, without their values."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ddprof.capture.guard import Guard

MAX_TENSORS = 8  # described of the first batch
_MAX_HASHED_BYTES = 65536  # of a tensor: its fingerprint costs microseconds
_MAX_DISTINCT_OF = 1024  # values that are looked at for the next limit
_MIN_DISTINCT = 4  # values: masks and padding are alike on all ranks


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
