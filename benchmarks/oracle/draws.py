"""Random numbers that depend only on what they are for: a run sees the same noise with and without a fault."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

import numpy as np

SLOTS = 512  # noise values drawn per (rank, step); operators beyond that reuse them


def generator(seed: int, *key: str | int) -> np.random.Generator:
    """A generator for one purpose: the same seed and key give the same numbers, whatever else was drawn."""
    words = [crc32(part.encode()) if isinstance(part, str) else int(part) & 0xFFFFFFFF for part in key]
    return np.random.default_rng([seed & 0xFFFFFFFF, *words])


@lru_cache(maxsize=4096)
def factors(seed: int, purpose: str, rank: int, step: int, sigma: float) -> tuple[float, ...]:
    """`SLOTS` factors around 1 with relative standard deviation `sigma`, never below 0.2."""
    values = 1.0 + sigma * generator(seed, purpose, rank, step).standard_normal(SLOTS)
    return tuple(np.maximum(values, 0.2).tolist())


@lru_cache(maxsize=65536)
def factor(seed: int, purpose: str, rank: int, step: int, sigma: float) -> float:
    """One factor around 1 for one purpose."""
    return float(max(0.2, 1.0 + sigma * generator(seed, purpose, rank, step).standard_normal()))
