"""Cost of a message: latency and bandwidth from the trace's own size -> time points, and bus bandwidth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from ddprof.tables import Array

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


# Bus bandwidth over algorithm bandwidth of each collective, by nccl-tests (PERFORMANCE.md).

# busbw = algbw x factor(n) (nccl-tests PERFORMANCE.md); the size is the total array.
_BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
}


def bus_factor(op: str, ranks: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth of a collective among so many ranks; None for other operations."""
    factor = _BUS_FACTORS.get(op)
    return None if factor is None or ranks < 2 else factor(ranks)


# Cost of a message of any size: interpolation of the trace's own points, a straight line beyond them.
#
# Log-log interpolation of measured points errs 4.5 to 8 %, one latency and bandwidth pair 8 to 15 % (fits of the all-
# reduce sweeps in ml-engineering, 1 MiB to 1 GiB), so the line serves only where no point was measured.

LATENCY_BOUND_RATE = 2.0  # bytes per ns: below it a device's message is mostly latency
BINS_PER_OCTAVE = 2  # of message sizes, each with one typical time


class TransferPrior(Struct, frozen=True):
    """Assumptions about a link that a run does not measure."""

    latency_ns: float  # of one call where all messages have one size, and no more than half of what that message took
    bytes_per_ns: float  # the fastest there is
    latency_bound_bytes_per_ns: float  # messages of one size that move more slowly are mostly latency


class TransferCurve(Struct, frozen=True):
    """Transfer time against size: sorted measured points (bytes, ns), and the line used outside them."""

    sizes_bytes: Array
    times_ns: Array
    line: CostModel
    is_prior: bool  # the line's latency is assumed, not measured

    def time_ns(self, size_bytes: float) -> float:
        """Predicted transfer of one message; 0 for an empty one."""
        if size_bytes <= 0:
            return 0.0
        low, high = float(self.sizes_bytes[0]), float(self.sizes_bytes[-1])
        if low <= size_bytes <= high and len(self.sizes_bytes) > 1:
            logs = np.interp(np.log(size_bytes), np.log(self.sizes_bytes), np.log(self.times_ns))
            return float(np.exp(logs))
        # Beyond the points: from the nearest one along the line, so that the curve has no jump there.
        nearest, measured = (low, self.times_ns[0]) if size_bytes < low else (high, self.times_ns[-1])
        return float(measured) * self.line.time_ns(size_bytes) / max(self.line.time_ns(nearest), 1e-9)


def transfer_curve(sizes_bytes: Array, times_ns: Array, prior: TransferPrior) -> TransferCurve | None:
    """The curve of one kind of communication; None where no size is known.

    Sizes within half an octave are one point, at their medians; times never fall with size.
    """
    usable = (sizes_bytes > 0) & (times_ns > 0)
    if not usable.any():
        return None
    sizes, times = sizes_bytes[usable].astype(float), times_ns[usable].astype(float)
    key = np.round(np.log2(sizes) * BINS_PER_OCTAVE)
    bins = np.unique(key)
    at = np.array([np.median(sizes[key == b]) for b in bins])
    took = np.maximum.accumulate(np.array([np.median(times[key == b]) for b in bins]))
    model = fit_cost(sizes, times)
    if model is not None:
        rate = prior.bytes_per_ns
        if model.bytes_per_ns <= rate:
            return TransferCurve(at, took, model, False)
        # Times that hardly follow sizes do not prove a link faster than there is.
        return TransferCurve(at, took, CostModel(max(0.0, float(took[-1]) - float(at[-1]) / rate), rate), True)
    if float(at[-1]) < prior.latency_bound_bytes_per_ns * float(took[-1]):
        return _narrow_curve(sizes, times, prior)
    latency = min(prior.latency_ns, 0.5 * float(took[-1]))
    line = CostModel(latency, float(at[-1]) / (float(took[-1]) - latency))
    return TransferCurve(at, took, line, True)


def _narrow_curve(sizes: Array, times: Array, prior: TransferPrior) -> TransferCurve:
    """The curve for sizes of nearly one value, which prove latency (fit_cost) but hardly bandwidth.

    So the slope is the least that is significant, but no flatter than a fast link's.
    """
    spread = float(sizes.std())
    slope = 0.0
    if spread and len(sizes) > 2:
        slope = float(np.cov(sizes, times)[0, 1]) / spread**2
        residual = times - times.mean() - slope * (sizes - sizes.mean())
        slope -= 2 * float(residual.std(ddof=2)) / (spread * len(sizes) ** 0.5)
    size, time = float(np.median(sizes)), float(np.median(times))
    slope = min(max(slope, 1.0 / prior.bytes_per_ns), time / size)
    return TransferCurve(np.array([size]), np.array([time]), CostModel(time - slope * size, 1.0 / slope), True)
