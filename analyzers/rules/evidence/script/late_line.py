"""The script line that a finding's late rank runs and its peers do not."""

from __future__ import annotations

import re
from dataclasses import replace

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import MOST_SHARE, Alone
from ddprof.analyzers.job.script.threads import makes_batches, threads_alone
from ddprof.analyzers.rules.evidence.loader_fixes import thread_fix
from ddprof.finding_ids import STRAGGLER_HOST, STRAGGLER_IMBALANCE, STRAGGLER_UNEXPLAINED
from ddprof.findings import Alters, Candidate, Evidence, Fix
from ddprof.units import format_share, format_us

_GUESSES = (STRAGGLER_HOST, STRAGGLER_UNEXPLAINED, STRAGGLER_IMBALANCE)
_PLACE = re.compile(r"\.py:\d+ ")  # a line of the script in words


def with_line(measures: Measures, candidate: Candidate) -> Candidate:
    """The candidate with the line in which one of its ranks alone spends the time: in the summary, with its cost as the
    first evidence, and as the first fix. Unchanged where frames show none, or the finding is on a thread.
    """
    if any(thread.line in candidate.summary for thread in threads_alone(measures.job.ranks).values()):
        return candidate
    longest = _longest(measures, candidate)
    if longest is None:
        return _with_thread(measures, candidate)
    position, line = longest
    beside = threads_alone(measures.job.ranks).get(position)
    if beside is not None and beside.share >= MOST_SHARE:  # beside a thread that has the interpreter all lines are long
        return _with_thread(measures, candidate)
    rank = measures.job.rank_ids[position]
    late_us = float(measures.late_us[position])
    if late_us < MOST_SHARE * candidate.lost_us:
        return candidate  # what it is late by in the traced steps is not what the finding is of
    share = f"{format_us(min(line.time_us - line.peers_us, late_us))} of the {format_us(late_us)} per step"
    meanwhile = "do not run it" if line.peers_us < 1 else f"take at most {format_us(line.peers_us)}"
    source = f" (by {line.samples} samples of the whole run)" if line.samples else ""
    is_timed = measures.timed_us[position] >= late_us
    waited = "by which it is late over the whole run" if is_timed else "that the others wait for it"
    seen = Evidence(
        f"rank {rank}: {line.words}, {share} {waited}; it takes {format_us(line.time_us)} there, its "
        f"peers {meanwhile}{source}",
        rank,
    )
    is_told = _PLACE.search(candidate.summary) is not None  # one place to open is enough, the first fix has the other
    who = "it" if candidate.ranks == (rank,) else f"rank {rank}"
    # A rule that names the place, and guesses no cause, has the fix for what is done there.
    is_fixed = (is_told and candidate.id not in _GUESSES) or any(fix.setting == line.line for fix in candidate.fixes)
    fixes = candidate.fixes if is_fixed else (_fix(line, rank),)
    return replace(
        candidate,
        summary=candidate.summary if is_told else f"{candidate.summary}; {who} {line.held}",
        evidence=(seen, *candidate.evidence),
        fixes=fixes + tuple(fix for fix in _others(candidate, rank, line.peers_us < 1) if fix not in fixes),
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
        fixes=(fix, *_others(candidate, rank, is_alone=False)),
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


def _others(candidate: Candidate, rank: int, is_alone: bool) -> tuple[Fix, ...]:
    """The candidate's own fixes; none where they are guesses about a late rank whose cause is known here. `is_alone`:
    its peers do not run that at all.
    """
    is_guess = candidate.id in _GUESSES and (is_alone or candidate.id != STRAGGLER_IMBALANCE)
    return () if is_guess and candidate.ranks == (rank,) else candidate.fixes


def _longest(measures: Measures, candidate: Candidate) -> tuple[int, Alone] | None:
    """The rank with the longest line that it runs alone, and that line; without what saves where the host is late."""
    lines = []
    for at, alone in measures.alone.items():
        is_whole = candidate.id != STRAGGLER_HOST or alone.beside_saves is None
        if measures.job.rank_ids[at] in candidate.ranks:
            lines += [(at, line) for line in ((alone,) if is_whole else alone.beside_saves or ())]
    return max(lines, key=lambda pair: pair[1].time_us - pair[1].peers_us, default=None)


def _fix(line: Alone, rank: int) -> Fix:
    """The fix for a function that one rank runs alone, or far longer than its peers."""
    is_alone = line.peers_us < 1
    return Fix(
        setting=line.line,
        current=f"runs on rank {rank} while the others wait" if is_alone else f"runs longer on rank {rank}",
        suggested=("on every rank alike" if is_alone else "as much of it on every rank")
        + ", less often, or in a thread or process that no collective waits for",
        why=f"it takes rank {rank} {format_us(line.time_us)} per step, its peers "
        f"{'' if is_alone else 'at most '}{format_us(line.peers_us)}",
        source="OSDI'25 section 5",
        alters=Alters.CHORE,
    )
