"""Cost of a message: latency and bandwidth from the trace's own size -> time points."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.tables import Array

MIN_POINTS = 16  # for a slope from nearly equal sizes
MIN_SPREAD = 0.005  # standard deviation of the sizes over their mean
MIN_SIZE_RANGE = 1.5  # largest over smallest size: less cannot separate latency from bandwidth


class CostModel(Struct, frozen=True):
    """Transfer time against size: t = alpha + size / bandwidth.

    Errs 8-15 % on average outside the sizes it was fitted on.
    """

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
        return _narrow_fit(sizes_bytes[usable].astype(float), times_ns[usable])
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


def _narrow_fit(sizes: Array, times: Array) -> CostModel | None:
    """The fit for nearly equal sizes: they prove latency where times hardly follow size, by the steepest slope."""
    spread = float(sizes.std())
    if len(sizes) < MIN_POINTS or spread < MIN_SPREAD * float(sizes.mean()):
        return None
    slope = float(np.cov(sizes, times)[0, 1]) / spread**2
    residual = times - times.mean() - slope * (sizes - sizes.mean())
    typical = averages.NORMAL_MAD * float(np.median(np.abs(residual - np.median(residual))))
    steepest = max(slope, 0.0) + 2 * typical / (spread * len(sizes) ** 0.5)
    alpha = float(np.median(times)) - steepest * float(np.median(sizes))
    return CostModel(alpha, 1.0 / steepest) if alpha >= 0.5 * float(np.median(times)) and steepest > 0 else None
