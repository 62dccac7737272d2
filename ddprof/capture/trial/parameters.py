"""What a rank has trained, as one number that differs where a single bit does, and as some values that tell by how
much."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_CHUNK = 1 << 22  # elements that are worked on at once: 32 MiB as whole numbers
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 over the golden ratio, as a signed number: neighbours weigh differently
_SAMPLED_TENSORS, _SAMPLED_VALUES = 256, 16


def held(optimizers: Iterable[Any]) -> dict[str, Any]:
    """All parameters of these optimizers, each once, in their order; of a sharded one the part that this rank holds.

    `digest` is worked out where the tensors are; one number of each leaves the device. Raises RuntimeError where torch
    cannot read a tensor.
    """
    torch = sys.modules["torch"]
    with torch.no_grad():
        tensors = list(_local(optimizers))
        sums = [_sum(torch, tensor) for tensor in tensors]
        fetched = [int(value) for value in torch.stack([s.cpu() for s in sums]).tolist()] if sums else []
        sample = _sample(torch, tensors)
    shapes = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors]
    return {
        "tensors": len(tensors),
        "size_bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "digest": hashlib.sha256(repr((shapes, fetched)).encode()).hexdigest()[:32],
        "sample": sample,
    }


def _local(optimizers: Iterable[Any]) -> Iterator[Any]:
    seen = set[int]()
    for optimizer in optimizers:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                tensor = parameter.detach()
                yield tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _sum(torch: Any, tensor: Any) -> Any:
    """Each element's bits times a weight of its place, modulo 2**64. The weights are odd, so a change of one element
    always shows."""
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for start, bits in _bits(torch, tensor):
        place = torch.arange(start, start + bits.numel(), dtype=torch.int64, device=tensor.device)
        total += (bits.to(torch.int64) * (place * _ODD).bitwise_or_(1)).sum()
    return total


def _bits(torch: Any, tensor: Any) -> Iterator[tuple[int, Any]]:
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    for start in range(0, flat.numel(), _CHUNK):
        yield start, flat[start : start + _CHUNK].view(whole)


def _sample(torch: Any, tensors: Sequence[Any]) -> list[float]:
    """Values spread over the tensors, and over each of them: the same places in every run."""
    real = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    chosen = real[:: -(-len(real) // _SAMPLED_TENSORS)] if real else []
    values: list[float] = []
    for tensor in chosen:
        flat = tensor.reshape(-1)
        values += flat[:: -(-flat.numel() // _SAMPLED_VALUES)].to(torch.float32).cpu().tolist()
    return [value if abs(value) < 1e300 else 0.0 for value in values]
