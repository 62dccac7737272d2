"""Do the bytes of some calls explain how long they took? Then hardly anything of them is waiting for another rank.

A rank that was not traced may be late at any call, whatever that call carries: as late at a small message as at a large
one. So calls of small and of large messages that all take what their bytes take have moved them all the time, and that
can be told from one side alone.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.tables import Array

MIN_CALLS = 8
SIZES_APART = 4.0  # largest over smallest message: waiting as long as the large one takes is 4 times the small one
FASTEST_CALLS = 0.1  # of the calls: the fastest of all may be a fluke
NO_WAITS = 1.1  # of what the bytes take at the rate of the fastest calls: at most a tenth of the calls is waiting


def is_all_transfer(sizes_bytes: Array, times_us: Array) -> bool:
    """Whether the bytes explain the calls, of small and of large messages. Unknown sizes and times do not count."""
    known = (times_us > 0) & (sizes_bytes > 0)
    times, sizes = times_us[known], sizes_bytes[known].astype(float)
    if len(sizes) < MIN_CALLS or sizes.max() < SIZES_APART * sizes.min():
        return False
    return bool(times.sum() <= NO_WAITS * float(np.quantile(times / sizes, FASTEST_CALLS)) * sizes.sum())


def with_known_transfer(job: JobFacts) -> Array:
    """Instances of which waiting and moving data are told apart, shape (instances,): several traced ranks took part,
    or the bytes explain the calls of the only one.
    """
    instances = job.instances
    told = instances["members"] > 1
    alone = ~told & ~instances["is_message"].astype(bool)
    kinds = np.stack((instances["op"].astype(np.int64), instances["group"].astype(np.int64)))
    for op, group in np.unique(kinds[:, alone], axis=1).T.tolist():
        mine = alone & (kinds[0] == op) & (kinds[1] == group)
        told |= mine & is_all_transfer(instances["size_bytes"][mine], instances["transfer_ns"][mine] / 1e3)
    return np.asarray(told)
