"""Time and spread of iterations, from the lines about iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median, quantiles

from ddprof.findings import WARNING_SHARE
from ddprof.slices.training_logs.model import DECILES_FROM, IterationSummary, LoggedIteration, TrainingLog
from ddprof.slices.training_logs.reading.keyed import WRITER

# Robust standard deviations beyond the median: 1.4826 times the median deviation is one of a normal distribution, and
# beyond five lies one of three million.
OUTLIER = 5 * 1.4826
# Distances between slow iterations that are the same: four in five are no chance where one in ten is slow.
ALIKE, FEWEST_ALIKE = 0.8, 4


def summarise(log: TrainingLog) -> IterationSummary | None:
    """Summary of the iterations after the warm-up: without the first line of each start and the slow ones after the
    very first; of all where none remain.
    """
    iterations = log.iterations
    if not iterations:
        return None
    later = [now for before, now in pairwise(iterations) if now.number > before.number]
    counted = later or list(iterations)
    bound = _usual_ms(counted)
    warm = next((at for at, iteration in enumerate(counted) if iteration.mean_ms <= bound), 0) if later else 0
    counted = counted[warm:]
    times = [iteration.mean_ms for iteration in counted]
    middle, bound = median(times), _usual_ms(counted)
    bound = max(bound, (1 + WARNING_SHARE) * middle)
    slow = [iteration for iteration in counted if len(counted) > 2 and iteration.mean_ms > bound]
    steps = Counter(now.number - before.number for before, now in pairwise(iterations))
    deciles = quantiles(times, n=10, method="inclusive") if len(times) >= DECILES_FROM else [min(times), max(times)]
    rates = [iteration.tflops for iteration in counted if iteration.tflops is not None]
    batches = [iteration.batch / iteration.mean_ms * 1e3 for iteration in counted if iteration.batch is not None]
    every = max(1, steps.most_common(1)[0][0]) if steps else 1
    is_of_one = WRITER in log.writers and not log.are_means  # however few are printed
    excess_ms = sum(iteration.mean_ms - middle for iteration in slow)
    # Where slow iterations come at a distance of their own, a multiple of the lines', all between lines are usual.
    is_in_step = is_of_one and period_of([iteration.number for iteration in slow], every)
    unlogged_ms = (every - 1) * middle * len(counted) if is_in_step else 0.0
    return IterationSummary(
        lines=len(iterations),
        counted=len(counted),
        every=1 if is_of_one else every,
        median_ms=middle,
        low_ms=deciles[0],
        high_ms=deciles[-1],
        mean_ms=sum(times) / len(times),
        slow=tuple(slow),
        slow_share=excess_ms / (sum(times) + unlogged_ms),
        printed_mean_ms=sum(iteration.printed_ms or iteration.mean_ms for iteration in counted) / len(counted),
        tflops=median(rates) if rates else None,
        samples_per_s=median(batches) if batches else None,
    )


def period_of(numbers: Sequence[int], every: int) -> int | None:
    """Number of iterations from one of these to the next, where most are as far apart; None where they are not."""
    apart = [after - before for before, after in pairwise(numbers)]
    if len(apart) < FEWEST_ALIKE:
        return None
    usual = round(median(apart))
    rounded = every if every > 1 else 0  # one in so many is logged
    alike = sum(abs(steps - usual) <= rounded for steps in apart)
    return usual if alike >= max(FEWEST_ALIKE, ALIKE * len(apart)) and usual > every else None


def _usual_ms(iterations: Sequence[LoggedIteration]) -> float:
    """Upper limit of a usual iteration, ms; longer ones are outliers."""
    times = [iteration.mean_ms for iteration in iterations]
    middle = median(times)
    return middle + OUTLIER * median(abs(time - middle) for time in times)
