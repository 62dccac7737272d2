"""Device memory is allocated and freed inside steps.

What it detects: cudaMalloc, cudaFree and the like between the kernels of a step, while the device is idle.
Why it costs: they synchronise the device. After the first steps the caching allocator should need none.
How the gain is priced: the run is replayed without those calls.
How to fix: expandable segments, a lower peak, no empty_cache() in the loop; the caching allocator, where it is off:
calls are as many as a tenth of the kernels, and most are freed again.
Limits: allocation inside captured graphs is not seen. Retries outside the traced steps are counted where ddprof
captured the run, but have no price.
Sources: PyTorch CUDA memory management notes (expandable_segments); OSDI'25 section 5.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.present import present_in
from ddprof.analyzers.rules.evidence.spans import largest_span, occurrences
from ddprof.finding_ids import HOST_ALLOCATOR
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_ranks, format_us

_ALLOCATES, _FREES = re.compile(r"^(?:cuda|hip)Malloc$"), re.compile(r"^(?:cuda|hip)Free$")
FIX = Fix(
    setting="PYTORCH_CUDA_ALLOC_CONF",
    suggested="expandable_segments:True",
    applies=(("expandable_segments", True),),
    patch="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # and no torch.cuda.empty_cache() in the loop",
    why="cudaMalloc and cudaFree synchronize the device; expandable segments avoid them",
    source="PyTorch notes: CUDA semantics, memory management",
)

PLAIN_FIX = Fix(
    setting="device memory",
    suggested="allocated once before the loop, or from a pool (cudaMallocAsync)",
    why="allocating and freeing synchronises the device",
    source="CUDA programming guide: stream-ordered memory allocator",
)

UNCACHED_FIX = Fix(
    setting="PyTorch's caching allocator",
    current="off",
    suggested="on",
    patch="unset PYTORCH_NO_CUDA_MEMORY_CACHING  # or the allocator of its own that the script installs",
    why="nearly as much memory is freed as allocated, again and again; a cache allocates in the first steps only",
    source="PyTorch notes: CUDA semantics, memory management",
)
UNCACHED_CALLS = 0.1  # allocations per kernel; a cache makes some per step at most (a public run without: 292 a step)
FREED_SHARE = 0.5  # of the allocations; a public run without a cache: 0.93


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find allocator calls inside steps."""
    spent = measures.host_spans_us["allocator"]
    counts = ((rank, f.sidecar.allocator) for rank, f in zip(measures.job.rank_ids, measures.job.ranks, strict=True))
    retried = {rank: allocator.retries for rank, allocator in counts if allocator.retries}
    if not spent.any():
        if retried:
            yield _retrying(retried)
        return
    worst = int(np.argmax(spent))
    numbers = measures.theirs(spent)
    whom = measures.whom(numbers)
    verb = "allocates" if whom.startswith("rank ") else "allocate"
    calls = float(measures.host_counts["allocator"][worst])
    yield Candidate(
        id=RULE.id,
        summary=f"{whom} {verb} device memory inside steps",
        ranks=numbers,
        lost_us=float(measures.cause_us("allocator").mean()),
        times_us=tuple(spent.tolist()),
        changes=(Change("remove_host", target="allocator"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(
                f"{calls:.0f} allocator calls per step take {format_us(float(spent.max()))} of host time",
                measures.job.rank_ids[worst],
            ),
            *occurrences(measures, worst, "allocator").evidence,
            *largest_span(measures, worst, "allocator"),
            *_retry_evidence(retried),
        ),
        fixes=(_fix(measures, worst),),
    )


def _fix(measures: Measures, position: int) -> Fix:
    """The fix, which depends on whether PyTorch's allocator keeps freed memory."""
    if not present_in(measures.job).is_pytorch:
        return PLAIN_FIX
    facts = measures.job.ranks[position]
    spans = facts.spans_of("allocator")
    allocates, frees = (int(matches(calls, facts.strings)[spans["name"]].sum()) for calls in (_ALLOCATES, _FREES))
    kernels = float(measures.kernels_per_step[position]) * len(facts.steps)
    is_cached = allocates <= UNCACHED_CALLS * kernels or frees <= FREED_SHARE * allocates
    return FIX if is_cached else UNCACHED_FIX


def _retry_evidence(retried: Mapping[int, int]) -> list[Evidence]:
    worst = sorted(retried, key=lambda rank: -retried[rank])[:4]
    text = "the allocator emptied its cache and retried {} times in this run"
    return [Evidence(text.format(retried[rank]), rank) for rank in worst]


def _retrying(retried: Mapping[int, int]) -> Candidate:
    """Candidate for retries outside the traced steps, each of which synchronises the device and empties the cache."""
    return Candidate(
        id=RULE.id,
        summary=f"memory is so short that the allocator of {format_ranks(tuple(retried))} emptied its cache "
        f"and retried, up to {max(retried.values())} times in the run",
        ranks=tuple(sorted(retried)),
        lost_us=0.0,
        basis=Basis.RECORDED,
        evidence=tuple(_retry_evidence(retried)),
        fixes=(FIX,),
    )


RULE = Rule(HOST_ALLOCATOR, "Memory is allocated inside steps", detect, bound="host")
