"""Findings on script Python that runs in some steps, mostly outside the trace, or in hooks, and models called aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.script.tree import CallTree, call_tree
from ddprof.analyzers.facts.work import computes, host_work
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import FEWEST_SAMPLES, MOST_SHARE
from ddprof.analyzers.job.script.beside import BACKWARD, FORWARD, REST, own_stacks, run_samples
from ddprof.analyzers.job.script.idle import MIN_TIMES
from ddprof.analyzers.job.script.lines import ScriptLine, has_frames, lines_of, shown_place
from ddprof.analyzers.job.script.occupying import COLUMNS, calls_beside
from ddprof.analyzers.job.whole_run.now_and_then import NowAndThen, now_and_then
from ddprof.analyzers.job.whole_run.own_times import chance_left
from ddprof.analyzers.job.whole_run.unprofiled_steps import longer_outside_us
from ddprof.averages import typical
from ddprof.derived_once import remembered
from ddprof.finding_ids import HOST_SCRIPT, STRAGGLER_IMBALANCE
from ddprof.findings import Alters, Basis, Candidate, Evidence, Fix
from ddprof.tables import Array
from ddprof.units import format_share, format_us
from ddprof.whose import whose

# Of a step. Seven healthy jobs of steps of 4 to 40 ms on two busy cores reached 0.03 and 0.09 (2026-11-24).
BESIDE, IN_FORWARD = 0.06, 0.12
LARGE_SHARE = 0.1  # of the time, on all ranks: what is wanted of a training, and told where it is a tenth of it
LEAST_SEEN = 0.25  # of the time that timers show, in samples of the line: with fewer, another holds it
IN_ALL = 0.25  # of `beyond_us`, half of what the traced steps hold: as much in the quiet steps is in every step
LEAST_BAND = 0.25  # of a cost by timers or samples of the run
OUTLASTING = 2.0  # times what operators take: most of such samples are in none


def script_now_and_then(measures: Measures, beyond_us: float = 0.0) -> Candidate | None:
    """Finding where step timers of CPU ranks show extra time beyond chance in some steps, on all ranks or alternating,
    with the script line that samples saw most. None otherwise. Forward time counts as the script's where samples saw it
    call libraries other than torch. `beyond_us`: twice what the traced steps show.
    """
    ranks = measures.job.ranks
    if not all(computes(facts) for facts in ranks):
        return None
    every = _seen(ranks, REST)
    timed = _with_line(ranks, _occasional(measures, False), every)
    if timed is None or timed.cost < BESIDE * chance_left(ranks):
        every = _seen(ranks, FORWARD, of_libraries=True)
        timed = _with_line(ranks, _occasional(measures, True), every)
    words, seen = _longest(every)
    if timed is None or len(whose(timed.times)) or seen.counts.sum() < MIN_TIMES:
        return None
    # What few ranks alone take or run is said with what makes them late.
    if len(whose(seen.shares)) or seen.shares.max() < LEAST_SEEN * timed.cost:
        return None
    summary = f"Python code of the script takes {format_share(timed.cost)} of the steps outside the trace"
    summary += ", on one rank at a time" if timed.in_turn else ""
    cost_us = timed.cost * measures.step_us
    in_all_us = min(IN_ALL * beyond_us, cost_us)  # likewise; traced steps may hold waits for a CPU, timers do not
    if not timed.in_turn and timed.usual * measures.step_us >= in_all_us and cost_us <= beyond_us:
        return None
    samples, of = seen.counts.sum(), sum(float(one.counts.sum()) for one in every.values())
    since = "" if timed.since is None else f"since step {timed.since}, "
    evidence = (
        Evidence(f"{since}timers show it in {timed.often} of {timed.steps} steps outside the trace"),
        Evidence(f"{samples:.0f} of {of:.0f} samples of the script are in {words}"),
    )
    fix = _less_often(
        words, f"all ranks wait for the slowest one in each step: {format_share(timed.cost)} of the mean step"
    )
    return _timed(measures, HOST_SCRIPT, timed.cost, timed.times, f"{summary}, mostly {words}", evidence, fix)


@remembered
def _occasional(measures: Measures, in_forward: bool) -> NowAndThen | None:
    return now_and_then(measures.job.ranks, in_forward)


def script_outside(measures: Measures, beyond_us: float = 0.0) -> Candidate | None:
    """Finding on the line that samples of the run see most beside the phases, where steps of devices are clearly longer
    outside the trace and its samples explain at least half of that. No line that waits for the device."""
    ranks = measures.job.ranks
    outside_us = longer_outside_us(ranks, measures.step_us)
    if outside_us is None or not all(map(has_frames, ranks)):
        return None
    waits = tuple(f"{shown_place(facts, wait.source_line)} " for facts in ranks for wait in facts.sidecar.syncs)
    lines = {words: of for words, of in _seen(ranks, REST).items() if not words.startswith(waits)}
    words, (counts, shares) = _longest(lines)
    if counts.sum() < FEWEST_SAMPLES or len(whose(shares)):
        return None
    samples, every = counts.sum(), [run_samples(facts).sum() for facts in ranks]
    cost, longer = typical(shares), 1.0 - measures.step_us / outside_us
    if cost < longer / 2 or cost * measures.step_us <= beyond_us:
        return None
    evidence = (
        Evidence(f"steps outside the trace take {format_us(outside_us)}, traced ones {format_us(measures.step_us)}"),
        Evidence(f"{samples:.0f} of {sum(every):.0f} samples of the run are in {words}"),
    )
    fix = _less_often(words, f"{format_share(cost)} of the run is spent in it, mostly outside the traced steps")
    summary = f"Python code of the script takes {format_share(cost)} of the run, mostly {words}"
    return _timed(measures, HOST_SCRIPT, cost, shares, summary, evidence, fix)


def _less_often(words: str, why: str) -> Fix:
    return Fix(
        setting=words,
        suggested="run it less often, for all tensors at once, or outside the training thread",
        why=why,
        source="PyTorch performance tuning guide",
        alters=Alters.CHORE,
    )


def _with_line(
    ranks: Sequence[RankFacts], timed: NowAndThen | None, every: dict[str, SampledLine]
) -> NowAndThen | None:
    """Extra time by the timers: at least what samples saw in the longest line is no wait for a CPU, which falls
    anywhere in what a rank runs."""
    if timed is None or not every or not all(map(has_frames, ranks)):
        return timed
    own = np.minimum(timed.times, _longest(every)[1].shares).sum() / (timed.times.sum() or 1.0)
    return replace(timed, cost=max(timed.cost, float(own) * timed.most))


class CalledBeside(Struct, frozen=True):
    """Time of each rank in it per step (us), so many of all samples (`called` of `every`), and whether one rank at a
    time is in it."""

    times_us: Array
    called: float
    every: float
    in_turn: bool

    @property
    def lost_us(self) -> float:
        """Time that all ranks have alike, as what one has beyond makes that rank late; in turn others wait for each."""
        return float(self.times_us.sum()) if self.in_turn else typical(self.times_us)


@remembered
def called_beside(measures: Measures) -> CalledBeside | None:
    """The time in such calls; None where it is little, or one rank's more than others'."""
    (called, every), (called_ns, every_ns) = (
        np.array([calls_beside(facts, column) for facts in measures.job.ranks], float).T for column in COLUMNS
    )
    if called.sum() < FEWEST_SAMPLES or not called.all():
        return None
    times_us, extra = measures.step_us * called_ns / every_ns, measures.compute.extra
    of_one_us = extra.extra_ns.sum(axis=0).mean() / 1e3 if extra and len(measures.compute.turns) else 0.0
    in_turn = bool(of_one_us >= MOST_SHARE * times_us.sum())
    beside = CalledBeside(times_us, float(called.sum()), float(every.sum()), in_turn)
    is_large = beside.lost_us >= LARGE_SHARE * measures.step_us
    return beside if is_large and not measures.theirs(beside.times_us) else None


def turns_in_forward(measures: Measures) -> Candidate | None:
    """A finding where the timers of CPU ranks show that they have long forward passes in turn, and samples do not say
    in which line (`script_now_and_then`); else None."""
    ranks = measures.job.ranks
    timed = _occasional(measures, True) if all(computes(facts) for facts in ranks) else None
    if timed is None or not timed.in_turn or timed.cost < IN_FORWARD * chance_left(ranks) or len(whose(timed.times)):
        return None
    if script_now_and_then(measures) is not None:
        return None
    summary = f"ranks have long forward passes in turn: {format_share(timed.cost)} of the steps outside the trace"
    often = f"one rank at a time, in {timed.often} of {timed.steps} steps outside the trace, by their timers"
    fix = Fix(
        setting="work of single ranks in forward",
        suggested="equal on all ranks in every step, or outside the forward pass",
        why="each step waits for its slowest rank",
        source="OSDI'25 section 5.3",
        alters=Alters.CHORE,
    )
    return _timed(measures, STRAGGLER_IMBALANCE, timed.cost, timed.times, summary, (Evidence(often),), fix)


def seen_in_passes(measures: Measures, beyond_us: float = 0.0) -> Candidate | None:
    """Finding on the line that samples of the run see most in the backward passes of CPU ranks, else in hooks of their
    forward passes. Timers of backward passes hold waits for other ranks, and so do not say whether ranks run it at once
    or in turn: the price is between both."""
    return _seen_in(measures, BACKWARD, beyond_us) or _seen_in(measures, FORWARD, beyond_us)


def _seen_in(measures: Measures, phase: str, beyond_us: float) -> Candidate | None:
    ranks = measures.job.ranks
    if not all(computes(facts) and has_frames(facts) for facts in ranks):
        return None
    lines = _seen(ranks, phase, of_libraries=phase == BACKWARD, of_hooks=phase == FORWARD)
    words, (counts, shares) = _longest(lines)
    if counts.sum() < FEWEST_SAMPLES or len(whose(shares)):
        return None
    every = [run_samples(facts).sum() for facts in ranks]
    at_once = float(shares.max())
    in_turn = min(1.0, float(shares.sum())) if phase == BACKWARD else at_once
    if at_once < IN_FORWARD or (at_once + in_turn) / 2 * measures.step_us <= beyond_us:
        return None
    summary = f"Python code of the script takes {format_share(at_once)} of the run in {phase} passes, in {words}"
    seen_most = Evidence(f"{counts.sum():.0f} of {sum(every):.0f} samples of the run are in {words}")
    fix = Fix(
        setting=words,
        suggested=f"run this hook less often, for all tensors at once, or after the {phase} pass",
        why="the pass goes on only when the hook returns, and all ranks wait for the last",
        source="PyTorch performance tuning guide",
        alters=Alters.CHORE,
    )
    cost = (at_once + in_turn) / 2
    band = max(LEAST_BAND, (in_turn - at_once) / (in_turn + at_once))
    return _timed(measures, HOST_SCRIPT, cost, shares, summary, (seen_most,), fix, band)


def _timed(
    measures: Measures,
    rule_id: str,
    cost: float,
    times: Array,
    summary: str,
    evidence: tuple[Evidence, ...],
    fix: Fix,
    band: float = LEAST_BAND,
) -> Candidate:
    """The finding on what timers or samples of the run show; `cost`, and `times` of each rank: shares of the step."""
    cost_us = cost * measures.step_us
    return Candidate(
        id=rule_id,
        summary=summary,
        lost_us=cost_us,
        basis=Basis.TIMED,
        evidence=evidence,
        fixes=(fix,),
        band=band,
        times_us=tuple((times * measures.step_us).tolist()),
    )


def _outlasts_operators(facts: RankFacts, tree: CallTree, phase: str) -> Array:
    """Mask of the script's own lines in passes of a phase, where samples there are far more than its operators take:
    a call in C (an operator, a socket) has no frame of its own. Shape (stacks,)."""
    is_line = tree.folded == np.arange(len(tree))
    of_lines = run_samples(facts, phase)[is_line].sum()
    passes = facts.phase_time(Phase.BACKWARD if phase == BACKWARD else Phase.FORWARD)
    operators = intervals.intersect(host_work(facts), passes)
    computing = intervals.overlap(operators, *facts.steps.bounds).sum() / intervals.length(facts.steps.bounds)
    return np.asarray(is_line & (of_lines > OUTLASTING * computing * run_samples(facts).sum()))


class SampledLine(NamedTuple):
    """Samples of the run in a line, and the share of the run that they stand for, of each rank; shape (ranks,)."""

    counts: Array
    shares: Array


def _longest(seen: dict[str, SampledLine]) -> tuple[str, SampledLine]:
    """The line with most of the time, in words, and its samples; "" where none was seen."""
    words = max(seen, key=lambda one: float(seen[one].shares.sum()), default="")
    return words, seen.get(words, SampledLine(np.zeros(1), np.zeros(1)))


def _seen(
    ranks: Sequence[RankFacts], phase: str, of_libraries: bool = False, of_hooks: bool = False
) -> dict[str, SampledLine]:
    """Samples of the run in lines of the script, of each rank and in a phase. Of a model's call the line that makes it
    counts; where samples of libraries are asked for none of torch's own code, and none that may be in an operator, but
    in hooks."""
    of_ranks, longest = dict[tuple[str, str], SampledLine](), dict[tuple[str, str], ScriptLine]()
    framed = list(filter(has_frames, ranks))
    for position, facts in enumerate(framed):
        tree = call_tree(facts)
        is_own = own_stacks(facts, tree) & ~tree.is_loss
        if of_libraries:
            is_called = (tree.folded != np.arange(len(tree))) & ~tree.in_torch
            is_own &= is_called | tree.in_hook | _outlasts_operators(facts, tree, phase)
        elif of_hooks:
            is_own &= tree.in_hook
        counts, time_ns = (run_samples(facts, phase, column) * is_own for column in ("samples", "time_ns"))
        if phase == REST:
            caller = tree.caller(tree.in_phase)
            counts, time_ns = (np.bincount(caller, weights=own, minlength=len(tree)) for own in (counts, time_ns))
        every_ns = max(1.0, float(run_samples(facts, column="time_ns").sum()))
        for line in filter(lambda line: line.file, lines_of(facts, counts)):
            function = line.file, line.function  # of which each rank may be in another line most
            seen = of_ranks.setdefault(function, SampledLine(np.zeros(len(framed)), np.zeros(len(framed))))
            seen.counts[position] += line.time_ns
            seen.shares[position] += time_ns[line.stacks].sum() / every_ns
            longest[function] = max(longest.get(function, line), line, key=lambda one: one.time_ns)
    return {longest[function].words: seen for function, seen in of_ranks.items()}
