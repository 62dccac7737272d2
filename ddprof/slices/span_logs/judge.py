"""Findings on the spans of all ranks: who is late in which phase and since when, what stops ranks in turn, what takes
time on all of them, and what slows steps beside which it runs.

Ranks meet in the backward pass and in the optimizer, and wait there for one another: a longer time in such a phase says
nothing of its rank. In all others a rank that takes longer is waited for. What it costs is what the others wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.waiting.lateness import chance_of_most
from ddprof.findings import CRITICAL_SHARE, WARNING_SHARE, severity
from ddprof.report.log_reading import LogFinding
from ddprof.significance import MAX_CHANCE
from ddprof.slices.span_logs.read import BETWEEN, UNNAMED, Run
from ddprof.tables import Array
from ddprof.units import format_count, format_ranks, format_share, format_us

MEETS = re.compile(
    r"fwd|bwd|backward|optim|reduce|gather|scatter|metrics|barrier|sync|clip|pipeline|all_?to_?all", re.I
)
SURE = 4.0  # standard errors: chance exceeds them once in 30,000 times
SAME = 0.5  # of an excess: what must come back, in the steps, in the others' waiting, after a change
FEWEST = 3  # steps on each side, pauses in all
PAUSE = 0.05  # of a step: shorter ones are not told from scatter
RARE = 0.5  # of the steps: what comes more often is no pause but a part of the step
MOSTLY_BESIDE = 0.5  # of a step, during which something runs beside it
# (a phase by name, the finding, what it is in words, the page that explains it)
KINDS = (
    (re.compile(r"data|batch|fetch|load(?!_ckpt)", re.I), "input", "loading data", "input.starved"),
    (re.compile(r"checkpoint|ckpt|save|state_dict", re.I), "checkpoint", "saving", "host.checkpoint"),
    (re.compile(r"eval|valid", re.I), "evaluation", "evaluating", "host.evaluation"),
    (re.compile(r"gc|garbage", re.I), "gc", "collecting garbage", "host.gc"),
)


def findings_of(run: Run) -> list[LogFinding]:
    """All that the spans show, the dearest first."""
    phases = [name for name in run.phases if not MEETS.search(name) and name != UNNAMED]
    late = [finding for name in phases for finding in _late(run, name)]
    named = {(finding.phase, rank) for finding in late for rank in finding.ranks}
    stops = [finding for name in phases for finding in _stops(run, name, {r for n, r in named if n == name})]
    judged = {finding.phase for finding in (*late, *stops)}
    shares = [finding for name in phases if name not in judged for finding in _on_all(run, name)]
    slowed = [finding for name in run.beside for finding in _beside(run, name)]
    return sorted((*late, *stops, *shares, *slowed), key=lambda finding: -finding.share)


def _kind(phase: str) -> tuple[str, str, str | None]:
    """Identifier, words and page of a phase."""
    kind = next(((of, words, page) for mark, of, words, page in KINDS if mark.search(phase)), None)
    return kind or ("phase", "what it runs between steps" if phase == BETWEEN else phase, None)


def _late(run: Run, phase: str) -> Iterator[LogFinding]:
    """Ranks that take longer in a phase than the others, which wait for them."""
    if len(run.ranks) < 2:
        return
    times = run.phases[phase]
    step_s = float(np.median(run.period_s))
    more = times - np.median(times, axis=0)
    if len(run.ranks) == 2:
        more = times - times.min(axis=0)
    mean, error = more.mean(axis=1), more.std(axis=1, ddof=1) / times.shape[1] ** 0.5
    met = [times for name, times in run.phases.items() if MEETS.search(name) or name == UNNAMED]
    waiting = sum(met, np.zeros(times.shape)).mean(axis=1)
    slow = [
        row
        for row in np.flatnonzero((mean >= WARNING_SHARE * step_s) & (mean > SURE * error)).tolist()
        if float(np.median(np.delete(waiting, row)) - waiting[row]) >= SAME * float(mean[row])
    ]
    if not slow or 2 * len(slow) > len(run.ranks):
        return
    worst = max(slow, key=lambda row: float(mean[row]))
    first = _since(more[worst])
    recent = more[worst][first:]
    excess_s, ranks = float(recent.mean()), tuple(run.ranks[row] for row in slow)
    of, words, page = _kind(phase)
    if float(np.median(recent)) >= SAME * excess_s:
        how_often = f"in every step since step {run.numbers[first]}" if first else "in every step"
    else:
        how_often = f"in {int((recent > SAME * recent.max()).sum())} of {len(recent)} steps"
    yield LogFinding(
        f"straggler.{of}",
        severity(excess_s, step_s),
        f"{format_ranks(ranks)} takes {format_us(excess_s * 1e6)} longer than the others for {words} ({phase}), "
        f"{how_often}",
        excess_s / step_s,
        ranks,
        (f"the others wait {format_share(excess_s / step_s)} of each step for it: {_meeting_words(run)}",),
        page,
        phase,
    )


def _meeting_words(run: Run) -> str:
    names = [name for name in run.phases if MEETS.search(name)]
    return f"they are longer in {', '.join(names)}" if names else "they wait in no span"


def _since(more: Array) -> int:
    """The step (position) from which a rank is late, where it was not before; 0 where it always was."""
    count = len(more)
    if count < 2 * FEWEST:
        return 0
    places = np.arange(FEWEST, count - FEWEST + 1)
    sums, squares = np.append(0.0, np.cumsum(more)), np.append(0.0, np.cumsum(more**2))
    before, after = sums[places] / places, (sums[-1] - sums[places]) / (count - places)
    inside = squares[-1] - places * before**2 - (count - places) * after**2
    error = np.sqrt(np.maximum(inside, 1e-18) / (count - 2) * (1 / places + 1 / (count - places)))
    at = int(np.argmax((after - before) / error))
    is_clear = (after - before)[at] > SURE * error[at] and before[at] <= (1 - SAME) * after[at]
    return int(places[at]) if is_clear else 0


def _stops(run: Run, phase: str, named: set[int]) -> Iterator[LogFinding]:
    """Pauses in few steps: of all ranks at once, or of another one each time."""
    times = run.phases[phase].copy()
    times[[row for row, rank in enumerate(run.ranks) if rank in named]] = 0.0
    step_s, steps = float(np.median(run.period_s)), times.shape[1]
    more = times - np.median(times, axis=1, keepdims=True)
    hit = more > PAUSE * step_s
    at = np.flatnonzero(hit.any(axis=0))
    if len(at) < FEWEST or len(at) > RARE * steps:
        return
    longest_s = more[:, at].max(axis=0)
    run_s = float(np.median(run.period_s, axis=0).sum())
    share = float(longest_s.sum()) / run_s
    grade = severity(share, 1.0)
    of, words, page = _kind(phase)
    together = 2 * hit[:, at].sum(axis=0) > len(run.ranks)
    length, per_hour = format_us(float(np.median(longest_s)) * 1e6), format_us(share * 3600e6)
    rate = f"in {len(at)} of {steps} steps, {length} each"
    evidence = (f"once in {steps / len(at):.0f} steps; it costs {per_hour} of each hour",)
    if 2 * together.sum() > len(at) or len(run.ranks) == 1:
        who = "all ranks" if len(run.ranks) > 1 else f"rank {run.ranks[0]}"
        summary = f"{words} ({phase}) stops {who} {rate}"
        yield LogFinding(f"pause.{of}", grade, summary, share, (), evidence, page, phase)
        return
    count = np.bincount(np.argmax(more[:, at], axis=0), minlength=len(run.ranks))
    ranks = int((count > 0).sum())
    if ranks > 1 and chance_of_most(int(count.max()), len(at), len(run.ranks)) >= MAX_CHANCE:
        summary = f"{words} ({phase}) stops one rank after another {rate}: {ranks} ranks in turn"
        yield LogFinding(f"rotating.{of}", grade, summary, share, (), evidence, page, phase)
        return
    rank = run.ranks[int(np.argmax(count))]
    summary = f"{words} ({phase}) stops rank {rank} {rate}, and the others wait"
    yield LogFinding(f"straggler.{of}", grade, summary, share, (rank,), evidence, page, phase)


def _on_all(run: Run, phase: str) -> Iterator[LogFinding]:
    """Parts of each step that every rank spends beside computing."""
    share = float(np.median(run.phases[phase].sum(axis=1) / run.period_s.sum(axis=1)))
    of, words, page = _kind(phase)
    if share < WARNING_SHARE or (of == "phase" and phase != BETWEEN):
        return
    who = "every rank" if len(run.ranks) > 1 else f"rank {run.ranks[0]}"
    summary = f"{who} spends {format_share(share)} of the run on {words} ({phase})"
    grade = "warning" if share >= CRITICAL_SHARE else "info"  # of its host: what its device does is in no span
    evidence = ("time of the host; a device that has work left meanwhile loses nothing by it",)
    yield LogFinding(f"all.{of}", grade, summary, share, (), evidence, page, phase)


def _beside(run: Run, name: str) -> Iterator[LogFinding]:
    """Steps that are longer while something runs beside them on another thread."""
    during = run.beside[name].max(axis=0) > MOSTLY_BESIDE
    period = np.median(run.period_s, axis=0)
    count = int(during.sum())
    if min(count, len(during) - count) < FEWEST:
        return
    slow, usual = period[during], period[~during]
    more = float(np.median(slow) - np.median(usual))
    error = float(np.hypot(slow.std(ddof=1) / len(slow) ** 0.5, usual.std(ddof=1) / len(usual) ** 0.5))
    if more < WARNING_SHARE * float(np.median(usual)) or more < SURE * error:
        return
    share = more * count / float(period.sum())
    yield LogFinding(
        "beside.slows_steps",
        severity(share, 1.0),
        f"steps take {format_us(float(np.median(slow)) * 1e6)} instead of {format_us(float(np.median(usual)) * 1e6)} "
        f"while {name} runs beside them",
        share,
        (),
        (f"{format_count(count, 'step')} of {len(during)}; it takes CPU, memory or bandwidth from the step",),
        _kind(name)[2],
        name,
    )
