"""Hosts of the same ranks issue work more slowly.

What it detects: some hosts are free to run for longer than the typical peer's in the same step, and their devices
drain. A host is free while it is not blocked and does not load, collect or save.
Why it costs: the device idles until the next launch, and every other rank waits for it in the next collective.
How the gain is priced: the run is replayed with those hosts as fast as their peers'. Where a thread holds their
interpreter (GIL), no rank waits for them. A slow host behind a busy device costs nothing.
How to fix: CPU contention, affinity and NUMA placement, the frequency governor, a co-located job. A slow core of a CPU
rank slows its operators too (straggler.compute): where these are as fast as the peers', it is the rank's Python.
Limits: without a blocking call in the step, host time includes waiting for a full launch queue. Without launch calls in
the trace a rank is named by who waits for it alone. One wait that outweighs all others together (a start-up broadcast)
does not count, nor does a pause in one step. Of communication alone each rank that is last beyond chance is named, with
its share. One that was late only while the job started is not. A lone wait is not known to recur, so no gain is
claimed. A rank that runs other code than its peers is straggler.imbalance. So is one whose batches are larger by as
much as its host takes longer.
Sources: OSDI'25 section 5; NVRx; a binomial test of "last in k of n" against 1 / ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.work import knows_launches
from ddprof.analyzers.job.charged import charged_by_step_ns
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.peers.cpu_stops import held_between
from ddprof.analyzers.job.scope import out_of_scope, start_up_only
from ddprof.analyzers.job.script.alone import MOST_SHARE
from ddprof.analyzers.job.script.threads import threads_alone
from ddprof.analyzers.job.slowdown import Slowdown, typical_us
from ddprof.analyzers.job.waiting.lateness import FEW_STEPS, LatestRank, comes_again, latest_ranks
from ddprof.analyzers.rules.evidence.more_work import fed_longer
from ddprof.analyzers.rules.evidence.spans import charged_us, largest_gap, largest_wait, longer_phase
from ddprof.analyzers.rules.evidence.stages import unknown_peers
from ddprof.analyzers.rules.straggler_compute import STICKY_SHARE, not_slow, slow_positions
from ddprof.causes import HOST_CAUSES
from ddprof.finding_ids import INPUT_STRAGGLER, STRAGGLER_HOST, STRAGGLER_UNEXPLAINED
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.tables import Array
from ddprof.units import format_count, format_ranks, format_share, format_times, format_us
from ddprof.whose import few

# Test of a rank's lateness by its whole own time, before any cause is named.
#
# Others wait only for a rank whose total is longer: one that loads longer but computes shorter, or loads while a peer
# is busy for longer still, delays nobody.

_BY_OWN_TIME = (INPUT_STRAGGLER, STRAGGLER_UNEXPLAINED)


def takes_longer(measures: Measures, numbers: tuple[int, ...], in_loader: bool = False) -> bool:
    """True where the own time of one of these ranks exceeds the others' by a good part of what those wait for it. A
    rank that began later but takes no longer is waited for only until it catches up. Clear whole-run timers outvote the
    few traced steps. True where own times were not recorded. `in_loader`: a good part of what it loads longer will do,
    since what it loaded before the first traced step is waited for, too.
    """
    job = measures.job
    late = [p for p, rank in enumerate(job.rank_ids) if rank in numbers]
    others = np.setdiff1d(np.arange(len(job.ranks)), late)
    if not late or not len(others) or out_of_scope(job) is not None:
        return True
    timed_us = measures.timed_us + in_loader * measures.loading_late_us
    if (timed_us[late] > 0).any():
        return True
    more, loads_more = (
        {p: float(us[p]) - float(np.median(us[others])) for p in late}
        for us in (measures.own_us, measures.host_spans_us["dataloader"])
    )
    asked = {p: min(float(measures.late_us[p]), loads_more[p] if in_loader else np.inf) for p in late}
    return any(us > 0 and us >= MOST_SHARE * asked[p] for p, us in more.items())


def takes_no_longer(candidate: Candidate, measures: Measures) -> str | None:
    """Reason to withdraw a finding on late ranks (they take no longer than others); None where it stands."""
    if candidate.id not in _BY_OWN_TIME or takes_longer(measures, candidate.ranks, candidate.id == INPUT_STRAGGLER):
        return None
    late = [p for p, rank in enumerate(measures.job.rank_ids) if rank in candidate.ranks]
    late_us, usual_us = measures.own_us[late].max(), np.median(np.delete(measures.own_us, late))
    why = "no rank waits for it" if late_us <= usual_us else "too little for what they wait"
    return (
        f"{format_ranks(candidate.ranks)} takes {format_us(float(late_us))} per step without waits, the others "
        f"{format_us(float(usual_us))}: {why}"
    )


MIN_EXCESS = 0.10  # of the host's own time; hosts of healthy ranks differ by about 1 to 3 %
TWICE = 1.0  # as long again as its peers; a healthy CPU host on busy cores took 0.16 longer in nearly every step
NO_CALLS = "no launch calls were recorded, so a slow host looks like a waiting one"
NO_COMMUNICATION = "no communication was recorded, so a waiting CPU rank looks like a busy one"
MIN_COST_SHARE = 0.03  # of the step, waited for the rank
LARGER_PART = 0.5  # of what others wait for a rank: a thread that computes for so long is what makes it late
FEW_WAITS = 4  # operations others wait in; fewer are too few to test


def slow_hosts(slowdown: Slowdown, pipeline: Pipeline | None, floor_us: float) -> tuple[Array, Array]:
    """Positions whose hosts need clearly more time per step, and the host time of each one's typical peer, us, shape
    (ranks,): a stage of a pipeline has its own.
    """
    typical = typical_us(slowdown, pipeline)
    excess_us, least_us = slowdown.time_us - typical, np.maximum(MIN_EXCESS * typical, floor_us)
    more_us = np.where(np.isfinite(slowdown.per_step), slowdown.per_step - 1.0, 0.0) * typical[:, None]
    chosen = np.flatnonzero((excess_us > least_us) & comes_again(more_us, least_us))
    return few(chosen, np.isfinite(slowdown.factor).sum()), typical


def interrupted(measures: Measures) -> Array:
    """Positions of CPU ranks that others wait for and that alone run a thread for most of that: of Python, it takes
    the interpreter from whatever the rank does, for 5 ms at a time.
    """
    late_us, step_us = measures.late_us, measures.step_us
    busy_us = np.zeros(len(late_us))
    for position, thread in threads_alone(measures.job.ranks).items():
        busy_us[position] = thread.share * step_us
    least_us = execution_of(measures.job).limits.min_host_excess * step_us
    return np.flatnonzero((late_us >= least_us) & (busy_us >= LARGER_PART * late_us))


def _is_held(measures: Measures, position: int) -> bool:
    """True where one line of the script, a thread of it, or one place between two operators, holds a rank."""
    ranks = measures.job.ranks
    held = position in measures.alone or position in threads_alone(ranks)
    return held or held_between(ranks, position, measures.cpu_stops) is not None


def _with_those_timed(measures: Measures, chosen: Array) -> Array:
    """These positions, and those that timers of the run show late by a line of their own: few traced steps may not."""
    timed = [p for p in measures.alone if measures.timed_us[p] > 0]
    joined = few(np.union1d(chosen, timed).astype(np.int64), len(measures.job.ranks))
    return joined if np.isin(chosen, timed).any() else chosen


def _is_steady(slowdown: Slowdown, position: int) -> bool:
    """True where a host is slower in nearly every step, by much of its excess or by TWICE; False for two steps."""
    more = slowdown.per_step[position][np.isfinite(slowdown.per_step[position])] - 1.0
    return len(more) > FEW_STEPS and bool(np.quantile(more, 0.1) >= min(STICKY_SHARE * np.median(more), TWICE))


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find ranks whose hosts are slower than their peers' for the same program."""
    if len(measures.job.ranks) < 2:
        yield Abstention(RULE.id, "only one rank was traced, so hosts cannot be compared")
        return
    if unknown := unknown_peers(measures):
        yield Abstention(RULE.id, unknown)
        return
    execution = execution_of(measures.job)
    if not execution.sees_waits(measures.job):
        yield Abstention(RULE.id, NO_COMMUNICATION)
        return
    starting = start_up_only(measures.job)
    # Device ranks whose traces say when work was launched; one of communication alone need not.
    sees_calls = out_of_scope(measures.job) is not None or all(map(knows_launches, measures.job.ranks))
    if starting or not sees_calls:
        late = _late(measures)
        yield from late
        if not late:
            yield Abstention(RULE.id, starting or NO_CALLS)
        return
    limits = execution.limits
    slow, typical_us = slow_hosts(measures.host, measures.job.pipeline, limits.min_host_excess * measures.step_us)
    elsewhere = fed_longer(measures, measures.host.time_us) | measures.compute.has_more  # straggler.imbalance
    chosen = slow = slow[~elsewhere[slow]]
    taken = interrupted(measures) if execution.computes_on_host else chosen[:0]
    if execution.computes_on_host:
        # What stops a thread comes in some steps and anywhere; a line or a place that holds it so is told as one.
        slow = np.array([p for p in slow.tolist() if _is_held(measures, p) or _is_steady(measures.host, p)], np.int64)
        # A slow device does not hold its host; operators and Python of a CPU rank run on one core.
        computing = slow_positions(measures.compute, limits.min_compute_excess, limits.sure_compute_excess)
        chosen = np.union1d(np.setdiff1d(slow, np.setdiff1d(computing, not_slow(measures))), taken)
        chosen = _with_those_timed(measures, chosen)
    if not len(chosen):
        for last in _late(measures):
            # Who is waited for is named even where nothing is won by it.
            yield last if takes_longer(measures, last.ranks) else replace(last, ceiling_us=0.0)
        return
    numbers = measures.ranks(chosen)
    factors = tuple(float(measures.host.time_us[p] / typical_us[p]) for p in chosen)
    worst = int(chosen[int(np.argmax(factors))])
    as_peers = Change("scale_host", numbers, factors, "peers")
    if np.isin(chosen, taken).all():  # its thread holds up fetching and operators, too
        as_peers = Change("on_time", numbers)
    yield Candidate(
        id=RULE.id,
        summary=_summary(numbers, max(factors), execution.computes_on_host),
        ranks=numbers,
        lost_us=charged_us(measures, chosen.tolist()),
        changes=(as_peers,),
        basis=Basis.COMPARED,
        evidence=tuple(_evidence(measures, worst, float(typical_us[worst]))),
        fixes=(_fix(measures, numbers, worst, float(typical_us[worst])),),
    )


def _evidence(measures: Measures, worst: int, typical_us: float) -> Iterator[Evidence]:
    """Evidence on slow hosts, the slowest at position `worst`."""
    host_us = float(measures.host.time_us[worst])
    words = f"its host launches a step in {format_us(host_us)}, the typical peer's in {format_us(typical_us)}"
    if execution_of(measures.job).computes_on_host:
        words = f"it spends {format_us(host_us)} per step between operators, the typical peer {format_us(typical_us)}"
    yield Evidence(words, measures.job.rank_ids[worst])
    yield from longer_phase(measures, worst, MOST_SHARE * (host_us - typical_us))
    yield from largest_gap(measures, worst, "host_launch")
    yield from largest_wait(measures, worst)


def _summary(numbers: tuple[int, ...], factor: float, on_host: bool) -> str:
    """The ranks and their factor; `on_host`: of CPU ranks, which launch nothing."""
    whom, times = format_ranks(numbers), format_times(factor)
    if on_host:
        takes, whose = ("takes", "its") if len(numbers) == 1 else ("take up to", "their")
        return f"{whom} {takes} {times} as long as {whose} peers between operators"
    if len(numbers) > 1:
        return f"the hosts of {whom} take up to {times} as long as their peers to launch a step"
    return f"the host of {whom} takes {times} as long as its peers to launch a step"


def _fix(measures: Measures, numbers: tuple[int, ...], worst: int, typical_us: float) -> Fix:
    """The fix for slow hosts, which differs for Python at one place of each step. `typical_us`: of its typical peer."""
    held = held_between(measures.job.ranks, worst, measures.cpu_stops)
    excess_us = float(measures.host.time_us[worst]) - typical_us
    if held is not None and held[2] >= MOST_SHARE * excess_us:
        before, after, more_us = held
        return Fix(
            setting=f"code of {format_ranks(numbers)} between {before} and {after}",
            suggested="find what its peers do not run there: Python code, a sleep, a lock, a file or a socket",
            why=f"it takes {format_us(more_us)} per step longer there than its peers",
            source="OSDI'25 section 5",
        )
    if execution_of(measures.job).computes_on_host and worst not in not_slow(measures):
        return Fix(
            setting="Python of " + format_ranks(numbers),
            suggested="find what its peers do not run: other data, a callback, a thread that holds the interpreter",
            why="its operators take no longer than its peers', so its CPU is not slow; the time lies between them",
            source="OSDI'25 section 5",
        )
    return Fix(
        setting="CPU of " + format_ranks(numbers),
        suggested="pin ranks to their NUMA node, stop co-located work, set the performance governor",
        patch="numactl --cpunodebind=N --membind=N  (or torchrun --numa-binding=node)",
        why="the same Python code runs slower there: the CPU is shared, throttled or far from the device",
        source="PyTorch performance tuning guide; OSDI'25 section 5",
    )


def _late(measures: Measures) -> list[Candidate]:
    """Candidates for ranks that are last far more often than chance by their hosts, while no host is slow overall."""
    latest = latest_ranks(measures.job, HOST_CAUSES)
    return [late for each in latest if (late := _latest(measures, each)) is not None]


def _latest(measures: Measures, latest: LatestRank) -> Candidate | None:
    """The finding on a late rank, None where it is not late enough to be named. Of a recording of communication alone
    nothing else names it: there it is told whatever it costs.
    """
    job = measures.job
    alone = measures.alone.get(latest.position)
    if alone is not None and alone.beside_saves == ():
        return None  # late by what it saves or evaluates, which other rules tell
    sure = latest.is_sure or alone is not None  # it runs what no peer does: that is no chance
    unseen = out_of_scope(job) is not None  # without the host's and the device's work nothing can be replayed
    cost_us = latest.charged_ns / 1e3 / max(1, measures.steps) / max(1, len(job.ranks))
    recurring_us = measures.step_us - latest.once_ns / 1e3 / max(1, measures.steps) / max(1, len(job.ranks))
    if cost_us < MIN_COST_SHARE * recurring_us and not (sure and unseen):
        return None
    if not sure and (latest.waits >= FEW_WAITS or latest.last < latest.waits):
        return None  # enough operations to judge, and chance explains them; or not even all of a few
    if fed_longer(measures, measures.own_us)[latest.position] or measures.compute.has_more[latest.position]:
        return None
    if not unseen and _in_one_step(measures, latest.position):
        return None  # its collectives are all late for one reason, so that they are no repeated draws
    rank, noun = job.rank_ids[latest.position], "collective" if job.pipeline is None else "transfer"
    return Candidate(
        id=RULE.id,
        summary=f"rank {rank} is the last to enter {latest.last} of {format_count(latest.waits, noun)}",
        ranks=(rank,),
        lost_us=cost_us,
        changes=() if unseen else (Change("on_time", (rank,)),),
        basis=Basis.TESTED if sure else Basis.UNTESTED,
        evidence=(
            Evidence(_charged_words(latest), rank),
            *longer_phase(measures, latest.position, MOST_SHARE * float(measures.late_us[latest.position])),
            *largest_wait(measures, latest.position),
        ),
        fixes=(
            Fix(
                setting=f"what rank {rank} does before its collectives",
                suggested="compare its host timeline with a peer's for extra work, CPU contention, a slow start",
                why="the others are ready and wait for it",
                source="binomial test of 'last in k of n'; OSDI'25 section 5",
            ),
        ),
        band=1.0 if unseen else 0.3,
        # Where nothing can be replayed, what waiting cost is the most that can be won; of start-up nothing.
        ceiling_us=_most_us(measures, latest, cost_us),
        is_bound=unseen,
    )


def _most_us(measures: Measures, latest: LatestRank, cost_us: float) -> float | None:
    """The most that this rank on time saves; None where the replay knows. In a pipeline on time is not at once: the
    others wait for the work of its stage, whatever else it does.
    """
    job = measures.job
    if start_up_only(job):
        return 0.0
    if out_of_scope(job) is not None:
        return cost_us if latest.waits > 1 else 0.0  # a single wait may be that for the first collective
    return None if job.pipeline is None else float(measures.late_us[latest.position])


def _in_one_step(measures: Measures, position: int) -> bool:
    """True where others wait longer for a rank in one of at least three steps than in all others together."""
    waited_ns = charged_by_step_ns(measures.job, measures.job.blame)[position]
    return measures.steps > FEW_STEPS and bool(2 * waited_ns.max(initial=0) > waited_ns.sum())


def _charged_words(latest: LatestRank) -> str:
    share = format_share(latest.charged_ns / latest.total_ns)
    if not latest.once_ns:
        return f"{share} of all waiting is for this rank"
    once = format_us(latest.once_ns / 1e3)
    return f"{share} of the recurring waiting is for this rank; {once} of waits at the start or once are left out"


RULE = Rule(
    STRAGGLER_HOST,
    "Some ranks' hosts are slower",
    detect,
    bound="straggler",
    needs_whole_run=False,
    compares_ranks=True,
    tells_line=True,
)
