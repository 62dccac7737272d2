"""Memory is nearly full, or far from it.

What it detects: how the allocator's peak compares with the device's memory; and forward kernels that the backward pass
computes again (activation checkpointing) although what they compute would fit.
Why it costs: near the limit the allocator retries, frees and fragments, and the next longer batch fails. Far below it
recomputing saves memory that nobody needs, and costs up to a forward pass in every step.
How the gain is priced: allocator calls inside steps are priced by replay; headroom itself has no price ("info").
Recomputing is: the run is replayed without the repeated kernels of as many activations as fit.
How to fix: ZeRO / FSDP stage, activation checkpointing (more of it, or less), batch size.
Limits: needs memory events in the trace (profile_memory) or ddprof's capture. Repeated kernels are found where the
trace names operators; in compiled graphs they are not distinguished from others. What activations need is how much
tensors grow while they are computed again; where only peaks are known, nothing is said of recomputing above half of the
memory.
Sources: TensorBoard plugin rule (> 90 %); ZeRO paper (memory per rank by stage).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.memory import recompute_time, recomputed
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.spans import at
from ddprof.finding_ids import MEMORY_HEADROOM
from ddprof.findings import WARNING_SHARE, Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.tables import Array
from ddprof.units import format_bytes, format_share, format_us

FULL = 0.90  # of the device's memory (TensorBoard plugin)
HALF_FULL = 0.5  # of the device's memory: above it room for a part of the activations is a reserve, and no waste
FEWEST = 0.1  # of what is computed again: keeping less is not worth a change


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Compare peak memory with the device's, and find needless recomputation."""
    shares: dict[int, float] = {}
    for p, facts in enumerate(measures.job.ranks):
        peak = facts.memory.get("peak_reserved_bytes") or facts.memory.get("peak_allocated_bytes")
        total = facts.memory.get("total_bytes")
        if peak and total:
            shares[p] = peak / total
    if not shares:
        yield memory_unknown(measures, "no memory events in the trace")
        return
    full = [p for p, s in shares.items() if s >= FULL]
    if not full:
        yield from needless_recompute(measures)
        return
    numbers = measures.ranks(full) if len(full) < len(measures.job.ranks) else ()
    worst = max(shares, key=lambda p: shares[p])
    total = measures.job.ranks[worst].memory["total_bytes"]
    churn = bool(measures.host_spans_us["allocator"].any())
    yield Candidate(
        id=RULE.id,
        summary=f"device memory of {measures.whom(numbers)} is {format_share(shares[worst])} full"
        + (" and the allocator releases and maps memory inside steps" if churn else ""),
        ranks=numbers,
        lost_us=float(np.mean(measures.cause_us("allocator"))),
        changes=(Change("remove_host", target="allocator"),) if churn else (),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"peak {format_share(shares[worst])} of {format_bytes(total)}", measures.job.rank_ids[worst]),
        ),
        fixes=(
            Fix(
                setting="memory",
                current=format_share(shares[worst]),
                suggested="activation checkpointing, a higher ZeRO / FSDP stage, or a smaller microbatch",
                patch="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                why="a full allocator releases and maps memory inside steps, and a longer batch may fail",
                source="PyTorch CUDA memory management notes",
            ),
        ),
        ceiling_us=None if churn else 0.0,
    )


def needless_recompute(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Candidates for recomputation that no rank's memory needs, in whole or in part."""
    spent = recompute_us(measures)
    cost_us = float(spent.mean())
    if cost_us < WARNING_SHARE * measures.step_us:
        return
    memories = [f.memory for f in measures.job.ranks if f.memory.get("total_bytes") and _peak(f.memory)]
    if len(memories) < len(measures.job.ranks):
        yield memory_unknown(measures, "memory is not known of every rank")
        return
    kept = [memory.get("kept_bytes") for memory in memories]
    fullest = max(memories, key=lambda memory: _peak(memory) / memory["total_bytes"])
    share = _peak(fullest) / fullest["total_bytes"]
    if None in kept:
        fits, needs = float(share <= HALF_FULL), None
    else:
        fits = min(_fitting(memory) for memory in memories)
        needs = max(memory["kept_bytes"] for memory in memories)
    if fits < FEWEST or (fits < 1 and share > HALF_FULL):
        return
    used = f"memory is {format_share(share)} used"
    yield Candidate(
        id=MEMORY_HEADROOM,
        summary=f"the backward pass recomputes {format_us(cost_us)} of forward kernels per step (activation "
        f"checkpointing) while {used}",
        lost_us=cost_us,
        changes=(Change("keep_activations", (), (fits,)),),
        basis=Basis.RECORDED if needs is not None else Basis.DEDUCED,
        evidence=(
            Evidence(_need_words(needs, fits, fullest)),
            *_longest(measures, int(np.argmax(spent))),
        ),
        fixes=(_fix(fits),),
        band=0.15 if needs is not None else 0.5,
        is_bound=needs is None,
    )


def memory_unknown(measures: Measures, why: str) -> Abstention:
    """The abstention where memory is not known, with what is computed again, if that is worth a finding."""
    cost_us = float(recompute_us(measures).mean())
    if cost_us < WARNING_SHARE * measures.step_us:
        return Abstention(MEMORY_HEADROOM, why)
    words = f"activation checkpointing computes {format_us(cost_us)} per step again; whether memory would hold the "
    words += f"activations is not known ({why})"
    return Abstention(MEMORY_HEADROOM, words, spent_us=cost_us)


def recompute_us(measures: Measures) -> Array:
    """Device time per step in recomputed forward kernels, us, shape (ranks,)."""
    times_us = []
    for facts in measures.job.ranks:
        marked = recomputed(facts.device_ops, facts.strings)
        spent = intervals.overlap(recompute_time(facts.device_ops, marked), *facts.steps.bounds)
        times_us.append(float(spent.sum()) / len(facts.steps) / 1e3)
    return np.array(times_us)


def _peak(memory: Mapping[str, Any]) -> int:
    return int(memory.get("peak_allocated_bytes") or memory.get("peak_reserved_bytes") or 0)


def _fitting(memory: Mapping[str, Any]) -> float:
    """Share of the recomputed activations that would fit in memory."""
    free = FULL * memory["total_bytes"] - _peak(memory)
    return float(np.clip(free / max(1, memory["kept_bytes"]), 0.0, 1.0))


def _need_words(needs: int | None, fits: float, fullest: Mapping[str, Any]) -> str:
    peak, total = format_bytes(_peak(fullest)), format_bytes(fullest["total_bytes"])
    if needs is None:
        return f"peak {peak} of {total}; how much memory the activations need was not recorded: try some blocks first"
    held = f"keeping all activations takes about {format_bytes(needs)} more than the peak of {peak} of {total}"
    return f"{held}, which fits" if fits >= 1 else f"{held}: about {format_share(fits)} of them fit"


def _longest(measures: Measures, position: int) -> list[Evidence]:
    facts = measures.job.ranks[position]
    marked = recomputed(facts.device_ops, facts.strings)
    rows = np.flatnonzero(marked & (facts.device_ops["start_ns"] >= facts.steps["start_ns"][0]))
    if not len(rows):
        return []
    row = int(rows[np.argmax((facts.device_ops["end_ns"] - facts.device_ops["start_ns"])[rows])])
    start, end = int(facts.device_ops["start_ns"][row]), int(facts.device_ops["end_ns"][row])
    name = facts.strings[int(facts.device_ops["operator"][row])]
    text = f"longest of {len(rows)} kernels: {name} took {format_us((end - start) / 1e3)} in the backward pass"
    return [at(measures, position, start, end, text, name)]


def _fix(fits: float) -> Fix:
    if fits >= 1:
        return Fix(
            setting="activation checkpointing",
            current="on",
            suggested="off",
            patch="model.gradient_checkpointing_disable()  # or call blocks without torch.utils.checkpoint.checkpoint",
            why="the activations fit in memory, so the backward pass need not recompute them",
            source="PyTorch documentation of torch.utils.checkpoint",
        )
    blocks = max(2, round(1 / max(1 - fits, 1e-3)))
    return Fix(
        setting="activation checkpointing",
        current="of every block",
        suggested=f"of about {format_share(1 - fits)} of the blocks",
        patch=f"checkpointed = [block for number, block in enumerate(blocks) if number % {blocks} == 0]"
        if fits >= HALF_FULL
        else f"kept = [block for number, block in enumerate(blocks) if number % {max(2, round(1 / fits))} == 0]",
        why="part of the activations fits in memory; those blocks need no recomputation",
        source="PyTorch documentation of torch.utils.checkpoint; selective activation checkpointing",
    )


RULE = Rule(MEMORY_HEADROOM, "Device memory is nearly full", detect, bound="memory")
