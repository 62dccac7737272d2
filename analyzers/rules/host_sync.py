"""Host and device wait for one another every step.

What it detects: blocking calls (`.item()`, nonzero, blocking copies, synchronize) after which the device runs dry.
Why it costs: while the host waits it launches nothing; when it resumes, the queue has to be refilled before the device
is busy again.
How the gain is priced: the run is replayed with those calls returning at once, except inside loading and saving. It
gains no more than the idle stretches that those calls begin.
How to fix: keep metrics on the device, log every N steps, use non_blocking copies.
Limits: hosts that do nothing recorded after the calls may wait for one another. Where no communication between ranks
was recorded, they are not judged. The same holds of a rank whose file nothing connects to its peers'. Lines of the
script are known where ddprof captured the run; other traces name only operators. Code that needs the value to decide
what to do next cannot simply drop the call.
Sources: PyTorch performance tuning guide (avoid unnecessary CPU-GPU synchronisation); Nsight Systems rule
cuda_api_sync.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.device import HIDES, launches_wait
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.job.device_idle import idle_from_calls_us
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.lines import shown_place
from ddprof.analyzers.rules.evidence.present import present_in
from ddprof.analyzers.rules.evidence.spans import largest_gap
from ddprof.finding_ids import HOST_SYNC
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.sidecar import HostWait
from ddprof.units import format_count, format_share, format_us
from ddprof.whose import few

MIN_SHARE = 0.01  # of the step idle around blocking calls, on the typical rank
CEILING = 1.1  # of the idle stretches that the calls begin: the replay cannot be sure of more (gaps between kernels)
OWN_FACTOR = 3.0  # ranks this far above the typical one are named
MOST_LINES = 3  # told
READ_RARELY = (
    "loss_sum += loss.detach()      # instead of loss.item() every step\nif step % 50 == 0: print(loss_sum.item() / 50)"
)
COPY_LATER = "batch.to(device, non_blocking=True)  # from pinned memory; in place of .cpu(): read it a step later"


def common_callers(facts: RankFacts) -> str:
    """The operators that block most often in the trace: "aten::item (24 times), aten::nonzero (2 times)"."""
    spans = facts.spans_of("host_sync")
    labels = np.where(spans["operator"] != NO_STRING, spans["operator"], spans["name"])
    return ", ".join(
        f"{facts.strings[int(i)]} ({format_count(n, 'time')})" for i, n in Counter(labels.tolist()).most_common(3)
    )


def sync_lines(facts: RankFacts) -> list[HostWait]:
    """The script lines with the longest blocking waits on a rank, from capture's record; [] where it has none."""
    return sorted((wait for wait in facts.sidecar.syncs if wait.total_ns), key=lambda wait: -wait.total_ns)[:MOST_LINES]


def _idle_words(after_us: float, blocked_us: float, step_us: float) -> str:
    """Shares of the step that are idle after synchronizing calls, and until launches resume where that is less."""
    idle, blocked = (format_share(us / step_us) for us in (max(after_us, blocked_us), blocked_us))
    return f"{idle} of each step" + (f" ({blocked} before the host launches again)" if blocked != idle else "")


def _patch(lines: list[HostWait], callers: str) -> str:
    """The worst line and its replacement, where the call shows it; else what replaces the most frequent operator."""
    worst = lines[0] if lines else None
    if worst is None or not worst.source:
        return COPY_LATER if callers.startswith("aten::copy_") else READ_RARELY
    if worst.what == "item":
        instead = f"{worst.source.replace('.item()', '.detach()')}  # a tensor: read it every N steps only"
    elif worst.what in ("cpu", "to"):
        instead = f"{worst.source}  # non_blocking=True into pinned memory, and read it a step later"
    else:
        instead = f"if step % 50 == 0:\n+     {worst.source}"
    return f"# {worst.source_line}\n- {worst.source}\n+ {instead}"


def _line_evidence(measures: Measures, position: int, lines: list[HostWait]) -> Iterator[Evidence]:
    for wait in lines:
        code = f": {wait.source}" if wait.source else ""
        times = f"{wait.count} times, {format_us(wait.total_ns / 1e3)} in the trace"
        place = shown_place(measures.job.ranks[position], wait.source_line)
        yield Evidence(f"{place}{code} ({wait.what}, {times})", measures.job.rank_ids[position])


def _may_wait_for_peers(measures: Measures, position: int) -> bool:
    """True where most idle time around blocking calls may be waits for unmatched peers.

    A host that refills the queue launches; an idle host waits or runs Python. A file analyzed alone has peers if it is
    named for its rank.
    """
    job = measures.job
    has_peers = len(job.ranks) > 1 or job.ranks[0].identity.source == "file name"
    if not has_peers or (job.instances["members"] > 1).any():
        return False
    facts = job.ranks[position]
    idle, silent = facts.gaps_of("host_sync").bounds, intervals.union(*facts.silences.bounds)
    return 2 * intervals.length(intervals.intersect(idle, silent)) > intervals.length(idle)


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find idle time around blocking calls."""
    idle = measures.cause_us("host_sync")
    if idle.max(initial=0.0) < MIN_SHARE * measures.step_us:
        return
    if any(launches_wait(facts) for facts in measures.job.ranks):
        yield Abstention(RULE.id, HIDES)
        return
    typical = averages.typical(idle)
    worst = int(np.argmax(idle))
    if _may_wait_for_peers(measures, worst):
        words = "no communication between the ranks was recorded: a host that does nothing recorded may wait for them"
        yield Abstention(RULE.id, words)
        return
    apart = np.flatnonzero(idle > OWN_FACTOR * max(typical, MIN_SHARE * measures.step_us))
    numbers = measures.ranks(few(apart, len(idle)))
    callers = common_callers(measures.job.ranks[worst])
    lines = sync_lines(measures.job.ranks[worst])
    where = f" at {shown_place(measures.job.ranks[worst], lines[0].source_line)}" if lines else ""
    practice, after_us = present_in(measures.job), idle_from_calls_us(measures.job.ranks[worst])
    yield Candidate(
        id=RULE.id,
        summary=f"synchronizing calls drain the device queue on {measures.whom(numbers)}" + (where and f",{where}"),
        ranks=numbers,
        lost_us=float(idle.mean()),
        changes=(Change("no_sync", numbers),),
        basis=Basis.RECORDED,
        ceiling_us=CEILING * max(idle_from_calls_us(facts) for facts in measures.job.ranks),
        evidence=(
            *_line_evidence(measures, worst, lines),
            Evidence(
                f"the device is idle for {_idle_words(after_us, float(idle.max()), measures.step_us)} after {callers}",
                measures.job.rank_ids[worst],
            ),
            *largest_gap(measures, worst, "host_sync"),
        ),
        fixes=(
            Fix(
                setting="synchronizing calls",
                current=f"{callers}{where}",
                suggested="none inside the step; read values every N steps",
                patch=_patch(lines, callers) if lines or (practice.is_pytorch and practice.trains) else None,
                why="each call drains the launch queue",
                source="PyTorch performance tuning guide",
            ),
        ),
    )


RULE = Rule(HOST_SYNC, "Synchronizing calls drain the device queue", detect, bound="host")
