"""Autograd's anomaly mode is left on.

What it detects: a search for NaN follows most nodes of the backward passes, as autograd's anomaly mode makes it
(`torch.autograd.set_detect_anomaly(True)`, `torch.autograd.detect_anomaly()`).
Why it costs: the host reads the result of a search after each node, and on a device waits for it; each operator of the
forward pass that autograd records writes down the Python stack that called it.
How the gain is priced: the run is replayed without the searches, their kernels and their waits, and without writing
stacks. How long a stack takes is read off views, which otherwise take a microsecond, as in backward passes.
How to fix: `torch.autograd.set_detect_anomaly(False)`; switch it on only while looking for a NaN.
Limits: where the forward pass makes no views, what stacks take is not known: the gain is at least that of the searches;
what a forward pass that is computed again writes is not counted. The line that switches the mode on is not recorded.
`detect_anomaly(check_nan=False)` searches for nothing and is not detected. A script's own calls of `isnan`, in
functions of nodes or in a few hooks, are not taken for it.
Sources: PyTorch performance tuning guide (disable debugging APIs); torch.autograd.detect_anomaly documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.host_costs import anomaly_held_us, anomaly_part_us, anomaly_us
from ddprof.analyzers.job.measures import Measures
from ddprof.finding_ids import HOST_ANOMALY_DETECTION
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_share, format_us

FIX = Fix(
    setting="torch.autograd.set_detect_anomaly",
    current="True",
    suggested="False, only while looking for a NaN",
    patch="torch.autograd.set_detect_anomaly(False)  # and no torch.autograd.detect_anomaly() around the step",
    why="each node of the backward pass is searched for NaN, and operators of the forward pass write their stacks",
    source="PyTorch performance tuning guide: disable debugging APIs",
)


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find ranks whose backward passes are searched for NaN, node by node."""
    times_us = np.array([anomaly_us(facts) for facts in measures.job.ranks])
    if not times_us.any():
        return
    numbers = measures.with_any(times_us)
    worst = int(np.argmax(times_us))
    facts = measures.job.ranks[worst]
    at_least = "" if _writes(facts) else "at least "
    takes = f"takes {at_least}{format_share(float(times_us[worst]) / measures.step_us)} of the host's time"
    yield Candidate(
        id=RULE.id,
        summary=f"autograd's anomaly mode, left on, {takes} on {measures.whom(numbers)}",
        ranks=numbers,
        lost_us=float(np.mean([anomaly_held_us(facts) for facts in measures.job.ranks])),
        changes=(Change("no_anomaly", numbers),),
        basis=Basis.RECORDED,
        evidence=tuple(Evidence(words, measures.job.rank_ids[worst]) for words in _seen(facts)),
        fixes=(FIX,),
        times_us=tuple(times_us.tolist()),
    )


def _writes(facts: RankFacts) -> bool:
    """True where it is known how long operators write stacks."""
    return not facts.anomaly_work["is_check"].all()


def _seen(facts: RankFacts) -> Iterator[str]:
    """The work of the mode on a rank, in words."""
    work = facts.anomaly_work
    checks, writes = work.take(work["is_check"]), work.take(~work["is_check"])
    count = facts.is_issued_in_steps(checks["start_ns"]).sum() / len(facts.steps)
    searching_us = anomaly_part_us(facts, checks)
    yield f"{count:.0f} nodes of the backward pass are searched for NaN: {format_us(searching_us)} per step"
    if _writes(facts):
        yield f"operators of the forward pass write Python stacks: {format_us(anomaly_part_us(facts, writes))} per step"
    else:
        yield "no views tell for how long operators of the forward pass write Python stacks: not counted"


RULE = Rule(HOST_ANOMALY_DETECTION, "Autograd's anomaly mode is on", detect, bound="host")
