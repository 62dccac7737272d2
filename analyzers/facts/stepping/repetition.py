"""Steps of a trace without marks, by what repeats: the device runs the same kernels in the same order again and again.

If a window holds n whole steps, every kernel occurs a multiple of n times, and the kernel a step's length further on is
the same one. A window that is cut inside a step, or whose steps differ, shows no such period, and is left whole.
"""

from __future__ import annotations

import numpy as np

from ddprof.model import Kind, RankTrace
from ddprof.tables import Array

# A forward pass that is recomputed or evaluated makes every kernel occur twice: two alike show no rhythm.
MIN_PERIODS = 3
MIN_KERNELS = 8  # of one period: shorter ones are loops inside a step
SAME_SHARE = 0.95  # of the kernels that equal the one a period later; libraries choose others now and then


def repeated_steps(trace: RankTrace) -> Array | None:
    """Event rows of the first operation of every period, on the stream that computes longest; None without a period."""
    events = trace.events
    rows = np.flatnonzero(events["kind"] == Kind.KERNEL)
    if not len(rows):
        return None
    tracks, of_track = np.unique(events["track"][rows], return_inverse=True)
    busiest = int(np.argmax(np.bincount(of_track, weights=events["dur_ns"][rows], minlength=len(tracks))))
    rows = rows[of_track == busiest]
    rows = rows[np.argsort(events["ts_ns"][rows], kind="stable")]
    names = events["name"][rows]
    _, counts = np.unique(names, return_counts=True)
    periods = int(np.gcd.reduce(counts))
    if periods < MIN_PERIODS:
        return None
    length = len(rows) // periods
    if length < MIN_KERNELS or (names[:-length] == names[length:]).mean() < SAME_SHARE:
        return None
    return np.asarray(rows[::length])
