"""The steady steps, those of the rhythm that repeats; all averages and prices use them alone.

A recording begins and ends with one-off work: contexts, modules and loader workers start, the profiler starts and
stops. Six kinds of step are excluded:

  - a step that holds such a cost, more of it than all other steps together, where the cost explains most of the time by
    which the ranks' devices idled longer than in the other steps;
  - the first step, where the ranks' recordings opened further apart than any other step begins: the later ones kept the
    others waiting;
  - the first step, where the start of the profiler left the device without queued work and the host is far ahead of it
    in all others: what is late on the host shows there, and nobody waits for it otherwise;
  - a step in which every rank's device runs far more kernels than in any other, where the others all run as many: what
    the script does there (an evaluation) it does once in the recording;
  - a step in which a rank idles for longer than all other steps together take. Whether that comes again, and how often,
    the recording does not say, and one event must not make the mean of all steps. Of saving half as long is enough:
    were it to come again in every recording of this length, the job would save for a third of its time.

  - a step in which every rank's host pauses for no reason that is recorded, and in no other step nearly as long: a
    computed metric, a log that is flushed.

Steps that some ranks recorded whole and others lack are steps to compare with as well.

A cost in one step that is neither, a checkpoint every few steps say, is part of the rhythm. So is a long step that the
timers of the steps outside the recording know to come again as often (`recurring`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.completeness import longest_run
from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.facts.model import Once, RankFacts, Work, of_cause
from ddprof.analyzers.facts.stepping.start_up import WORTH_SAYING
from ddprof.analyzers.facts.work import compute_work
from ddprof.analyzers.job.model import Clock, LeftOut
from ddprof.analyzers.job.peers.kernels import COUNT_TOLERANCE
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, unprofiled_steps
from ddprof.causes import CAUSES
from ddprof.intervals import Intervals
from ddprof.tables import Array, Table
from ddprof.units import format_us

STARTING_UP = (Once.CONTEXT, Once.MEMORY, Once.MODULE)
MOST = 0.5  # of a step's excess, which one cause explains if it is more than all others
TIMES_OTHERS = 2.0  # what occurs twice is about as long both times: allocations of one program differ by less
SAVING_SHARE = 0.5  # of all other steps together; Daly's interval for any mean time between failures costs far less
TIMES_ELSEWHERE = 10.0  # an order of magnitude: what a step lacks altogether, and not only by chance
HOSTS_OWN = ("host_launch", "host_sync", "unknown")  # causes of idle time: a pause after a blocking call is the second
FEWEST_OTHERS = 2  # steps to compare with, before length alone says that a step is not one of them
WORDS = {
    Once.CONTEXT: "creating contexts",
    Once.MEMORY: "first allocations",
    Once.MODULE: "loading code",
    Once.BATCH: "the first batch",
    Once.OVERHEAD: "the profiler",
    Once.STARTING: "the start of the profiler",
    Once.STOPPING: "the end of the profiler",
    Once.FIRST_RUN: "first runs of what is compiled then",
    Once.CAPTURE: "capturing graphs of kernels",
}
MORE_KERNELS = "kernels that no other step runs"
PAUSE = "a pause of every rank's host"
MOSTLY = "mostly"  # no cost of start-up: whether it comes again the recording does not say
APART = "apart from the longest stretch of steady steps"
EMPTY_QUEUE = "the device had no work queued as the profiler started"
OPENED_APART = "ranks started recording {} apart"
FEWEST_TIMES = 2  # what occurred once outside the recording as well may still be one event
EXPECTED = 0.5  # in a recording of this length: one that holds it then tells more of the job than one without it


@dataclass(frozen=True)
class _Walls:
    """Time of the ranks in their steps, ns, NaN where a rank lacks one; `once` has one more axis, the kind of cost."""

    wall: Array  # (ranks, steps)
    busy: Array  # (ranks, steps), in compute
    idle: Array  # (ranks, steps), neither computing nor in exposed communication
    paused: Array  # (ranks, steps), the longest time idle for no cause but the host's own
    saving: Array  # (ranks, steps), idle while the host saves, loads or logs
    once: Array  # (kinds, ranks, steps)
    kernels: Array  # (ranks, steps), compute kernels that begin; 0 on CPU ranks
    lead: Array  # (ranks, steps), by which the host begins the step before the device does; 0 on CPU ranks
    apart: Array  # (steps,), from the first rank that begins to the last, at least; 0 where clocks are not known

    @cached_property
    def job_wall(self) -> Array:
        """Length of each step on the typical rank."""
        return np.nanmedian(self.wall, axis=0)


def steady_steps(
    ranks: Sequence[RankFacts], clock: Clock | None = None, recorded: Sequence[Table] | None = None
) -> tuple[tuple[RankFacts, ...], tuple[LeftOut, ...]]:
    """The ranks reduced to their steady steps, and the steps left out, in order.

    Ranks whose steps have no number in common are each judged by their own.
    `clock`: None where nothing connects those of several ranks. `recorded`: STEPS of each rank with those that not all
    ranks recorded; its own steps if None. Of several stretches of steady steps the longest is kept. Where the ranks
    have no steady step in common, all are left out, and kept nevertheless: nothing that they hold is known to recur,
    and there is nothing else to show (job/scope.py).
    """
    unchanged = tuple(ranks)
    numbers = np.unique(ranks[0].steps["index"])  # a clock that was set back puts them out of order
    for facts in ranks[1:]:
        numbers = np.intersect1d(numbers, facts.steps["index"])
    if not len(numbers) and len(ranks) > 1:
        return own_steady_steps(ranks)
    held = recorded or [facts.steps for facts in ranks]
    every = np.unique(np.concatenate([numbers, *(steps["index"] for steps in held)]))
    if not len(numbers) or len(every) < 2:
        return unchanged, ()
    walls = _walls(ranks, held, every, clock)
    once = _occurring_once(walls)
    starts_up = [is_once and _holds_start(walls, step, ~once) for step, is_once in enumerate(once.tolist())]
    once &= ~recurring(ranks, walls.job_wall, once) | np.array(starts_up, bool)
    is_common = np.isin(every, numbers)
    is_once = once[is_common]
    if not is_once.any():
        return unchanged, ()
    begin, end = longest_run(~is_once[::-1])  # backwards: of equals the last, when the process is warmer
    first, last = len(is_once) - end, len(is_once) - 1 - begin
    kept = unchanged
    if not is_once.all():
        low, high = numbers[first], numbers[last]
        rows = [np.flatnonzero((facts.steps["index"] >= low) & (facts.steps["index"] <= high)) for facts in ranks]
        kept = tuple(map(with_steps, ranks, rows))

    def mostly(step: int) -> str:
        return f"{MOSTLY} {_largest_cause(ranks, int(numbers[step]))}"

    left_out = [
        LeftOut(int(numbers[step]), round(float(walls.job_wall[place])), _why(walls, int(place), once) or mostly(step))
        for step, place in enumerate(np.flatnonzero(is_common))
        if not first <= step <= last
    ]
    return kept, tuple(left_out)


def own_steady_steps(ranks: Sequence[RankFacts]) -> tuple[tuple[RankFacts, ...], tuple[LeftOut, ...]]:
    """Ranks that are not compared, each reduced to its own steady steps, and the steps left out on any."""
    alone = [steady_steps((facts,)) for facts in ranks]
    left_out = {step.number: step for _, once in reversed(alone) for step in once}
    return tuple(kept for (kept,), _ in alone), tuple(left_out[number] for number in sorted(left_out))


def _walls(ranks: Sequence[RankFacts], held: Sequence[Table], numbers: Array, clock: Clock | None) -> _Walls:
    shape = (len(ranks), len(numbers))
    begin, wall, busy, idle, paused, saving, kernels, lead = (np.full(shape, np.nan) for _ in range(8))
    once = np.full((len(Once), *shape), np.nan)
    for position, (facts, recorded) in enumerate(zip(ranks, held, strict=True)):
        steps = recorded.take(np.flatnonzero(np.isin(recorded["index"], numbers)))
        at = np.searchsorted(numbers, steps["index"])
        lo, hi = steps.bounds
        wall[position, at] = hi - lo
        lead[position, at] = lo - steps["mark_ns"]
        begin[position, at] = lo - (clock.offset_ns(position) if clock else 0)
        busy[position, at] = intervals.overlap(compute_work(facts), lo, hi)
        idle[position, at] = intervals.overlap(intervals.union(*facts.gaps.bounds), lo, hi)
        # The longest: many short ones are no pause, but a host that issues work more slowly than the device runs it.
        own_idle = intervals.union(*of_cause(facts.gaps, *HOSTS_OWN).bounds)
        start, end, _, step = intervals.intersect_rows(own_idle, (lo, hi))
        longest = np.zeros(len(hi))
        np.maximum.at(longest, step, end - start)
        paused[position, at] = longest
        # Idle time of a rank that was recorded in part has no cause.
        saves = of_cause(facts.gaps, "checkpoint") if facts.counts.get("whole", 1) else facts.spans_of("checkpoint")
        saving[position, at] = _begun_in(intervals.union(*saves.bounds), lo, hi)
        at_ns = np.sort(facts.device_ops["start_ns"][facts.device_ops["work"] == Work.COMPUTE])
        kernels[position, at] = np.searchsorted(at_ns, hi) - np.searchsorted(at_ns, lo)
        once[:, position, at] = 0
        for kind in np.unique(facts.once["kind"]).tolist():
            costs = intervals.union(*facts.once.bounds_of(facts.once["kind"] == kind))
            once[kind, position, at] = intervals.overlap(costs, steps["mark_ns"], steps["mark_end_ns"])
    errors = [domain.error_ns for domain in clock.domains.values()] if clock else [None]
    uncertain_ns = 2.0 * max(error for error in errors if error is not None) if None not in errors else np.inf
    apart = np.nanmax(begin, axis=0) - np.nanmin(begin, axis=0)
    return _Walls(wall, busy, idle, paused, saving, once, kernels, lead, np.maximum(0.0, apart - uncertain_ns))


def _begun_in(spans: Intervals, lo: Array, hi: Array) -> Array:
    """Time of the spans that begin in each step, or are open as it begins after an unrecorded one; shape (steps,). One
    save that reaches into the next step is no second save."""
    start, end = spans
    step = np.searchsorted(hi, start, side="right")
    inside = step < len(hi)
    inside[inside] = end[inside] > lo[step[inside]]
    held = np.bincount(step[inside], weights=(end - start)[inside], minlength=len(hi))
    return np.asarray(held[: len(hi)])


def _occurring_once(walls: _Walls) -> Array:
    """Mask of steps to leave out; shape (steps,)."""
    left_out = np.zeros(walls.wall.shape[1], bool)
    has_changed = True
    while has_changed:
        has_changed = False
        for step in np.argsort(-walls.job_wall, kind="stable").tolist():
            others = ~left_out
            others[step] = False
            if left_out[step] or not others.any():
                continue
            signs = (_holds_start, _begins_empty_ns, _opened_apart, _runs_more, _outweighs, _pauses_once)
            if any(is_one_off(walls, step, others) for is_one_off in signs):
                left_out[step] = has_changed = True
    return left_out


def _holds_start(walls: _Walls, step: int, others: Array) -> bool:
    """True where one-off costs explain most of the step's excess over the others."""
    usual_ns = float(np.median(walls.job_wall[others]))
    if walls.job_wall[step] - usual_ns < WORTH_SAYING * usual_ns:  # less would be worth no finding
        return False
    held = sum((walls.once[kind, :, step] for kind in _kinds_once(walls, step, others)), np.zeros(len(walls.wall)))
    is_timed = ~np.isnan(held) & ~np.isnan(walls.idle[:, others]).all(axis=1)
    if not is_timed.any():
        return False
    held, idle = held[is_timed], walls.idle[is_timed]
    excess = np.maximum(0, idle[:, step] - np.nanmedian(idle[:, others], axis=1))
    explained = np.minimum(held, excess)
    return float(explained.max()) >= WORTH_SAYING * usual_ns and float(explained.sum()) > MOST * float(excess.sum())


def _kinds_once(walls: _Walls, step: int, others: Array) -> list[Once]:
    """Kinds of cost of which this step holds more than all others together. A batch is a first one only where the
    process starts. Memory may be allocated in every second step as well: then another step, left out or not, holds
    about as much; only start-up, which may take several steps, is compared with what comes after it.
    """
    longest = np.nanmax(walls.once, axis=1)  # (kinds, steps), of any rank
    kinds = [kind for kind in Once if longest[kind, step] > longest[kind, others].sum()]
    if not any(kind in STARTING_UP for kind in kinds):
        kinds = [kind for kind in kinds if kind != Once.BATCH]
    again = longest[Once.MEMORY, step + 1 :] if not others[:step].any() else np.delete(longest[Once.MEMORY], step)
    if TIMES_OTHERS * again.max(initial=0) >= longest[Once.MEMORY, step]:
        kinds = [kind for kind in kinds if kind != Once.MEMORY]
    return kinds


def _opened_apart(walls: _Walls, step: int, _: Array) -> bool:
    """True for a first step that ranks begin further apart than any other, by a considerable time."""
    if step or len(walls.apart) <= FEWEST_OTHERS:
        return False
    usual_ns = float(np.median(walls.job_wall[1:]))
    return float(walls.apart[0] - walls.apart[1:].max()) > WORTH_SAYING * usual_ns


def _begins_empty_ns(walls: _Walls, step: int, others: Array) -> float:
    """Excess of a first step that the host's lead in every other step would hide; 0.0 without one worth saying."""
    if step or int(others.sum()) < FEWEST_OTHERS:
        return 0.0
    usual_ns = float(np.median(walls.job_wall[others]))
    excess_ns = float(walls.job_wall[step]) - usual_ns
    least_ns = np.where(np.isnan(walls.lead), np.inf, walls.lead)[:, others].min(axis=1)
    hidden_ns = float(np.nanmin(least_ns - walls.lead[:, step]))
    return excess_ns if WORTH_SAYING * usual_ns < excess_ns <= hidden_ns else 0.0


def _runs_more(walls: _Walls, step: int, others: Array) -> bool:
    """True where every rank runs clearly more kernels in the step, for longer, than in the others, which are equal.
    Where one rank alone does, it is late and the others wait.
    """
    longest_usual_ns = (1 + WORTH_SAYING) * float(np.median(walls.job_wall[others]))
    if int(others.sum()) < FEWEST_OTHERS or not float(walls.job_wall[step]) > longest_usual_ns:
        return False
    ranks = ~np.isnan(walls.kernels[:, step]) & ~np.isnan(walls.kernels[:, others]).all(axis=1)
    rest = walls.kernels[ranks][:, others]
    usual = np.nanmedian(rest, axis=1, keepdims=True)
    alike = bool((usual > 0).all() and not (np.abs(rest - usual) > COUNT_TOLERANCE * usual).any())
    more = (walls.kernels[ranks][:, [step]] > (1 + COUNT_TOLERANCE) * np.nanmax(rest, axis=1, keepdims=True)).all()
    return alike and bool(more & ranks.any())


def _outweighs(walls: _Walls, step: int, others: Array) -> bool:
    """True where some rank computes nothing for longer than all other steps together take, or saves for half as long,
    and in no other step. Peers need not wait for it in the recording's last step. With two steps only a save counts,
    since not every step saves.
    """
    rest = walls.job_wall[others]
    saves_once = not np.nansum(walls.saving[:, others])
    saved_ns = float(np.nanmax(walls.saving[:, step])) if saves_once else 0.0
    if int(others.sum()) < FEWEST_OTHERS:
        return saved_ns > float(rest.sum())
    usual_ns = float(np.median(rest))  # the peers of one that saves wait for it in the next step
    most_ns = max(SAVING_SHARE * len(rest), FEWEST_OTHERS) * usual_ns
    unused_ns = float(np.nanmax(walls.wall[:, step] - walls.busy[:, step]))
    return unused_ns > float(rest.sum()) or saved_ns > most_ns


def _pauses_once(walls: _Walls, step: int, others: Array) -> bool:
    """True where a pause of all ranks' hosts makes the step longer, and none pauses nearly as long in any other."""
    rest = walls.paused[:, others]
    if int(others.sum()) < FEWEST_OTHERS or np.isnan(rest).all():
        return False
    usual_ns = float(np.median(walls.job_wall[others]))
    shortest = float(np.nanmin(walls.paused[:, step]))
    least_ns = max(WORTH_SAYING * usual_ns, MOST * (float(walls.job_wall[step]) - usual_ns))
    return shortest >= least_ns and shortest > TIMES_ELSEWHERE * float(np.nanmax(rest))


def _why(walls: _Walls, step: int, is_once: Array) -> str:
    """The costs for which the step is left out, the longest on any rank first; "" for one that is only long, also
    beside costs that do not explain it. Their times are not told: they are the host's, on different ranks, and overlap.
    """
    if not is_once[step]:
        return APART
    others = ~is_once
    explains = not others.any() or _holds_start(walls, step, others)
    kinds = [k for k in _kinds_once(walls, step, others) if explains and np.nanmax(walls.once[k, :, step]) > 0]
    kinds.sort(key=lambda kind: -np.nanmax(walls.once[kind, :, step]))
    usual_ns = float(np.median(walls.job_wall[others]))
    held = [(WORDS[k], float(np.nanmax(walls.once[k, :, step]))) for k in kinds]
    if not any(ns for _, ns in held) and (late_ns := _begins_empty_ns(walls, step, others)):
        held.append((EMPTY_QUEUE, late_ns))
    if _runs_more(walls, step, others):
        held.append((MORE_KERNELS, float(walls.job_wall[step]) - usual_ns))
    if _opened_apart(walls, step, others):
        held.append((OPENED_APART, float(walls.apart[step])))
    if not any(ns for _, ns in held) and _pauses_once(walls, step, others):
        held.append((PAUSE, float(np.nanmax(walls.paused[:, step]))))
    return ", ".join(words.format(format_us(ns / 1e3)) for words, ns in held if ns >= WORTH_SAYING * usual_ns)


def _largest_cause(ranks: Sequence[RankFacts], number: int) -> str:
    """The cause with most of a step's time without compute, on any rank, in words. What ranks communicate for longer
    than the one with least of it, they wait for that one."""
    taken, exposed = dict[str, float](), []
    for facts in ranks:
        lo, hi = facts.steps.bounds_of(np.flatnonzero(facts.steps["index"] == number))
        exposed.append(float(intervals.overlap(intervals.union(*facts.exposed.bounds), lo, hi).sum()))
        for cause, row in CAUSES.items():
            idle = intervals.union(*of_cause(facts.gaps, cause).bounds)
            taken[row.words] = max(taken.get(row.words, 0.0), float(intervals.overlap(idle, lo, hi).sum()))
    least = int(np.argmin(exposed))
    taken["communication"] = exposed[least]
    largest = max(taken, key=lambda words: taken[words])
    is_late = max(exposed) - exposed[least] > MOST * taken[largest]
    return f"waiting for rank {ranks[least].identity.rank}" if is_late else largest


def recurring(ranks: Sequence[RankFacts], wall_ns: Array, is_left_out: Array) -> Array:
    """Mask of left-out steps as long as others that recur outside the recording; shape (steps,).

    `wall_ns`: of each traced step on the typical rank. Enough of the run's steps must be as long for a recording of
    this length to hold one on average. All False where steps were not timed.
    """
    recurs = np.zeros(len(wall_ns), bool)
    if is_left_out.all() or not is_left_out.any():
        return recurs
    outside = [np.array([step.length_ns for step in unprofiled_steps(facts)], float) for facts in ranks]
    if any(len(lengths) < MIN_STEPS for lengths in outside):
        return recurs
    usual_ns = float(np.median(wall_ns[~is_left_out]))
    for step in np.flatnonzero(is_left_out).tolist():
        # Nearer by ratio to this one than to the usual ones; both were longer under the profiler, so few are counted.
        as_long_ns = float(np.sqrt(wall_ns[step] * usual_ns))
        times = [int((lengths > as_long_ns).sum()) for lengths in outside]
        often = float(np.median([count / len(lengths) for count, lengths in zip(times, outside, strict=True)]))
        recurs[step] = np.median(times) >= FEWEST_TIMES and often * len(wall_ns) >= EXPECTED
    return recurs
