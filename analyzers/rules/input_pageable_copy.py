"""Copies between host and device block, through pageable memory.

What it detects: batches copied from pageable host memory, so that the call blocks the host and nothing hides the copy;
copies of 64 KiB and more from the device to such memory; and state that is kept on the host (CPU offload): most of the
bytes go from the device and come back in each step. Ranks are named where the same bytes take more than twice as long
as on their peers: a narrow link, another node's memory. Copies are of batches where they go to the device outside
backward and optimizer. They are of state inside these two, and where four tensors or more per step come from the device
and as many of their sizes (or half, or twice: another precision) go back.
Why it costs: pageable memory is staged through a pinned buffer at a fraction of the bus rate; the host launches nothing
meanwhile.
How the gain is priced: the run is replayed with those copies hidden by compute and their calls not blocking; without
them where state is kept on the host, which as yet leaves the time of an optimizer there.
How to fix: pin_memory=True in the loader and .to(device, non_blocking=True). State: on the device, or in pinned buffers
with non_blocking copies where memory does not allow.
Limits: ROCm traces do not name the kind of memory. Copies inside a save or an evaluation are host.checkpoint's and
host.evaluation's, and values that the host reads (`.item()`) host.sync's. Sizes identify state: for a model whose
outputs have the sizes of its inputs, four or more of each, they may mislead.
Sources: Nsight Systems rule cuda_memcpy_async; ml-engineering pinned-memory test (0.646 s to 0.459 s); PyTorch tutorial
on pin_memory and non_blocking.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.work import step_of_launch
from ddprof.analyzers.job.copies import (
    BATCHES,
    OTHER,
    STATE,
    content_of,
    copies_from_device,
    copies_to_device,
    exposed_copies,
    pageable_copies,
)
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.peers.kernels import COUNT_TOLERANCE
from ddprof.analyzers.job.script.lines import lines_in
from ddprof.analyzers.rules.evidence.present import present_in, text
from ddprof.analyzers.rules.evidence.spans import largest_gap
from ddprof.finding_ids import INPUT_PAGEABLE_COPY
from ddprof.findings import WARNING_SHARE, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.tables import NULL, Array
from ddprof.units import format_bytes, format_number, format_ranks, format_us
from ddprof.whose import few

MIN_SHARE = 0.005  # of the step, in exposed copies through pageable memory
SLOW_FACTOR = 2.0  # a link at half its width or one generation down copies at half the speed
_SOURCE = "PyTorch tutorial on pin_memory and non_blocking"


def detect(measures: Measures) -> Iterator[Candidate]:
    """Find exposed copies through pageable memory."""
    copies = measures.pageable_us
    if copies.max(initial=0.0) < MIN_SHARE * measures.step_us:
        return
    worst = _worst(measures)
    facts = measures.job.ranks[worst]
    content = _content(measures, facts)
    slow = _slow_links(measures)
    numbers = measures.ranks(slow)
    longer = copies[slow].max(initial=0.0) / max(averages.typical(copies), 1.0)
    yield Candidate(
        id=RULE.id,
        summary=_summary(measures, facts, content)
        + (f", {longer:.1f}x as long on {format_ranks(numbers)} as on their peers" if numbers else ""),
        ranks=numbers,
        lost_us=float(copies.mean()),
        changes=(Change("hide_copies", values=(0.0,) if content == STATE else ()),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"copies take {format_us(float(copies.max()))} per step", measures.job.rank_ids[worst]),
            *_directions(measures, worst),
            *largest_gap(measures, worst, "memcpy"),
        ),
        fixes=(*([_look(numbers)] if numbers else []), _fix(measures, content)),
    )


def _worst(measures: Measures) -> int:
    """Position of the rank that copies longest, by which the finding is told."""
    return int(np.argmax(measures.pageable_us))


def _content(measures: Measures, facts: RankFacts) -> str:
    content = content_of(facts)
    return OTHER if content == BATCHES and not present_in(measures.job).has_batches else content


def _summary(measures: Measures, facts: RankFacts, content: str) -> str:
    """The finding in words, by what the copies are of and where they go."""
    if content == STATE:
        cost = format_us(float(measures.pageable_us.max()))
        kept = "state is" if present_in(measures.job).is_pytorch else "what the device works on is"
        return f"{kept} kept on the host (CPU offload): copying it there and back takes {cost} of each step"
    if content == BATCHES:
        return "batches are copied from pageable memory and nothing overlaps the copy"
    way = "from the device to" if copies_from_device(facts).any() else "to the device from"
    what = "tensors are" if present_in(measures.job).has_batches else "data is"
    return f"{what} copied {way} pageable memory and nothing overlaps the copy"


def _directions(measures: Measures, position: int) -> Iterator[Evidence]:
    """The copies each way, where some come from the device: their time, number, bytes, operators and line."""
    facts = measures.job.ranks[position]
    down, steps, in_steps = copies_from_device(facts), len(facts.steps), step_of_launch(facts) >= 0
    for words, directed in (("from the device", down), ("to the device", copies_to_device(facts))):
        chosen = directed & in_steps
        if not down.any() or not chosen.any():
            continue
        ops = facts.device_ops.take(chosen)
        exposed = exposed_copies(facts, chosen)
        taken = format_us(float(intervals.overlap(exposed, *facts.steps.bounds).sum()) / steps / 1e3)
        sizes = ops["size_bytes"]
        moved = f" with {format_bytes(float(sizes.sum()) / steps)}" if (sizes != NULL).all() else ""
        names = sorted({facts.strings[int(name)] for name in ops["operator"] if name != NO_STRING})[:3]
        by = f", by {', '.join(names)}" if names else ""
        known = ops.take((ops["launch_ns"] != NULL) & (ops["launch_end_ns"] != NULL))
        lines = lines_in(facts, intervals.union(known["launch_ns"], known["launch_end_ns"]))[:1]
        where = "".join(f", at {line.words}" for line in lines if line.file)
        copies = f"{format_number(len(ops) / steps)} copies{moved}"
        yield Evidence(f"{words}: {taken} per step in {copies}{by}{where}", measures.job.rank_ids[position])


def _fix(measures: Measures, content: str) -> Fix:
    """The fix by what is copied."""
    if content == BATCHES:
        return Fix(
            setting="pin_memory",
            current=text(measures.settings.loader.pin_memory) or "False",
            suggested="True, with non_blocking copies",
            applies=(("pin_memory", True),),
            patch="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
            why="pinned memory copies at bus speed during kernels, without blocking the host",
            source="PyTorch performance tuning guide; torch.utils.data documentation",
        )
    pinned = "host = torch.empty_like(tensor, device='cpu', pin_memory=True)\nhost.copy_(tensor, non_blocking=True)"
    is_pytorch = present_in(measures.job).is_pytorch
    if content == STATE:
        return Fix(
            setting="state kept on the host",
            current="in pageable memory",
            suggested="on the device; in pinned buffers with non_blocking copies where memory does not allow",
            patch="optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # its state stays on the device\n"
            f"# or, where memory does not allow:\n{pinned}"
            if is_pytorch
            else None,
            why="what stays on the device is not copied; pinned memory copies at bus speed, without blocking the host",
            source=_SOURCE,
        )
    return Fix(
        setting="copies through pageable memory",
        suggested="pinned buffers with non_blocking copies, read a step later or every N steps",
        patch=pinned if is_pytorch else None,
        why="pinned memory copies at bus speed during kernels, without blocking the host",
        source=_SOURCE,
    )


def _slow_links(measures: Measures) -> Array:
    """Sorted positions of the ranks that copy equal bytes in over twice their peers' time, by a considerable time."""
    copies, moved = measures.pageable_us, np.array([_moved_bytes(facts) for facts in measures.job.ranks])
    usual_us, usual_bytes = averages.typical(copies), averages.typical(moved)
    slow = (copies > SLOW_FACTOR * usual_us) & (copies - usual_us > WARNING_SHARE * measures.step_us)
    slow &= moved <= (1 + COUNT_TOLERANCE) * usual_bytes
    return few(np.flatnonzero(slow), len(copies))


def _moved_bytes(facts: RankFacts) -> float:
    """Bytes per step through pageable memory; the number of copies where sizes are not recorded."""
    sizes = facts.device_ops["size_bytes"][pageable_copies(facts)]
    has_sizes = len(sizes) and (sizes != NULL).all()
    return float(sizes.sum() if has_sizes else len(sizes)) / len(facts.steps)


def _look(numbers: tuple[int, ...]) -> Fix:
    return Fix(
        setting="host memory and bus of " + format_ranks(numbers),
        suggested="the PCIe link at full width and speed, ranks pinned to the NUMA node of their device",
        patch="nvidia-smi -q | grep -A 12 'GPU Link Info'; nvidia-smi topo -m; numactl --cpunodebind=N --membind=N",
        why="the same bytes take far longer there than on its peers",
        source="nvidia-smi documentation: PCIe generation and link width",
    )


def _bound(measures: Measures) -> str:
    """The bound of the step that these copies lead: the input's where they are of batches."""
    return "input" if _content(measures, measures.job.ranks[_worst(measures)]) == BATCHES else "host"


RULE = Rule(INPUT_PAGEABLE_COPY, "Copies block through pageable memory", detect, bound="input", bound_of=_bound)
