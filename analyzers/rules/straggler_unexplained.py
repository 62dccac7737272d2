"""Ranks are late, and no other finding says why.

What it detects: exposed waiting that is charged to ranks which no finding names, for reasons that no finding covers.
Why it costs: all others stand still until the late rank comes, whatever holds it.
How the gain is priced: where ranks are named, the run is replayed with nobody waiting for them. Where ranks take turns,
removing the reason would save at most what the ranks wait; little of that can be told from scatter, so below a tenth
of the step it has no price. Nor has waiting that is in one step alone.
How to fix: look at what the late rank runs there and its peers do not; `ddprof run` with Python stacks names the line.
Over the whole run: timers of the steps outside the trace may show a rank that takes longer outside its backward passes.
From a tenth of the step it is named, whatever the traced steps hold; its gain is that share of the step. Half of that
will do where each step counts what it lacked a CPU for, and for a rank on a CPU for a tenth of the run more than peers:
stops take no CPU time.
Limits: a rank is named where it is late in more steps than chance explains, or in all and for nearly all waiting. Waits
for ranks without a trace name nobody, nor do those for one that began later and takes no longer. Stages of a pipeline
wait by design and are judged by its own rules.
Sources: a binomial test of "last in k of n" against 1 / ranks; OSDI'25 section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.charged import charged_by_step_ns
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import MOST_SHARE
from ddprof.analyzers.job.waiting.lateness import FEW_STEPS, chance_of_most, comes_again, recurring
from ddprof.analyzers.job.whole_run.own_times import TIMED_BAND, chance_left
from ddprof.analyzers.rules.evidence.spans import largest_wait
from ddprof.causes import CAUSE_CODE, CAUSE_IDS, CAUSES
from ddprof.finding_ids import STRAGGLER_UNEXPLAINED
from ddprof.findings import (
    CRITICAL_SHARE,
    WARNING_SHARE,
    Abstention,
    Basis,
    Candidate,
    Change,
    Evidence,
    Fix,
    Rule,
)
from ddprof.significance import MAX_CHANCE
from ddprof.tables import NULL, Array, Table
from ddprof.units import format_ranks, format_share, format_us
from ddprof.whose import whose

UNKNOWN_SHARE = 0.18  # of a step: healthy ranks differed by 0.16 over 40 steps on two busy cores (2026-11-24)
CLEARLY = 2.0  # times the waiting for the next rank: less, and both are late, one here and one there
NEARLY_ALL = 0.8  # of the waiting, charged to the latest rank of all steps: it is named where these are too few to test


def detect_rest(measures: Measures, candidates: Sequence[Candidate]) -> Iterator[Candidate | Abstention]:
    """Find waiting that no other rule's candidates explain."""
    job = measures.job
    if len(job.ranks) < 2:
        yield Abstention(RULE.id, "only one rank was traced, so no rank can be called late")
        return
    blame = job.blame.take(recurring(job) & ~job.instances["is_message"][job.blame["instance"]])
    floor = _floor_us(measures)
    nobody = blame["culprit"] == NULL
    if _waited_us(measures, blame.take(nobody)) >= floor:
        words = (
            f"{format_us(_waited_us(measures, blame.take(nobody)))} of waiting per step cannot be charged to any rank"
        )
        yield Abstention(RULE.id, words)
    left = blame.take(~nobody & ~_explained(measures, blame, candidates))
    waited_us = _waited_us(measures, left)
    timed = _timed(measures, candidates)
    charged = charged_by_step_ns(job, left)
    if charged.size and int(np.argmax(charged.sum(axis=1))) in measures.alone:  # chance has no line
        floor = WARNING_SHARE * measures.step_us
    if timed is not None:
        yield timed
    elif waited_us >= floor:
        named = tuple(sorted({rank for one in candidates for rank in one.ranks}))
        once = _late_once(measures, charged)
        yield Abstention(RULE.id, once) if once else _late(measures, left, charged, waited_us, named)


def _timed(measures: Measures, candidates: Sequence[Candidate]) -> Candidate | None:
    """Candidate for the ranks that whole-run timers show late, whatever the traced steps show. None without any, where
    findings explain much of that time, or where the others wait longer for another rank.
    """
    job, late = measures.job, whose(measures.timed_us)
    explained = [sum(one.lost_us for one in candidates if rank in one.ranks) for rank in job.rank_ids]
    each_us = measures.timed_us * (1 - len(late) / len(job.ranks))  # a mean over all ranks
    late = late[np.array(explained)[late] < MOST_SHARE * each_us[late]]
    if not len(late) or int(np.argmax(measures.late_us)) not in late:
        return None
    worst = int(late[np.argmax(measures.timed_us[late])])
    late_us, numbers, line = float(measures.timed_us[worst]), measures.ranks(late), measures.alone.get(worst)
    if line is None and any(not one.ranks and one.lost_us >= late_us for one in candidates):
        return None
    # A core that runs equal operators more slowly is straggler.compute's, which knows what shared cores may differ by.
    paced_us = measures.cause_us("compute")[worst] * (1 - 1 / measures.compute.factor[worst])
    if line is None and paced_us >= MOST_SHARE * late_us:
        return None
    share = late_us / measures.step_us
    if line is None and share < UNKNOWN_SHARE * chance_left(job.ranks):
        return None
    takes, most = ("takes", "") if len(numbers) == 1 else ("take", "up to ")
    return Candidate(
        id=RULE.id,
        summary=f"{format_ranks(numbers)} {takes} longer than the others by {most}{format_share(share)} of the step "
        "over the whole run" + ("; cause unknown" if line is None else ""),
        ranks=numbers,
        lost_us=float(each_us[worst]),
        basis=Basis.TIMED,
        evidence=(
            Evidence(
                f"timers of the steps outside the trace: {format_share(share)} of a step longer than the typical rank "
                "outside its backward passes, beyond chance",
                job.rank_ids[worst],
            ),
            *largest_wait(measures, worst),
        ),
        fixes=(_look(numbers),),
        ceiling_us=late_us,
        band=TIMED_BAND,
    )


def _waited_us(measures: Measures, blame: Table) -> float:
    """Waiting per step, mean over the ranks of the job."""
    return float(blame["dur_ns"].sum()) / 1e3 / max(1, measures.steps) / len(measures.job.ranks)


def _explained(measures: Measures, blame: Table, candidates: Sequence[Candidate]) -> Array:
    """Mask of rows that a finding explains: it names the culprit, or is of the whole job and covers the cause of the
    delay.

    A rank that idles for covered causes while its peers wait has no second reason to be late: ranks that began apart
    stay apart, and all that the last one does while others wait is charged to it.
    """
    explained = np.zeros(len(blame), bool)
    for candidate in candidates:
        named = [p for p, rank in enumerate(measures.job.rank_ids) if rank in candidate.ranks]
        covered = [cause for cause, row in CAUSES.items() if candidate.id.startswith(row.explained_by)]
        explained |= np.isin(blame["culprit"], named) if named else _covered(measures, blame, covered)
    return explained


def _covered(measures: Measures, blame: Table, causes: Sequence[str]) -> Array:
    """Mask of rows with these causes, and of all rows of culprits whose devices idle longer than their peers' for these
    causes, by most of the others' wait.
    """
    is_covered, ranks = np.isin(blame["cause"], [CAUSE_CODE[cause] for cause in causes]), len(measures.job.ranks)
    is_charged = blame["culprit"] != NULL
    culprit = np.where(is_charged, blame["culprit"], 0)
    charged_ns = np.bincount(culprit, weights=blame["dur_ns"] * is_charged, minlength=ranks)
    lateness_us = charged_ns / 1e3 / max(1, measures.steps) / max(1, ranks - 1)
    idle_us = sum((measures.cause_us(cause) for cause in causes), np.zeros(ranks))
    apart = idle_us - np.median(idle_us) >= MOST_SHARE * lateness_us
    return np.asarray(is_covered | (apart[culprit] & is_charged))


def _late(measures: Measures, left: Table, charged: Array, waited_us: float, named: tuple[int, ...]) -> Candidate:
    """The finding on waiting that nothing explains.

    `charged`: ns by rank and step; `named`: ranks of other findings, whose lateness is not in it.
    """
    job = measures.job
    per_step = charged[:, charged.sum(axis=0) > 0]
    latest = np.bincount(np.argmax(per_step, axis=0), minlength=len(job.ranks))
    worst = int(np.argmax(per_step.sum(axis=1)))
    share = float(per_step[worst].sum() / per_step.sum())
    steps = int(latest.sum())
    sure = chance_of_most(int(latest[worst]), steps, len(job.ranks)) < MAX_CHANCE
    is_clear = per_step[worst].sum() >= CLEARLY * np.partition(per_step.sum(axis=1), -2)[-2]
    is_named = (sure and is_clear and share > 1 / 2) or (share >= NEARLY_ALL and latest[worst] == steps)
    numbers = (job.rank_ids[worst],) if is_named else ()
    turns = int((latest > 0).sum())
    held = _held_by(left, worst)
    # All that the rank which waits longest in a step can gain: with one late rank that is what all others wait, with
    # ranks that are late in turn within the step less than the sum.
    others_wait_us = float(charged_by_step_ns(job, left, "victim").max(axis=0).sum()) / 1e3 / max(1, measures.steps)
    cost = f"the others wait {format_us(others_wait_us)} of each step"
    if is_named:
        summary = f"rank {job.rank_ids[worst]} is the latest in {latest[worst]} of {steps} steps"
    else:
        who = "one rank is the slowest" if turns == 1 else f"the slowest rank varies: {turns} ranks"
        if turns == 1 and not is_clear:
            who = "ranks wait for one another in turn"
        summary = f"{f'apart from {format_ranks(named)}, ' if named else ''}{who} in {steps} steps"
    # What the late rank alone runs comes again.
    once = worst not in measures.alone and not comes_again(
        charged.sum(axis=0) / 1e3 / len(job.ranks), _floor_us(measures)
    )
    priced = (is_named or waited_us >= CRITICAL_SHARE * measures.step_us) and not once
    summary += ", nearly all the waiting in one step" if once else ""
    unknown = "" if numbers and worst in measures.alone else "; cause unknown"
    return Candidate(
        id=RULE.id,
        summary=summary + unknown,
        ranks=numbers,
        lost_us=waited_us,
        changes=(Change("on_time", numbers),) if numbers else (),
        basis=Basis.TESTED if sure and is_named else Basis.UNTESTED,
        evidence=(
            Evidence(
                f"{cost}, {format_share(share)} of it for this rank; where it spends more time than the waiting ranks: "
                f"{held}",
                job.rank_ids[worst],
            ),
            *largest_wait(measures, worst),
        ),
        fixes=(_look(numbers),),
        ceiling_us=others_wait_us if priced else 0.0,
        band=0.3 if numbers else 0.5,
        is_bound=not numbers,
    )


def _late_once(measures: Measures, charged: Array) -> str:
    """Reason to name nobody who is waited for in one of at most FEW_STEPS steps; "" for others. Somebody is the latest
    in it, and only what a rank alone runs says that it will be again. Without step marks a step may hold many.
    """
    job = measures.job
    worst = int(np.argmax(charged.sum(axis=1)))
    often = int((np.argmax(charged, axis=0)[charged.any(axis=0)] == worst).sum())
    if measures.steps > FEW_STEPS or often > 1 or job.ranks[0].step_source == "inferred" or worst in measures.alone:
        return ""
    steps = "the only step that is left" if measures.steps == 1 else f"{often} of {measures.steps} steps"
    return f"rank {job.rank_ids[worst]} is the latest in {steps}: record more steps to tell more"


def _floor_us(measures: Measures) -> float:
    """The least waiting per step that is worth a finding."""
    return max(WARNING_SHARE, execution_of(measures.job).limits.min_exposed_share) * measures.step_us


def _held_by(left: Table, position: int) -> str:
    """The two largest parts of a rank's charged time, in words."""
    charged = left.take(left["culprit"] == position)
    spent = np.bincount(charged["cause"], weights=charged["dur_ns"], minlength=len(CAUSE_IDS))
    order = np.argsort(-spent, kind="stable")[:2]
    return ", ".join(
        f"{CAUSES[CAUSE_IDS[cause]].words} ({format_share(float(spent[cause] / spent.sum()))})"
        for cause in order.tolist()
        if spent[cause] > WARNING_SHARE * spent.sum()
    )


def _look(numbers: tuple[int, ...]) -> Fix:
    whom = format_ranks(numbers) if numbers else "the late ranks"
    return Fix(
        setting=f"what {whom} does before the others' waits" if numbers else "what the late ranks do before the waits",
        suggested="compare its timeline with a peer's; work that only it runs is the cause",
        why="the others are ready and wait for it",
        source="OSDI'25 section 5",
    )


RULE = Rule(
    STRAGGLER_UNEXPLAINED,
    "Ranks are late without a known cause",
    lambda measures: detect_rest(measures, ()),
    bound="straggler",
    compares_ranks=True,
    detect_rest=detect_rest,
    tells_line=True,
)
