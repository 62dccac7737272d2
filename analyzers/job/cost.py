"""What a message costs: latency and bandwidth from the trace's own size -> time points (science.md F1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.tables import Array

MIN_SIZE_RANGE = 1.5  # largest over smallest size: less cannot separate latency from bandwidth


@dataclass(frozen=True)
class CostModel:
    """Transfer time against size: t = alpha + size / bandwidth. Errs 8-15 % on average outside the sizes it was fitted on."""

    alpha_ns: float
    bytes_per_ns: float

    def time_ns(self, size_bytes: float) -> float:
        """Predicted transfer of a message."""
        return self.alpha_ns + size_bytes / self.bytes_per_ns


def fit_cost(sizes_bytes: Array, times_ns: Array) -> CostModel | None:
    """Least relative error over the medians per size; None where sizes do not vary enough."""
    usable = (sizes_bytes > 0) & (times_ns > 0)
    if not usable.any():
        return None
    sizes, inverse = np.unique(sizes_bytes[usable].astype(float), return_inverse=True)
    if sizes[-1] < MIN_SIZE_RANGE * sizes[0]:
        return None
    counts = np.bincount(inverse)
    times = np.array([np.median(times_ns[usable][inverse == i]) for i in range(len(sizes))])
    weight = np.sqrt(counts) / times
    design = np.stack((np.ones(len(sizes)), sizes), axis=1) * weight[:, None]
    (alpha, per_byte), *_ = np.linalg.lstsq(design, np.sqrt(counts), rcond=None)
    if per_byte <= 0:  # larger messages are no slower: all latency
        return CostModel(float(np.average(times, weights=counts)), float("inf"))
    if alpha < 0:
        return CostModel(0.0, float(np.average(sizes / times, weights=counts)))
    return CostModel(float(alpha), 1.0 / float(per_byte))
