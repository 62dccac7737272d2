"""Host-to-device copies block, from pageable memory.

What it detects: batches copied from pageable host memory, so that the call blocks the host and nothing hides the copy.
Why it costs: pageable memory is staged through a pinned buffer at a fraction of the bus rate, and the host launches
nothing meanwhile.
How the gain is priced: the run is replayed with those copies hidden by compute and their calls not blocking.
How to fix: pin_memory=True in the loader and .to(device, non_blocking=True).
Limits: ROCm traces do not name the kind of memory.
Sources: Nsight Systems rule cuda_memcpy_async; ml-engineering pinned-memory test (0.646 s to 0.459 s).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.settings import text
from ddprof.analyzers.rules.evidence.spans import largest_gap
from ddprof.findings import Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_us

MIN_SHARE = 0.005  # of the step, in exposed copies of pageable memory


def detect(measures: Measures) -> Iterator[Candidate]:
    """Exposed copies from pageable memory."""
    copies = measures.pageable_us
    if copies.max(initial=0.0) < MIN_SHARE * measures.step_us:
        return
    worst = int(np.argmax(copies))
    yield Candidate(
        id=RULE.id,
        summary="batches are copied from pageable memory with nothing beside them",
        ranks=(),
        lost_us=float(copies.mean()),
        changes=(Change("hide_copies"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"{format_us(float(copies.max()))} per step", measures.job.rank_ids[worst]),
            *largest_gap(measures, worst, "memcpy"),
        ),
        fixes=(
            Fix(
                setting="pin_memory",
                current=text(measures.settings.loader.pin_memory) or "False",
                suggested="True, with non_blocking copies",
                applies=(("pin_memory", True),),
                patch="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
                why="pinned memory is copied at bus speed beside the kernels, and the host goes on launching",
                source="PyTorch performance tuning guide; torch.utils.data documentation",
            ),
        ),
        band=0.2,
    )


RULE = Rule("input.pageable_copy", "Copies block from pageable memory", detect, bound="input")
