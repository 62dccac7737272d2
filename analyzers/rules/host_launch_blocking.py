"""Each launch waits for its kernel: a debugging aid is left on.

What it detects: nearly all calls that launch a kernel return only after that kernel has ended, as
`CUDA_LAUNCH_BLOCKING=1` (`HIP_LAUNCH_BLOCKING=1`, `AMD_SERIALIZE_KERNEL=3`) makes them.
Why it costs: the host cannot run ahead, so that between any two kernels the device waits for Python; communication runs
beside no compute.
How the gain is priced: the run is replayed with launch calls that return when their kernels begin.
How to fix: unset the variable; set it only to find the line of an illegal memory access.
Limits: what launching costs without it, and other calls that wait, show only in a recording without it: on an H200 the
fix saved 22 ms of 40 where 11 to 17 were said. Copies may wait, too: their waits stay in the replay.
`AMD_SERIALIZE_KERNEL=1` waits before each launch and is not detected.
Sources: PyTorch CUDA semantics documentation (asynchronous execution); HIP documentation (environment variables).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.facts.device import waiting_launches
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.finding_ids import HOST_LAUNCH_BLOCKING
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_share, format_us

VARIABLES = {"cuda": ("CUDA_LAUNCH_BLOCKING",), "rocm": ("HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")}


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find ranks whose launch calls wait for their kernels."""
    ranks = measures.job.ranks
    waiting = [_waiting(facts) for facts in ranks]
    times_us = np.array([us for _, us in waiting])
    if not times_us.any():
        return
    numbers = measures.with_any(times_us)
    worst = int(np.argmax(times_us))
    count, us = waiting[worst]
    names = VARIABLES.get(ranks[worst].device.kind, VARIABLES["cuda"])
    known = ranks[worst].sidecar.communication_environment
    current = " ".join(f"{name}={known[name]}" for name in names if known.get(name, "0") != "0")
    words = f"nearly all kernels ({count:.0f} per step) had ended when the call that launched them returned: the host "
    words += f"waits {format_us(us)} per step ({format_share(us / measures.step_us)}) in such calls"
    yield Candidate(
        id=RULE.id,
        summary=f"each launch waits until its kernel has ended on {measures.whom(numbers)}: a debugging aid left on",
        ranks=numbers,
        lost_us=float(np.where(times_us > 0, measures.cause_us("host_sync"), 0.0).mean()),
        changes=(Change("async_launch", numbers),),
        basis=Basis.RECORDED,
        evidence=(Evidence(words, measures.job.rank_ids[worst]),),
        fixes=(
            Fix(
                setting=" and ".join(names),
                current=current or None,
                suggested="not set, but to find the line of an illegal memory access",
                patch=f"unset {' '.join(names)}  # and no os.environ[...] of it in the script",
                why="a host that waits for each kernel never has the next one ready",
                source="PyTorch CUDA semantics documentation: asynchronous execution",
            ),
        ),
        times_us=tuple(times_us.tolist()),
    )


def _waiting(facts: RankFacts) -> tuple[float, float]:
    """Kernels per step whose launch call waited for them, and the time of these calls once they ran, us per step."""
    kernels = facts.device_ops.take(waiting_launches(facts.device_ops))
    kernels = kernels.take(facts.is_issued_in_steps(kernels["launch_ns"]))
    steps = len(facts.steps)
    return len(kernels) / steps, float((kernels["launch_end_ns"] - kernels["start_ns"]).sum()) / 1e3 / steps


RULE = Rule(HOST_LAUNCH_BLOCKING, "Each launch waits for its kernel", detect, bound="host")
