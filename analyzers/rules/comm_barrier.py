"""Barriers and collectives of Python objects in the step.

What it detects: `barrier`, `all_gather_object` and their like, called in at least every second step. Several steps are
enough where capture saw no saving or evaluating in these. The time of the calls is no compute of the rank.
Why it costs: the host stops until the last rank has come, and launches nothing meanwhile. An object is pickled, sent in
two collectives and read back from the device.
How the gain is priced: the run is replayed without the calls; a rank that is late stays late, at the next collective.
How to fix: no barrier in the loop: collectives order ranks already. Gather tensors, not objects, and only every N
steps.
Limits: objects are distinguished from tensors where ddprof captured the run, barriers by torch's operator too; those of
a library are named as well. On CPU ranks, step timers and the log of the last calls show those that begin after the
traced steps. A barrier that something outside PyTorch relies on (files, a server) cannot simply go.
Sources: torch.distributed documentation (barrier, all_gather_object).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.facts.script.calls import called_name
from ddprof.analyzers.job.host_costs import held_in_meetings_us, meeting_spans
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.redundant import calls_outside, meeting_lines
from ddprof.analyzers.rules.evidence.spans import at
from ddprof.finding_ids import COMM_BARRIER
from ddprof.findings import Alters, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_number, format_share, format_us

MIN_SHARE = 0.01  # of the step spent in them, mean over ranks
MIN_STEPS = 0.5  # of the steps that have one: what comes more rarely may go with saving or evaluating
MANY_CALLS = 5  # in each of the steps that have any: who saves or evaluates meets before it and after it


def detect(measures: Measures) -> Iterator[Candidate]:
    """Find time that ranks spend in barriers and object collectives of their script, outside compute."""
    job = measures.job
    held_us = np.array([held_in_meetings_us(facts) for facts in job.ranks])
    yield from calls_outside(measures, RULE.id, True, _fix)
    if not held_us.any():
        return
    lost_us = float(held_us.mean())
    worst = int(np.argmax(held_us))
    counts = _calls(job.ranks[worst])
    if lost_us < MIN_SHARE * measures.step_us or not counts or not _is_usual(job.ranks[worst]):
        return
    per_step = {name: count / max(1, len(job.ranks[worst].steps)) for name, count in counts.items()}
    words = " and ".join(f"{format_number(count)} {name} call{'s' * (count > 1)}" for name, count in per_step.items())
    lines = meeting_lines(job.ranks[worst])
    where = f", at {lines[0]}" if lines else ""
    yield Candidate(
        id=RULE.id,
        summary=f"{' and '.join(per_step)} calls inside the step make all ranks wait for the slowest{where}",
        lost_us=lost_us,
        changes=(Change("drop_meetings"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(
                f"{words} per step: ranks are blocked for {format_us(lost_us)} "
                f"({format_share(lost_us / measures.step_us)} of the step)"
            ),
            *_longest(measures, worst),
            *(Evidence(f"called at {line}", job.rank_ids[worst]) for line in lines),
        ),
        fixes=(_fix(set(counts)),),
    )


def _is_usual(facts: RankFacts) -> bool:
    """True where most steps have such a call, or several do, too often for a side effect or, as captured, beside no
    saving or evaluating."""
    lo, hi = facts.marks
    meets = intervals.overlap(meeting_spans(facts), lo, hi) > 0
    many = sum(_calls(facts).values()) >= MANY_CALLS * meets.sum()
    saves = intervals.overlap(intervals.union(*facts.spans_of("checkpoint").bounds), lo[meets], hi[meets]) > 0
    by_itself = facts.sidecar.is_captured and not saves.any()
    return bool((meets.sum() > 1 and (many or by_itself)) or meets.mean() >= MIN_STEPS)


def _calls(facts: RankFacts) -> Counter[str]:
    """Calls of each function inside the steps, the most frequent first."""
    first, last = facts.steps["start_ns"][0], facts.steps["end_ns"][-1]
    calls = facts.meetings
    inside = (calls["start_ns"] >= first) & (calls["start_ns"] < last)
    counts = Counter(called_name(facts.strings[int(name)]) for name in calls["name"][inside])
    if not counts:  # no call was recorded, only what it does
        at_ns = facts.comms["start_ns"][facts.comms["op"] == OP_CODE["barrier"]]
        count = int(((at_ns >= first) & (at_ns < last)).sum())
        counts = Counter({"barrier": count} if count else {})
    return Counter(dict(counts.most_common()))


def _longest(measures: Measures, position: int) -> Iterator[Evidence]:
    facts = measures.job.ranks[position]
    calls = facts.meetings
    if not len(calls):
        return
    row = int(np.argmax(calls["end_ns"] - calls["start_ns"]))
    start, end = int(calls["start_ns"][row]), int(calls["end_ns"][row])
    name = called_name(facts.strings[int(calls["name"][row])])
    yield at(measures, position, start, end, f"longest: {name} took {format_us((end - start) / 1e3)}", name)


def _fix(calls: set[str]) -> Fix:
    objects = sorted(name for name in calls if "object" in name)
    if not objects:
        return Fix(
            setting="barriers in the training loop",
            current=", ".join(sorted(calls)),
            suggested="none",
            patch="# dist.barrier()  # the gradients' all-reduce synchronizes the ranks already",
            why="every rank waits for the last one, although no data is exchanged",
            source="torch.distributed.barrier documentation",
            alters=Alters.ORDER,
        )
    return Fix(
        setting="collectives of Python objects in the training loop",
        current=", ".join(objects),
        suggested="tensors, every N steps",
        patch="if step % 50 == 0:\n    dist.all_reduce(metrics)  # one tensor on the device, no pickling",
        why="an object is pickled, its size and its bytes are sent separately, and the host waits for both",
        source="torch.distributed.all_gather_object documentation",
        alters=Alters.VALUES,
    )


RULE = Rule(COMM_BARRIER, "Barriers and collectives of Python objects", detect, bound="communication")
