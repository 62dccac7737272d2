"""Time and spread of iterations, from the lines about iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median, quantiles

from ddprof.slices.training_logs.model import DECILES_FROM, IterationSummary, LoggedIteration
from ddprof.slices.training_logs.reading.keyed import WRITER

# Robust standard deviations beyond the median: 1.4826 times the median deviation is one of a normal distribution, and
# beyond five lies one of three million.
OUTLIER = 5 * 1.4826


TIME_ONE = frozenset({WRITER})  # prints the time of one iteration, however few are printed


def summarise(iterations: Sequence[LoggedIteration], writers: Sequence[str] = ()) -> IterationSummary | None:
    """Summary of the iterations after the warm-up: without the first line of each start and the slow ones after the
    very first; of all where none remain.
    """
    if not iterations:
        return None
    later = [now for before, now in pairwise(iterations) if now.number > before.number]
    counted = later or list(iterations)
    bound = _usual_ms(counted)
    warm = next((at for at, iteration in enumerate(counted) if iteration.mean_ms <= bound), 0) if later else 0
    counted = counted[warm:]
    times = [iteration.mean_ms for iteration in counted]
    middle, bound = median(times), _usual_ms(counted)
    slow = [iteration for iteration in counted if len(counted) > 2 and iteration.mean_ms > bound]
    steps = Counter(now.number - before.number for before, now in pairwise(iterations))
    deciles = quantiles(times, n=10, method="inclusive") if len(times) >= DECILES_FROM else [min(times), max(times)]
    rates = [iteration.tflops for iteration in counted if iteration.tflops is not None]
    batches = [iteration.batch / iteration.mean_ms * 1e3 for iteration in counted if iteration.batch is not None]
    return IterationSummary(
        lines=len(iterations),
        counted=len(counted),
        every=max(1, steps.most_common(1)[0][0]) if steps and not TIME_ONE.intersection(writers) else 1,
        median_ms=middle,
        low_ms=deciles[0],
        high_ms=deciles[-1],
        mean_ms=sum(times) / len(times),
        slow=tuple(slow),
        slow_share=sum(iteration.mean_ms - middle for iteration in slow) / sum(times),
        tflops=median(rates) if rates else None,
        samples_per_s=median(batches) if batches else None,
    )


def _usual_ms(iterations: Sequence[LoggedIteration]) -> float:
    """Upper limit of a usual iteration, ms; longer ones are outliers."""
    times = [iteration.mean_ms for iteration in iterations]
    middle = median(times)
    return middle + OUTLIER * median(abs(time - middle) for time in times)
