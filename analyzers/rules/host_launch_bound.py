"""The device drains faster than the host launches.

What it detects: a large part of the step is idle on every rank, because the next kernel has not been launched. The gaps
are short, about as long as a launch takes this host.
Why it costs: many small kernels cost more to launch than to run; the device waits for Python.
How the gain is priced: the run is replayed with launches that cost next to nothing (one CUDA graph per step); the
busiest stream then bounds the step. It gains no more than those gaps, and what other ranks wait for them.
How to fix: torch.compile, CUDA graphs, a larger batch, fused optimizers; what the recording shows that the job does
already is not advised again.
Limits: the price is an upper bound, because dynamic shapes and graph breaks keep some launches. Long gaps are not the
cost of launching: a call that takes far longer than usual is host.stalled. The profiler of PyTorch before 1.12 slows
the host by 4 us for each operator: that is no gain; where it leaves less than 3 % of the step, the rule abstains. A
step in which the host alone is slower than in all others is no measure of launching. On a CPU rank nothing is launched.
There a loop may call operators one by one, with equal shapes and more often than the model has parameters, or index a
tensor so: each index fills a gradient of the whole tensor. They are reported where one call for all would do; of their
time a part is left, as measured.
Sources: PyTorch CUDA graphs documentation; HTA documentation on kernel wait; pytorch#82793 (cost of recording).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.device import HIDES, launches_wait
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import ENGINE
from ddprof.analyzers.job.charged import waited_for_part_us
from ddprof.analyzers.job.host_costs import INDEXING, LOOPED, is_backward, looped_operators, part_us
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.beside import line_of_operators
from ddprof.analyzers.job.whole_run.unprofiled_steps import unprofiled_steps
from ddprof.analyzers.replay.changes.work import LOOPED_SHARE
from ddprof.analyzers.rules.evidence.present import Practice, present_in
from ddprof.analyzers.rules.evidence.spans import longest_idle
from ddprof.analyzers.rules.straggler_host import slow_hosts
from ddprof.finding_ids import HOST_LAUNCH_BOUND
from ddprof.findings import WARNING_SHARE, Abstention, Alters, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_share, format_us
from ddprof.whose import whose

MIN_SHARE = 0.015  # of the step idle before launches, healthy runs 0.1 %; queued kernels start within a microsecond
PACING_SHARE = 0.9  # of the step: hosts that are free for a tenth of it could launch as much more meanwhile
PLAIN_COMPILE = "torch.compile(model)"
WHY = "the device is idle until the next kernel is launched"
SOURCE = "PyTorch CUDA graphs and torch.compile documentation"
LOOPED_MIN_SHARE = 0.03  # of the step, in operators of a loop; what would be saved of less is below what is told
EITHER_WAY = (
    1 / 3
)  # of the gain there: what is left depends on the work of the operators, which their shapes do not say


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find idle time in short gaps for want of launches, on the typical rank."""
    job = measures.job
    if not execution_of(job).runs_ahead:
        yield from called_one_by_one(measures)
        return
    idle = measures.launching_us
    held = idle + waited_for_part_us(measures, idle, np.arange(len(idle)))
    typical = averages.typical(idle)
    if typical < MIN_SHARE * measures.step_us and _pace_the_step(measures):
        typical = averages.typical(held)
    if typical < MIN_SHARE * measures.step_us:
        return
    if any(launches_wait(facts) for facts in job.ranks):
        yield Abstention(RULE.id, HIDES)
        return
    recording_us = averages.typical(measures.recording_us)
    if typical - recording_us < min(WARNING_SHARE * measures.step_us, typical):
        words = f"the device waits {format_us(typical)} per step for launches; this old profiler costs the host about "
        words += f"{format_us(recording_us)} per step: time steps without the profiler to see what is left"
        yield Abstention(RULE.id, words)
        return
    worst = int(np.argmax(idle))
    kernels = float(np.median(measures.kernels_per_step))
    mean_us = float(np.median(measures.cause_us("compute"))) / kernels if kernels else 0.0
    interval_us = float(np.median(measures.launch_interval_us))
    yield Candidate(
        id=RULE.id,
        summary="the device waits for the host to launch kernels",
        lost_us=max(0.0, float(idle.mean()) - recording_us),
        changes=(Change("graph_launch"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(
                f"the device waits {format_us(typical)} per step ({format_share(typical / measures.step_us)}) "
                "on the typical rank"
            ),
            *_by_the_profiler(measures, typical, recording_us),
            Evidence(
                f"{kernels:.0f} kernels per step take {format_us(mean_us)} each on average; the median launch comes "
                f"{format_us(interval_us)} after the one before"
            ),
            *longest_idle(measures, worst),
        ),
        fixes=tuple(_fixes(present_in(job))),
        ceiling_us=float(held.max()) - recording_us,
        band=0.25,
        is_bound=True,
    )


def _by_the_profiler(measures: Measures, typical_us: float, recording_us: float) -> Iterator[Evidence]:
    """Evidence that the recording itself slows the host, and by how much where that is known."""
    left_us, ranks = typical_us - recording_us, measures.job.ranks
    if recording_us:
        left = f"{format_us(left_us)} per step ({format_share(left_us / measures.step_us)}) on the typical rank"
        yield Evidence(f"{left}, without some {format_us(recording_us)} that this old profiler costs")
    more = [name for name in ("record_shapes", "with_stack") if any(facts.top.get(name) for facts in ranks)]
    if more and not any(unprofiled_steps(facts) for facts in ranks):
        slow = "slows" if len(more) == 1 else "slow"
        yield Evidence(
            f"{' and '.join(more)} {slow} the host, too: time steps without the profiler to see what is left"
        )


def _pace_the_step(measures: Measures) -> bool:
    """True where the typical host is busy nearly all the time, and none far longer than others: waits for the last to
    launch are then launch time too, although few devices idle themselves.
    """
    limits = execution_of(measures.job).limits
    slow, _ = slow_hosts(measures.host, measures.job.pipeline, limits.min_host_excess * measures.step_us)
    # A host that stalls launches nothing meanwhile: host.stalled.
    stalled_ns = [intervals.overlap(intervals.union(*f.stalls.bounds), *f.marks).sum() for f in measures.job.ranks]
    busy_us = averages.typical(measures.host.time_us - np.array(stalled_ns) / 1e3 / max(1, measures.steps))
    return not len(slow) and busy_us >= PACING_SHARE * measures.step_us


def _fixes(practice: Practice) -> Iterator[Fix]:
    """Fixes that make launches fewer or cheaper, without those the job already uses."""
    if not practice.is_pytorch:
        graph = (
            "the whole step in one jax.jit or tf.function"
            if practice.is_of_xla
            else "a loop of equal launches captured as one graph"
        )
        yield Fix("launches", f"fewer, larger kernels; {graph}", WHY, SOURCE)
    elif not practice.has_cuda_graphs:
        if practice.has_inductor and not practice.is_compiled:
            yield _compile("eager", PLAIN_COMPILE, "fuses kernels, so that fewer are launched")
    elif practice.launches_graphs:
        yield Fix(
            setting="captured part of the step",
            current="some launches are graphs already",
            suggested="all of it: no graph breaks, static shapes, no copies to the host between graphs",
            patch='TORCH_LOGS="graph_breaks,cudagraphs" torchrun ...  # says what is left out of the graphs, and why',
            why="the device waits for kernels that are launched outside the graphs",
            source=SOURCE,
        )
    elif practice.is_compiled:
        mode = 'torch.compile(model, mode="reduce-overhead")'
        yield _compile("compiled, kernels launched one by one", mode, "replays the compiled kernels as CUDA graphs")
    else:
        mode = 'torch.compile(model, mode="reduce-overhead")'
        yield _compile("eager", mode, "fuses kernels and replays them as CUDA graphs")
    if practice.has_batches:
        yield Fix(
            setting="batch size",
            suggested="larger, if memory allows",
            why="longer kernels hide the launches",
            source="HTA documentation on kernel wait",
            alters=Alters.UPDATES if practice.trains else None,
        )


def _compile(current: str, suggested: str, effect: str) -> Fix:
    applies = (("compile", True),) if suggested == PLAIN_COMPILE else ()
    patch = f"model = {suggested}  # {effect}"
    return Fix("torch.compile", suggested, WHY, SOURCE, current, patch, applies=applies)


def called_one_by_one(measures: Measures) -> Iterator[Candidate | Abstention]:
    """The finding where the typical CPU rank spends a part of its steps in operators that a loop calls one by one."""
    ranks = measures.job.ranks
    if not any(len(facts.host_operators) for facts in ranks):
        yield Abstention(RULE.id, "a CPU run launches nothing, and its operators were not recorded")
        return
    times_us = np.array([part_us(facts, LOOPED) for facts in ranks])
    typical_us = averages.typical(times_us)
    if typical_us < LOOPED_MIN_SHARE * measures.step_us or len(whose(times_us)):
        return
    worst = int(np.argmax(times_us))
    (looped, hottest, calls, remedy), share = _looped(ranks[worst]), format_share(typical_us / measures.step_us)
    where = line_of_operators(ranks, hottest)
    yield Candidate(
        id=RULE.id,
        summary=f"a loop calls {looped} operators per step one by one" + (f", mostly at {where}" if where else ""),
        lost_us=typical_us * (1 - LOOPED_SHARE),
        changes=(Change("scale_part", (), (LOOPED_SHARE,), LOOPED),),
        basis=Basis.DEDUCED,
        evidence=(
            Evidence(f"they and the Python between them take {format_us(typical_us)} per step ({share})"),
            Evidence(calls, measures.job.rank_ids[worst]),
        ),
        fixes=(replace(remedy, setting=f"loop at {where}" if where else "the loop"),),
        band=EITHER_WAY,
        times_us=tuple(times_us.tolist()),
    )


_GUIDE = "PyTorch performance tuning guide"
_AT_ONCE = "one call for the whole batch or sequence (nn.LSTM for a cell, a batched loss, torch.vmap)"
_CALLED_ONCE = Fix(
    "", _AT_ONCE, "a short operator is mostly its call, which one call for all makes once", _GUIDE, "one call for each"
)
_INDEXED_ONCE = Fix(
    "",
    "`for row in x.unbind(dim)` in place of `x[:, k]`, or one call for all",
    "the gradient of x[:, k] is as large as x: a loop fills one for each k, unbind one for all",
    "PyTorch documentation of torch.unbind",
    "one index for each",
)


def _looped(facts: RankFacts) -> tuple[int, str, str, Fix]:
    """Calls of a rank's looped operators per step, less those inside others; the one beside the backward pass that
    takes longest; in words, what takes longest; and what to do."""
    ops, steps = facts.host_operators.take(np.flatnonzero(looped_operators(facts))), len(facts.steps)
    end = np.maximum.accumulate(ops["start_ns"] + ops["dur_ns"])
    outer = int((ops["start_ns"][1:] >= end[:-1]).sum()) + 1
    names, which, calls = np.unique(ops["name"], return_inverse=True, return_counts=True)
    spent_ns = np.bincount(which, weights=ops["dur_ns"])
    forward, longest = int(np.argmax(spent_ns * ~is_backward(facts.strings)[names])), int(np.argmax(spent_ns))
    indexes = bool(INDEXING.search(facts.strings[names[longest]]))
    at = longest if indexes else forward
    name, each_us = facts.strings[names[at]].removeprefix(ENGINE), float(spent_ns[at] / calls[at] / 1e3)
    words = f"{name} is called {int(calls[at]) // steps} times per step, {format_us(each_us)} each"
    return outer // steps, facts.strings[names[forward]], words, _INDEXED_ONCE if indexes else _CALLED_ONCE


RULE = Rule(HOST_LAUNCH_BOUND, "The host launches too slowly", detect, bound="host", upper_bound=True)
