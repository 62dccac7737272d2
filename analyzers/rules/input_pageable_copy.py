"""Host-to-device copies block, from pageable memory.

What it detects: batches copied from pageable host memory, so that the call blocks the host and nothing hides the copy.
Ranks are named where the same bytes take more than twice as long as on their peers: a narrow link, another node's
memory.
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

from ddprof import averages
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.copies import pageable_copies
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.peers.kernels import COUNT_TOLERANCE
from ddprof.analyzers.rules.evidence.settings import text
from ddprof.analyzers.rules.evidence.spans import largest_gap
from ddprof.finding_ids import INPUT_PAGEABLE_COPY
from ddprof.findings import WARNING_SHARE, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.tables import NULL, Array
from ddprof.units import format_ranks, format_us

MIN_SHARE = 0.005  # of the step, in exposed copies of pageable memory
SLOW_FACTOR = 2.0  # a link at half its width or one generation down copies at half the speed


def detect(measures: Measures) -> Iterator[Candidate]:
    """Find exposed copies from pageable memory."""
    copies = measures.pageable_us
    if copies.max(initial=0.0) < MIN_SHARE * measures.step_us:
        return
    worst = int(np.argmax(copies))
    slow = _slow_links(measures)
    numbers = measures.ranks(slow)
    longer = copies[slow].max(initial=0.0) / max(averages.typical(copies), 1.0)
    yield Candidate(
        id=RULE.id,
        summary="batches are copied from pageable memory and nothing overlaps the copy"
        + (f", {longer:.1f}x as long on {format_ranks(numbers)} as on their peers" if numbers else ""),
        ranks=numbers,
        lost_us=float(copies.mean()),
        changes=(Change("hide_copies"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"copies take {format_us(float(copies.max()))} per step", measures.job.rank_ids[worst]),
            *largest_gap(measures, worst, "memcpy"),
        ),
        fixes=(
            *([_look(numbers)] if numbers else []),
            Fix(
                setting="pin_memory",
                current=text(measures.settings.loader.pin_memory) or "False",
                suggested="True, with non_blocking copies",
                applies=(("pin_memory", True),),
                patch="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
                why="pinned memory copies at bus speed during kernels, without blocking the host",
                source="PyTorch performance tuning guide; torch.utils.data documentation",
            ),
        ),
    )


def _slow_links(measures: Measures) -> Array:
    """Sorted positions of the ranks that copy equal bytes in over twice their peers' time, by a considerable time."""
    copies, moved = measures.pageable_us, np.array([_moved_bytes(facts) for facts in measures.job.ranks])
    usual_us, usual_bytes = averages.typical(copies), averages.typical(moved)
    slow = (copies > SLOW_FACTOR * usual_us) & (copies - usual_us > WARNING_SHARE * measures.step_us)
    slow &= moved <= (1 + COUNT_TOLERANCE) * usual_bytes
    chosen = np.flatnonzero(slow)
    return chosen if len(chosen) <= len(copies) / 2 else np.empty(0, np.int64)


def _moved_bytes(facts: RankFacts) -> float:
    """Bytes per step from pageable memory; the number of copies where sizes are not recorded."""
    sizes = facts.device_ops["size_bytes"][pageable_copies(facts)]
    has_sizes = len(sizes) and (sizes != NULL).all()
    return float(sizes.sum() if has_sizes else len(sizes)) / max(1, len(facts.steps))


def _look(numbers: tuple[int, ...]) -> Fix:
    return Fix(
        setting="host memory and bus of " + format_ranks(numbers),
        suggested="the PCIe link at full width and speed, ranks pinned to the NUMA node of their device",
        patch="nvidia-smi -q | grep -A 12 'GPU Link Info'; nvidia-smi topo -m; numactl --cpunodebind=N --membind=N",
        why="the same bytes take far longer there than on its peers",
        source="nvidia-smi documentation: PCIe generation and link width",
    )


RULE = Rule(INPUT_PAGEABLE_COPY, "Copies block from pageable memory", detect, bound="input")
