"""The line of the script, or the thread, that a finding's late rank runs and its peers do not."""

from __future__ import annotations

import re
from dataclasses import replace

from ddprof.analyzers.job.input_size import MIN_FED_SPREAD, fed_more_each_step
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import MOST_SHARE, Alone
from ddprof.analyzers.job.script.threads import makes_batches, threads_alone
from ddprof.analyzers.rules.evidence.loader_fixes import thread_fix
from ddprof.finding_ids import INPUT_STRAGGLER, STRAGGLER_HOST, STRAGGLER_IMBALANCE, STRAGGLER_UNEXPLAINED
from ddprof.findings import Alters, Candidate, Evidence, Fix
from ddprof.units import format_ranks, format_share, format_us

_GUESSES = (STRAGGLER_HOST, STRAGGLER_UNEXPLAINED, STRAGGLER_IMBALANCE)
_PLACE = re.compile(r"\.py:\d+ ")  # a line of the script in words


def with_line(measures: Measures, candidate: Candidate) -> Candidate:
    """The candidate with the line in which one of its ranks alone spends the time: in the summary, with its cost as the
    first evidence, and as the first fix. Unchanged where frames show none, or the finding is on a thread.
    """
    longest, threads = _longest(measures, candidate), threads_alone(measures.job.ranks)
    if any(thread.line in candidate.summary for thread in threads.values()):
        return candidate
    # Beside a thread that has the interpreter all lines are long.
    if longest is None or (longest[0] in threads and threads[longest[0]].share >= MOST_SHARE):
        return _with_thread(measures, candidate)
    position, line = longest
    rank, of_run_us = measures.job.rank_ids[position], float(measures.timed_us[position])
    if candidate.id == INPUT_STRAGGLER:
        of_run_us = float(measures.loading_late_us[position])
    late_us = max(float(measures.late_us[position]), of_run_us)
    if late_us < MOST_SHARE * candidate.lost_us:
        return candidate  # what it is late by in the traced steps is not what the finding is of
    share = f"{format_us(min(line.time_us - line.peers_us, late_us))} of the {format_us(late_us)} per step"
    there = {measures.job.rank_ids[at] for at, one in measures.alone.items() if one.line == line.line}
    peers = "its peers" if len(there) == 1 else format_ranks(sorted({*measures.job.rank_ids} - there))
    meanwhile = f"{peers} do not run it" if line.peers_us < 1 else f"{peers} take at most {format_us(line.peers_us)}"
    source = f" (by {line.samples} samples of the whole run)" if line.samples else ""
    waited = "that the others wait for it"
    if of_run_us >= late_us:
        waited = "by which it is late over the whole run"
    seen = Evidence(
        f"rank {rank}: {line.words}, {share} {waited}; it takes {format_us(line.time_us)} there, {meanwhile}{source}",
        rank,
    )
    is_told = _PLACE.search(candidate.summary) is not None  # one place to open is enough, the first fix has the other
    is_all = there.issuperset(candidate.ranks)
    who = ("it" if candidate.ranks == (rank,) else "they") if is_all else f"rank {rank}"
    # A rule that names the place, and guesses no cause, has the fix for what is done there; so have larger batches.
    is_fed = candidate.id == STRAGGLER_IMBALANCE and fed_more_each_step(measures.job.ranks, MIN_FED_SPREAD)[position]
    is_fixed = (is_told and candidate.id not in _GUESSES) or any(fix.setting == line.line for fix in candidate.fixes)
    is_fixed = is_fixed or bool(is_fed)
    fixes = candidate.fixes if is_fixed else (_fix(line, (f"rank {rank}", peers), candidate.id == INPUT_STRAGGLER),)
    return replace(
        candidate,
        summary=candidate.summary if is_told else f"{candidate.summary}; {line.held(who)}",
        evidence=(seen, *candidate.evidence),
        fixes=fixes + tuple(fix for fix in _others(candidate, is_all, line.peers_us < 1) if fix not in fixes),
    )


def _with_thread(measures: Measures, candidate: Candidate) -> Candidate:
    """The candidate with a thread that computes beside training on one of its ranks and on no other."""
    threads = {measures.job.rank_ids[at]: thread for at, thread in threads_alone(measures.job.ranks).items()}
    of_ranks = [(rank, thread) for rank, thread in threads.items() if rank in candidate.ranks]
    if not of_ranks:
        return candidate
    rank, thread = max(of_ranks, key=lambda pair: pair[1].share)
    who = "it" if candidate.ranks == (rank,) else f"rank {rank}"
    seen = Evidence(
        f"rank {rank}: a thread in {thread.line} is on a CPU for {format_share(thread.share)} of the traced time; "
        "if it runs Python, it shares the interpreter (GIL) with the training thread",
        rank,
    )
    is_maker = makes_batches(measures.job.ranks, thread)
    fix = thread_fix(thread.line) if is_maker else _polls(thread.line, rank)
    return replace(
        candidate,
        summary=f"{candidate.summary}; {who} has a thread that computes, in {thread.line}",
        evidence=(seen, *candidate.evidence),
        fixes=(fix, *_others(candidate, candidate.ranks == (rank,), is_alone=False)),
    )


def _polls(line: str, rank: int) -> Fix:
    return Fix(
        setting=line,
        current=f"a thread of rank {rank} that computes",
        suggested="sleep between polls (time.sleep, Event.wait), or run in a separate process",
        patch='multiprocessing.get_context("spawn").Process(target=..., daemon=True).start()',
        why="a thread that computes in Python keeps the GIL for 5 ms at a time",
        source="Python documentation: sys.setswitchinterval",
    )


def _others(candidate: Candidate, is_known: bool, is_alone: bool) -> tuple[Fix, ...]:
    """The candidate's own fixes; none where they are guesses about late ranks whose cause `is_known`. `is_alone`: their
    peers do not run that at all.
    """
    is_guess = candidate.id in _GUESSES and (is_alone or candidate.id != STRAGGLER_IMBALANCE)
    return () if is_guess and is_known else candidate.fixes


def _longest(measures: Measures, candidate: Candidate) -> tuple[int, Alone] | None:
    """The rank with the longest line that it runs alone, and that line; without what saves where the host is late."""
    lines = []
    for at, alone in measures.alone.items():
        is_whole = candidate.id != STRAGGLER_HOST or alone.beside_saves is None
        if measures.job.rank_ids[at] in candidate.ranks:
            lines += [(at, line) for line in ((alone,) if is_whole else alone.beside_saves or ())]
    return max(lines, key=lambda pair: pair[1].time_us - pair[1].peers_us, default=None)


_AS_FAST = "make it as fast as on the other ranks: the same storage, transforms and sample sizes"


def _fix(line: Alone, whom: tuple[str, str], loads: bool) -> Fix:
    """The fix for a function that a rank runs alone, or far longer than its peers (`whom`, in words); `loads`: as it
    makes batches."""
    is_alone = line.peers_us < 1
    is_needed = loads and not is_alone
    spread = "less often, on every rank alike" if is_alone else "equally on every rank, less often"
    suggested = f"run it {spread}, or in a thread or process that no collective waits for"
    return Fix(
        setting=line.line,
        suggested=_AS_FAST if is_needed else suggested,
        why=f"it takes {whom[0]} {format_us(line.time_us)} per step, {whom[1]} "
        + ("none" if is_alone else f"at most {format_us(line.peers_us)}"),
        source="OSDI'25 section 5",
        alters=None if is_needed else Alters.CHORE,
    )
