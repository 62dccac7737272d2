"""Which kernels' time changed from one run to another, against the noise of their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ddprof.report.comparison.compare import LEAST_SHARE, Delta, delta_of

Kernel = tuple[str, str]  # name and kind
Series = Mapping[Kernel, Sequence[float]]  # time in every step, us


def kernel_deltas(before: Series, after: Series, step_us: float) -> list[tuple[Kernel, Delta]]:
    """Kernels of either run, the largest change first; of changes that are too small to matter no interval is made."""
    found = []
    for kernel in {**before, **after}:
        first, second = _side(before, kernel), _side(after, kernel)
        was, now = (float(np.mean(values)) if len(values) else 0.0 for values in (first, second))
        if abs(now - was) < LEAST_SHARE * step_us:
            found.append((kernel, Delta(kernel[0], was, now, None, None, "same")))
        else:
            found.append((kernel, delta_of(kernel[0], was, now, first, second, step_us)))
    return sorted(found, key=lambda item: (-abs(item[1].change_us), item[0]))


def _side(run: Series, kernel: Kernel) -> Sequence[float]:
    """A kernel that a run does not have takes no time in any of its steps."""
    return run[kernel] if kernel in run else [0.0] * len(next(iter(run.values()), ()))
