"""Device memory is allocated and freed inside steps.

What it detects: cudaMalloc, cudaFree and their kin between the kernels of a step while the device is idle.
Why it costs: they synchronise the device; the caching allocator should need none after the first steps.
How the gain is priced: the run is replayed without those calls.
How to fix: expandable segments, a lower peak, no empty_cache() in the loop.
Limits: allocation inside captured graphs is not seen.
Sources: PyTorch CUDA memory management notes (expandable_segments); OSDI'25 section 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence import largest_span

from ddprof.findings import Abstention, Candidate, Change, Fix, Rule
from ddprof.units import format_ranks, format_us


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Allocator calls inside steps."""
    spent = measures.host_spans_us["allocator"]
    if not spent.any():
        return
    worst = int(np.argmax(spent))
    heavy = np.flatnonzero(spent > 0.25 * spent.max())
    numbers = measures.ranks(heavy) if len(heavy) <= len(spent) / 2 else ()
    calls = float(measures.host_counts["allocator"].max())
    yield Candidate(
        id=RULE.id,
        summary=f"{format_ranks(numbers)} allocate device memory inside steps: {calls:.0f} calls, "
        f"{format_us(float(spent.max()))} per step",
        ranks=numbers,
        lost_us=float(measures.cause_us("allocator").mean()),
        changes=(Change("remove_host", target="allocator"),),
        confidence=0.9,
        evidence=tuple(largest_span(measures, worst, "allocator")),
        fixes=(
            Fix(
                setting="PYTORCH_CUDA_ALLOC_CONF",
                suggested="expandable_segments:True",
                patch="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # and no torch.cuda.empty_cache() "
                "in the loop",
                why="freeing and mapping segments synchronises the device; growing segments need neither",
                source="PyTorch notes: CUDA semantics, memory management",
            ),
        ),
    )


RULE = Rule("host.allocator", "Memory is allocated inside steps", detect, bound="host")
