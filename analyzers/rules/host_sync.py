"""Host and device wait for one another every step.

What it detects: blocking calls (`.item()`, nonzero, blocking copies, synchronize) after which the device runs dry.
Why it costs: while the host waits it launches nothing; when it resumes, the queue has to be refilled before the device
is busy again.
How the gain is priced: the run is replayed with those calls returning at once (those inside loading and saving stay).
How to fix: keep metrics on the device, log every N steps, use non_blocking copies.
Limits: code that needs the value to decide what to do next cannot simply drop the call.
Sources: PyTorch performance tuning guide (avoid unnecessary CPU-GPU synchronisation); Nsight Systems rule
cuda_api_sync.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from ddprof.analyzers.facts.model import CAUSE, NO_STRING, RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence import largest_gap

from ddprof.findings import Abstention, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_ranks, format_share

MIN_SHARE = 0.01  # of the step idle around blocking calls, on the typical rank
CEILING = 1.1  # of the idle time around the calls: what else they free (run-ahead) the replay cannot be sure of
OWN_FACTOR = 3.0  # ranks this far above the typical one are named


def common_callers(facts: RankFacts) -> str:
    """The operators that block most often, "aten::item (24), aten::nonzero (2)"."""
    spans = facts.host_spans.take(facts.host_spans["cause"] == CAUSE["host_sync"])
    labels = np.where(spans["operator"] == NO_STRING, spans["name"], spans["operator"])
    return ", ".join(f"{facts.strings[int(i)]} ({n})" for i, n in Counter(labels.tolist()).most_common(3))


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Idle time around blocking calls."""
    idle = measures.cause_us("host_sync")
    if idle.max(initial=0.0) < MIN_SHARE * measures.step_us:
        return
    typical = float(np.sort(idle)[(len(idle) - 1) // 2])
    worst = int(np.argmax(idle))
    own = np.flatnonzero(idle > OWN_FACTOR * max(typical, MIN_SHARE * measures.step_us))
    numbers = measures.ranks(own) if 0 < len(own) <= len(idle) / 2 else ()
    callers = common_callers(measures.job.ranks[worst])
    yield Candidate(
        id=RULE.id,
        summary=f"host and device wait for one another on {format_ranks(numbers)}: "
        f"{format_share(float(idle.max()) / measures.step_us)}"
        " of each step is idle around blocking calls",
        ranks=numbers,
        lost_us=float(idle.mean()),
        changes=(Change("no_sync", numbers),),
        confidence=0.9,
        ceiling_us=CEILING * float(idle.max()),
        evidence=(
            Evidence(f"blocking: {callers}", measures.job.rank_ids[worst]),
            *largest_gap(measures, worst, "host_sync"),
        ),
        fixes=(
            Fix(
                setting="synchronising calls",
                current=callers,
                suggested="none inside the step; read metrics every N steps",
                patch="loss_sum += loss.detach()      # instead of loss.item() every step\n"
                "if step % 50 == 0: print(loss_sum.item() / 50)",
                why="each call empties the launch queue, and the device idles until it is full again",
                source="PyTorch performance tuning guide",
            ),
        ),
    )


RULE = Rule("host.sync", "Host and device wait for one another", detect, bound="host")
