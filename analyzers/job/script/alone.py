"""What a late rank runs and its peers do not: time by the user's functions, rank against rank, over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.host_time import blocked
from ddprof.analyzers.facts.script.tree import CallTree, written
from ddprof.analyzers.job.script.beside import MIN_SAMPLES, REST, is_sampled, run_samples, sampled_beside
from ddprof.analyzers.job.script.idle import ScriptTime
from ddprof.analyzers.job.script.lines import HOT_SHARE, has_frames, time_by_stack
from ddprof.intervals import Intervals
from ddprof.tables import Table

# What a rank does for a tenth of the late rank's time or less, it does not do: an order of magnitude is more than a
# slow core, a stall or a cold cache explains (hosts that straggler.host names are up to 1.6 times as slow).
TIMES_PEERS = 10.0
MIN_LATENESS = 0.01  # of the step: what is smaller gets no finding of its own
MOST_SHARE = 0.5  # of the lateness: a line that explains less does not explain it
# Samples in a function, before its being on one rank alone is no chance: of two ranks alike, seven in turn are of the
# same one in less than MAX_CHANCE (job/waiting/lateness.py) of all cases. The eighth is for the choice of the rank.
FEWEST_SAMPLES = 8

# The user's frames of a stack from outside in: each is two parts, (file, 0, function) and then (file, line, function).
# So a function is told from its lines, of which samples know several.
Part = tuple[str, int, str]
Path = tuple[Part, ...]
ANY_LINE = 0


@dataclass(frozen=True)
class Alone:
    """A function or line of the script that holds one rank and not its peers; us per step.

    `peers_us`: how long they are in it, waiting included, or at the most. `inside`: the innermost call of the user's in
    which nearly all of that time is; "" if there is none. `samples`: of the whole run, where those of the windows do
    not say it; else 0.
    """

    line: str
    inside: str
    time_us: float
    peers_us: float
    samples: int = 0

    @property
    def words(self) -> str:
        """The line, and where in it the time is."""
        return f"{self.line}, in {self.inside}" if self.inside else self.line


def runs_alone(
    ranks: Sequence[RankFacts],
    late: int,
    lateness_us: float,
    step_us: float = 0.0,
    script: Sequence[ScriptTime] = (),
) -> Alone | None:
    """What makes rank `late` (a position) late by so much per step; None where no one function does, or the recording
    does not say what the ranks ran. Samples of the whole run say it of a typical step (`step_us`) where those of the
    windows do not, and where they are few, of the time beside the phases alone (`script`, by position).

    Of nested functions the outermost that the peers do not run, and in it the innermost that takes nearly all its time.
    A peer that waits inside a function runs it: the loop that calls what the late rank runs alone is on all ranks.
    """
    if len(ranks) < 2 or lateness_us <= 0:
        return None
    others = [facts for position, facts in enumerate(ranks) if position != late]
    if all(has_frames(facts) and len(facts.steps) for facts in ranks):
        mine = _often_enough(ranks[late], _in_windows(ranks[late], blocked(ranks[late])))
        found = _apart(mine, [_in_windows(facts, intervals.EMPTY) for facts in others], lateness_us)
        # A frame that was not traced did not run; one that no sample fell into may have.
        if found is not None and all(not is_sampled(facts) or _is_known(facts) for facts in others):
            return found
        if all(_is_known(facts) for facts in ranks):
            return found
    found = _by_samples(ranks, late, lateness_us, step_us)
    return _beside(ranks, late, lateness_us, script) if found is None and script else found


def _by_samples(ranks: Sequence[RankFacts], late: int, lateness_us: float, step_us: float) -> Alone | None:
    """By how often the ranks were seen where over the whole run."""
    counts, mine = run_samples(ranks[late]), _over_the_run(ranks[late], step_us)
    peers = [_over_the_run(facts, step_us) for position, facts in enumerate(ranks) if position != late]
    if not mine or not all(peers):
        return None
    seen = _by_path(ranks[late], counts)
    often = {path: time for path, time in mine.items() if seen[path] >= FEWEST_SAMPLES}
    found = _apart(often, peers, lateness_us, mine)
    return None if found is None else replace(found, samples=int(sum(counts.values())))


def _beside(ranks: Sequence[RankFacts], late: int, lateness_us: float, script: Sequence[ScriptTime]) -> Alone | None:
    """By the time beside the phases, which is recorded exactly: what the late rank does there for TIMES_PEERS as long
    as its peers do anything there, they do not do. Its samples need only say which line that is.
    """
    facts = ranks[late]
    if not is_sampled(facts) or not len(facts.steps) or not sampled_beside(facts):
        return None
    others = [position for position in range(len(ranks)) if position != late and len(ranks[position].steps)]
    if len(others) + 1 < len(ranks) or not all(len(script[position].every[0]) for position in others):
        return None  # of a rank whose phases are not known, nor is what it does beside them
    most_us = float(np.median([_length_us(ranks[position], script[position]) for position in others]))
    spent = {stack: ns / 1e3 / len(facts.steps) for stack, ns in enumerate(script[late].stack_ns.tolist()) if ns}
    seen = _by_path(facts, run_samples(facts, REST))
    every = _by_path(facts, spent)
    mine = {path: time for path, time in every.items() if seen.get(path, 0.0) >= MIN_SAMPLES}
    peers = set().union(*(_by_path(ranks[position], run_samples(ranks[position])) for position in others))
    most = dict.fromkeys(mine, most_us)
    # The loop is on all ranks, what it calls there is not.
    alone = {path: time for path, time in mine.items() if path not in peers}
    outer, peers_us = _outermost(alone, most, lateness_us), 0.0
    if outer is None and (shared := _outermost(mine, most, lateness_us)) is not None:
        outer, peers_us = _hottest(mine, shared), most_us
    return None if outer is None else replace(_told(mine, outer, peers_us, every), samples=sampled_beside(facts))


def _length_us(facts: RankFacts, script: ScriptTime) -> float:
    """All that a rank does beside the phases, us per step."""
    return float(intervals.overlap(script.every, *facts.marks).sum()) / 1e3 / len(facts.steps)


def _apart(
    mine: dict[Path, float],
    peers: Sequence[dict[Path, float]],
    lateness_us: float,
    seen: dict[Path, float] | None = None,
) -> Alone | None:
    """The path of `mine` that makes the rank late; its line is chosen from all that was `seen`, however rarely."""
    theirs = {path: float(np.median([peer.get(path, 0.0) for peer in peers])) for path in mine}
    outer = _outermost(mine, theirs, lateness_us)
    return None if outer is None else _told(mine, outer, theirs[outer], seen)


def _outermost(mine: dict[Path, float], theirs: dict[Path, float], lateness_us: float) -> Path | None:
    """The outermost path that the late rank is in by most of its lateness longer than its peers, and many times."""
    apart = [
        path
        for path, time in mine.items()
        if time - theirs[path] >= MOST_SHARE * lateness_us and time >= TIMES_PEERS * theirs[path]
    ]
    return min(apart, key=lambda p: (len(p), -mine[p]), default=None)


def _told(mine: dict[Path, float], outer: Path, peers_us: float, seen: dict[Path, float] | None = None) -> Alone:
    line, inside = _words(seen or mine, outer), _words(seen or mine, _hottest(mine, outer))
    return Alone(line, "" if inside == line else inside, mine[outer], peers_us)


def alone_by_rank(
    ranks: Sequence[RankFacts], blame: Table, step_us: float, script: Sequence[ScriptTime] = ()
) -> dict[int, Alone]:
    """What makes ranks late and their peers do not run, by position: of ranks that others wait for clearly."""
    found = {}
    for late in range(len(ranks)):
        lateness = lateness_us(ranks, blame, late)
        alone = runs_alone(ranks, late, lateness, step_us, script) if lateness >= MIN_LATENESS * step_us else None
        if alone is not None:
            found[late] = alone
    return found


def lateness_us(ranks: Sequence[RankFacts], blame: Table, late: int) -> float:
    """How long each of the other ranks waits for a rank (a position), us per step."""
    steps = min((len(facts.steps) for facts in ranks), default=0)
    charged = blame["dur_ns"][blame["culprit"] == late].sum()
    return float(charged) / 1e3 / max(1, steps) / max(1, len(ranks) - 1)


def _hottest(mine: dict[Path, float], path: Path) -> Path:
    """The innermost path inside a path that takes nearly all of its time."""
    enough = HOT_SHARE * mine[path]
    while True:
        inner = [p for p in mine if len(p) == len(path) + 1 and p[:-1] == path and mine[p] >= enough]
        if not inner:
            return path
        path = max(inner, key=lambda p: mine[p])


def _in_windows(facts: RankFacts, without: Intervals) -> dict[Path, float]:
    """Time (us per step) in the user's functions and all that they call, without some stretches."""
    own_ns = time_by_stack(facts, intervals.subtract(intervals.union(*facts.marks), without))
    return _by_path(facts, {stack: ns / 1e3 / len(facts.steps) for stack, ns in enumerate(own_ns.tolist()) if ns})


def _often_enough(facts: RankFacts, mine: dict[Path, float]) -> dict[Path, float]:
    """Without what fewer samples of the windows than MIN_SAMPLES found, where the rank was sampled."""
    if not mine or not is_sampled(facts):
        return mine
    least_us = MIN_SAMPLES * float(np.median(facts.script_spans["resolution_ns"])) / 1e3 / len(facts.steps)
    return {path: time for path, time in mine.items() if time >= least_us}


def _is_known(facts: RankFacts) -> bool:
    """Whether the samples of the windows say what ran for most of the steps."""
    marks = intervals.union(*facts.marks)
    return float(time_by_stack(facts, marks).sum()) >= MOST_SHARE * intervals.length(marks)


def _over_the_run(facts: RankFacts, step_us: float) -> dict[Path, float]:
    """The same of a step of `step_us`, by the samples of the whole run: as often as a rank is seen there."""
    counts = run_samples(facts)
    total = sum(counts.values())
    return _by_path(facts, {stack: step_us * count / total for stack, count in counts.items()})


def _by_path(facts: RankFacts, own: Mapping[int, float]) -> dict[Path, float]:
    """What is in stacks alone (by their rows), summed over the user's functions and all that they call."""
    paths = _paths(CallTree(facts.script_stacks, facts.script_frames))
    found: dict[Path, float] = {}
    for stack, amount in own.items():
        for length in range(1, len(paths[stack]) + 1):
            found[paths[stack][:length]] = found.get(paths[stack][:length], 0.0) + amount
    return found


def _paths(tree: CallTree) -> list[Path]:
    """The path of each stack. Callers stand before what they call."""
    parts = [((file, ANY_LINE, function), (file, line, function)) for file, line, function in tree.written]
    paths: list[Path] = []
    for frame, outer in zip(tree.frame.tolist(), tree.outer.tolist(), strict=True):
        around: Path = paths[outer] if outer >= 0 else ()
        paths.append((*around, *parts[frame]) if tree.is_user[frame] else around)
    return paths


def _words(mine: dict[Path, float], path: Path) -> str:
    """The innermost function of a path, with its line, or the line that the rank was in most."""
    if path[-1][1] == ANY_LINE:
        lines = [p for p in mine if len(p) == len(path) + 1 and p[:-1] == path]
        path = max(lines, key=lambda p: mine[p])
    return written(*path[-1])
