"""Python of the script between the phases keeps the device waiting.

What it detects: idle time while the training thread runs the user's own Python or what that calls, and the time that
other ranks wait for such a rank. It counts outside forward, backward and optimizer, and inside them where it takes far
longer than launching. Examples are metrics, moving averages over parameters, statistics and logging. The typical rank
runs it.
Why it costs: nothing is launched meanwhile, so the device drains and waits for the interpreter in every step.
How the gain is priced: the run is replayed with no host time in those lines. It gains no more than devices wait for
them, and other ranks for ranks that they made late.
How to fix: do it every N steps, or for all tensors at once (`torch._foreach_*`). Else do it on the device without
reading values, or in another thread or process. Which of these is said by what the line calls (libraries, operators),
else by its name. On a CPU rank the training thread is the device, and operators that such Python calls count. Examples
are a moving average, clipping or statistics tensor by tensor, and gradients filled with zeros. An optimizer of the
user's that calls small operators for each parameter is another. Of those that can be one call for all tensors one
operator per tensor is left in the price. A communication hook of DistributedDataParallel may be Python of the script
and hold the backward pass. It is reported with its function and line where `ddprof run` recorded the job. The timers of
all steps show what runs in some steps only, or on ranks in turn. Samples name its line; Python of hooks in backward
passes, whose timers hold waits for other ranks, by samples alone.
Limits: needs Python frames: a trace with `with_stack=True`, or samples of a captured run. Samples say who shares the
time between the phases, over the whole run where a window holds few. A traced frame names the line on which its
function is defined. A package that is not known as a library counts as the user's. Preparing data is the input, saving
and evaluating are host.checkpoint. What only some ranks run makes those ranks late, and is reported there.
Sources: PyTorch performance tuning guide; torch.profiler documentation (with_stack).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.charged import waited_for_part_us
from ddprof.analyzers.job.host_costs import held_by_hooks_us, longest_hook
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import FEWEST_SAMPLES, MOST_SHARE
from ddprof.analyzers.job.script.beside import (
    BACKWARD,
    FORWARD,
    MIN_SAMPLES,
    REST,
    is_sampled,
    run_samples,
    sampled_beside,
    times_called,
    times_seen,
)
from ddprof.analyzers.job.script.kinds import METRICS, OTHER, STATISTICS, ZEROING, LineKind, LineKinds
from ddprof.analyzers.job.script.lines import ScriptLine, has_frames, lines_of
from ddprof.analyzers.job.waiting.lateness import chance_of_most
from ddprof.analyzers.job.whole_run.cpu_waits import traced_shares
from ddprof.analyzers.rules.evidence.redundant import on_gathered
from ddprof.analyzers.rules.evidence.script import (
    script_now_and_then,
    script_outside,
    seen_in_passes,
)
from ddprof.analyzers.rules.evidence.spans import at
from ddprof.finding_ids import HOST_SCRIPT
from ddprof.findings import Abstention, Alters, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.intervals import overlap
from ddprof.significance import MAX_CHANCE
from ddprof.tables import Array
from ddprof.units import format_count, format_share, format_us
from ddprof.whose import whose

MIN_SHARE = 0.015  # of the step idle in the script's Python; that of host.launch_bound
# Effects of a kind's fix on training.
_ALTERS = {OTHER: Alters.CHORE, STATISTICS: Alters.VALUES, METRICS: Alters.VALUES, ZEROING: Alters.ZEROS}
OTHER_FACTOR = 2.0  # a rank that runs so much more than the typical one is late by it; as of a loader (input_starved)
ANYWHERE = (REST, FORWARD, BACKWARD)  # where in a step a function was sampled
MAX_LINES = 3  # told one by one; a line of less than a tenth of the first is not told
WITHOUT_FRAMES = "recorded without Python stacks: the script's own lines are unknown"


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find idle time in script Python of the typical rank, and in its communication hooks."""
    job = measures.job
    hooked = slow_hook(measures)
    if hooked is not None:
        yield hooked
    if hooked is None and not any(has_frames(facts) for facts in job.ranks):
        yield Abstention(RULE.id, WITHOUT_FRAMES)
    if not any(has_frames(facts) for facts in job.ranks):
        return
    in_windows = next(_in_windows(measures), None)
    beyond_us = OTHER_FACTOR * in_windows.lost_us if in_windows is not None else 0.0
    of_run = (script_now_and_then, seen_in_passes, script_outside)
    told = next(filter(None, (timed(measures, beyond_us) for timed in of_run)), in_windows)
    if told is not None:
        yield told


def _in_windows(measures: Measures) -> Iterator[Candidate]:
    """Candidates from the traced steps."""
    job = measures.job
    others, every_us = _who_run_it(measures)
    if not len(others):
        return
    idle, runs_us = measures.script_us, averages.typical(every_us[others])
    # Of one that runs more, what is said here: what the timers of the run show a rank late by is its own.
    most_us = np.where(measures.timed_us > 0, 1.0, OTHER_FACTOR) * runs_us
    every_us = np.minimum(every_us, most_us)
    worst = _best_seen(measures, others)
    facts, script = job.ranks[worst], measures.script[worst]
    # What is computed on values that are gathered without need goes with them: comm.bandwidth_bound, .latency_bound.
    every = lines_of(facts, np.where(on_gathered(measures, worst), 0.0, script.stack_ns))
    lines = [line for line in every if not _is_of_one(job.ranks, line)]
    needed = sum(line.time_ns for line in lines) / max(1.0, float(script.stack_ns.sum()))
    all_run_us = np.minimum(idle, most_us)
    waits_us = waited_for_part_us(measures, all_run_us, np.setdiff1d(np.arange(len(idle)), list(measures.alone)))
    cost_us = needed * float(all_run_us[others].mean() + waits_us.mean())
    if min(cost_us, needed * runs_us) < MIN_SHARE * measures.step_us:
        return
    # A rank that waits for a CPU does so in any line: a few samples are in one that costs nothing.
    waited = traced_shares(job.ranks).waited.mean() if execution_of(job).computes_on_host else 0.0
    least = FEWEST_SAMPLES if waited > MOST_SHARE * cost_us / measures.step_us else MIN_SAMPLES
    where = script.idle
    lines = [line for line in lines if line.file and _is_seen(job.ranks, worst, line, least)]
    if not lines or not len(where[0]):
        return
    steps, first = len(facts.steps), lines[0]
    shown = [line for line in lines[:MAX_LINES] if line.time_ns >= first.time_ns / 10]
    kinds = LineKinds(facts)
    kind = [kinds.of(line.stacks, line.stack_ns) for line in shown]
    left = _left(kinds, shown, kind)
    longest = int(np.argmax(where[1] - where[0]))
    start, end = int(where[0][longest]), int(where[1][longest])
    yield Candidate(
        id=RULE.id,
        summary=f"Python code of the script delays {execution_of(job).work_noun}, mostly {first.words}",
        lost_us=cost_us,
        changes=(Change("no_script", values=(1.0 - needed * (1.0 - left),)),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence("; ".join(_of_step(line, steps, measures.step_us) for line in shown), job.rank_ids[worst]),
            Evidence(
                f"total {format_us(cost_us)} per step ({format_share(cost_us / measures.step_us)}) on a typical rank"
            ),
            *_basis(job.ranks, first),
            at(measures, worst, start, end, f"longest wait: {format_us((end - start) / 1e3)}", first.words),
        ),
        fixes=tuple(_fix(line, what, steps) for line, what in zip(shown, kind, strict=True)),
        ceiling_us=(1 - left) * cost_us,
        band=0.25,
        times_us=tuple(every_us.tolist()),
    )


def _who_run_it(measures: Measures) -> tuple[Array, Array]:
    """Positions of the ranks that run what the typical one runs, and for how long each rank does, us per step; shape
    (ranks,). What few ranks alone run is said with what makes these late.
    """
    # Hosts that run ahead hide a part of it, on every rank another: the time it takes tells that all run it.
    every_us = np.maximum(measures.script_us, _runs_us(measures))
    return np.setdiff1d(np.arange(len(every_us)), [*measures.alone, *whose(every_us)]), every_us


def _best_seen(measures: Measures, positions: Array) -> int:
    """The position of the rank whose recording shows most of the lines."""
    seen = np.array([sampled_beside(facts) for facts in measures.job.ranks])[positions]
    return int(positions[np.argmax(seen if seen.any() else measures.script_us[positions])])


def _runs_us(measures: Measures) -> Array:
    """Time of each rank in such lines per step, idle device or not; us, shape (ranks,)."""
    spent = zip(measures.script, measures.job.ranks, strict=True)
    return np.array(
        [
            script.share * float(overlap(script.every, *facts.marks).sum()) / 1e3 / len(facts.steps)
            for script, facts in spent
        ]
    )


def _is_seen(ranks: Sequence[RankFacts], worst: int, line: ScriptLine, least: int) -> bool:
    """True where a line was traced, or sampled often enough, in a function that the loop calls on any rank."""
    seen = times_seen(ranks[worst], line.stacks)
    if seen is None or seen >= least:
        return True
    return sum(times_called(facts, line, ANYWHERE) for facts in ranks) >= least


def _is_of_one(ranks: Sequence[RankFacts], line: ScriptLine) -> bool:
    """True where one rank alone was sampled in a function, beyond chance: it makes that rank late."""
    if not all(map(is_sampled, ranks)):
        return False
    seen = [times_called(facts, line, ANYWHERE) for facts in ranks]
    shares = np.array(seen) / [max(1.0, run_samples(facts).sum()) for facts in ranks]
    return bool(len(whose(shares))) and chance_of_most(max(seen), sum(seen), len(ranks)) < MAX_CHANCE


def _basis(ranks: Sequence[RankFacts], line: ScriptLine) -> Iterator[Evidence]:
    """Evidence on the number of samples behind a line."""
    every = sum(run_samples(facts).sum() for facts in ranks if is_sampled(facts))
    if every:
        seen = sum(times_called(facts, line, ANYWHERE, with_torch=True) for facts in ranks)
        yield Evidence(f"{seen} of {format_count(int(every), 'sample')} of the whole run are in {line.function}()")


def _of_step(line: ScriptLine, steps: int, step_us: float) -> str:
    """Device idle time due to a line, per step."""
    each_us = line.time_ns / 1e3 / steps
    return f"{line.words}: {format_us(each_us)} per step ({format_share(each_us / step_us)})"


def _left(kinds: LineKinds, lines: list[ScriptLine], kind: list[LineKind]) -> float:
    """Share of the lines' time that remains after their fixes."""
    total = sum(line.time_ns for line in lines)
    kept = sum(
        line.time_ns * kinds.left(what, line.stacks, line.time_ns) for line, what in zip(lines, kind, strict=True)
    )
    return float(kept / total) if total else 0.0


def _fix(line: ScriptLine, kind: LineKind, steps: int) -> Fix:
    """The fix for one line."""
    return Fix(
        setting=line.words,
        current=kind.name,
        suggested=kind.suggested,
        why=f"the training thread spends {format_us(line.time_ns / 1e3 / steps)} per step in it",
        source=kind.source,
        patch=kind.patch,
        alters=_ALTERS.get(kind),
    )


def slow_hook(measures: Measures) -> Candidate | None:
    """Finding where hooks take a part of the typical rank's step; None where they take little."""
    job = measures.job
    held_us = np.array([held_by_hooks_us(facts) for facts in job.ranks])
    if not len(held_us) or averages.typical(held_us) < max(MIN_SHARE * measures.step_us, np.finfo(float).tiny):
        return None
    worst = int(np.argmax(held_us))
    facts = job.ranks[worst]
    hooks, words, rank = facts.comm_hooks, longest_hook(facts), job.rank_ids[worst]
    length = hooks["end_ns"] - hooks["start_ns"]
    longest = int(np.argmax(length))
    per_step = len(hooks) / len(facts.steps)
    cost_us = float(held_us.mean())
    start, end = int(hooks["start_ns"][longest]), int(hooks["end_ns"][longest])
    return Candidate(
        id=RULE.id,
        summary=f"a Python communication hook delays the backward pass by {format_share(cost_us / measures.step_us)}"
        f" of each step, in {words}",
        lost_us=cost_us,
        changes=(Change("no_hook"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(
                f"{words}: {per_step:.0f} calls per step, {format_us(float(np.median(length)) / 1e3)} each; without "
                f"the communication that they start {format_us(float(held_us[worst]))} per step",
                rank,
            ),
            at(measures, worst, start, end, f"longest call: {format_us((end - start) / 1e3)}", words),
        ),
        fixes=(
            Fix(
                setting=words,
                current="Python for each bucket of gradients, inside the backward pass",
                suggested="a few operators on `bucket.buffer()` that start the communication; the rest once per step, "
                "or every N steps, after the optimizer",
                patch="return dist.all_reduce(bucket.buffer(), async_op=True).get_future()  # and nothing that loops",
                why="the backward pass goes on, and other buckets are sent, only when the hook returns",
                source="torch.nn.parallel.DistributedDataParallel.register_comm_hook documentation",
            ),
        ),
        ceiling_us=float(held_us.max()),
    )


RULE = Rule(HOST_SCRIPT, "Python code of the script delays the device", detect, bound="host")
