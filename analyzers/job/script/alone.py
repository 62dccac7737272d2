"""Code that a late rank runs and its peers do not: time by the user's functions, rank against rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.tree import written
from ddprof.analyzers.job.script.beside import (
    BACKWARD,
    COLLECTIVE,
    DATA,
    FORWARD,
    MIN_SAMPLES,
    REST,
    is_sampled,
    run_samples,
)
from ddprof.analyzers.job.script.idle import MIN_TIMES
from ddprof.analyzers.job.script.lines import HOT_SHARE
from ddprof.analyzers.job.script.paths import ANY_LINE, Path, RankPaths, by_path
from ddprof.tables import NULL, Array, Table

_WAITING = (BACKWARD, DATA, COLLECTIVE)  # phases in which a rank may wait
# What a rank does for a tenth of the late rank's time or less, it does not do: an order of magnitude is more than a
# slow core, a stall or a cold cache explains (hosts that straggler.host names are up to 1.6 times as slow).
TIMES_PEERS = 10.0
# A function that returns holds no pass of the step: twice what a slow core explains is its own work.
TIMES_PEERS_CALL = 3.0
NEARLY_ALL = 0.9  # of a time: one sample of it falls into this part in nine of ten cases
MIN_LATENESS = 0.01  # of the step: what is smaller gets no finding of its own
MOST_SHARE = 0.5  # of the lateness: a line that explains less does not explain it
# Samples in a function, before its being on one rank alone is no chance: of two ranks alike, seven in turn are of the
# same one in less than MAX_CHANCE (ddprof/significance.py) of all cases. The eighth is for the choice of the rank.
FEWEST_SAMPLES = 8
UNSEEN = 3.0  # samples: the rule of three


@dataclass(frozen=True)
class Alone:
    """A function or line of the script that one rank runs and its peers do not; us per step.

    `peers_us`: the peers' time in it, waits included, or an upper bound. `inside`: the innermost user call with nearly
    all of that time; "" for none. `samples`: of the whole run where windows have too few; else 0. `in_shared`: `line`
    is in a function that peers run too, such as the training loop. `beside_saves`: the code, () or one, that makes the
    rank late beside what saves, evaluates or logs, which the ledger does not book to the host; None where `line` does
    not.
    """

    line: str
    inside: str
    time_us: float
    peers_us: float
    samples: int = 0
    in_shared: bool = False
    beside_saves: tuple[Alone, ...] | None = None

    @property
    def words(self) -> str:
        """The line, and the call inside it that takes the time."""
        return f"{self.line}, in {self.inside}" if self.inside else self.line

    def held(self, who: str) -> str:
        """The one place to open, after who is there ("it", "they", a rank): the function or line that runs on no other
        rank, or the innermost call with its time; a helper that all ranks call is shown with the calling line.
        """
        runs, spends = ("run", "spend") if who == "they" else ("runs", "spends")
        if self.peers_us < 1 and not self.line.endswith("<module>") and not (self.in_shared and self.inside):
            return f"{who} alone {runs} {self.line}"
        if self.in_shared and self.inside:
            return f"{who} {spends} the extra time in {self.inside}, called from {self.line}"
        # Ten times as long as its peers, where those run it too.
        return f"{who} {spends} the extra time in {self.inside or self.line}"


def paths_of(ranks: Sequence[RankFacts], step_us: float) -> list[RankPaths]:
    """The paths of every rank. Whole-run samples stand in, per typical step (`step_us`), where windows have too few."""
    seen = [RankPaths(facts, step_us) for facts in ranks]
    return [replace(rank, without_phases=True) for rank in seen] if _train_apart(seen) else seen


def runs_alone(ranks: Sequence[RankPaths], late: int, lateness_us: float) -> Alone | None:
    """The code that makes rank `late` (a position) late by `lateness_us` per step; None where no single function does,
    or the recording does not show what ranks ran.

    Of nested functions it is the outermost that peers do not run, and in it the innermost with nearly all its time. A
    peer that waits inside a function runs it, such as the common training loop.
    """
    if len(ranks) < 2 or lateness_us <= 0:
        return None
    others = [rank for position, rank in enumerate(ranks) if position != late]
    if all(rank.has_frames for rank in ranks):
        seen = ranks[late].working
        often = ranks[late].beside_training(_often_enough(ranks[late], seen))
        code = _apart(ranks[late], often, [rank.in_windows for rank in others], lateness_us, seen)
        # A frame that was not traced did not run; one that no sample fell into may have.
        if code is not None and all(not is_sampled(rank.facts) or rank.is_known for rank in others):
            return code
        if all(rank.is_known for rank in ranks):
            # Peers may wait in the very call in which the late rank works, such as one that gathers its state.
            code = code or _apart(ranks[late], often, [rank.working for rank in others], lateness_us, seen)
            if code is not None:
                return code
    for by in (_by_samples, _held):
        code = by(ranks[late], others, lateness_us)
        if code is not None:
            return code
    return None


def _train_apart(ranks: Sequence[RankPaths]) -> bool:
    """True where ranks train in lines of their own, as stages of a pipeline do: such a line is on one rank alone, and
    says nothing of why that is late.
    """
    calls = [rank.training_calls for rank in ranks]
    if not calls or not all(calls):
        return False
    every = frozenset.union(*calls)
    return any(path not in rank.seen for rank in ranks for path in every)


def _by_samples(late: RankPaths, others: Sequence[RankPaths], lateness_us: float) -> Alone | None:
    """The code by the shares of each rank's samples over the whole run."""
    us_by_path, peers = late.over_the_run, [rank.over_the_run for rank in others]
    if not us_by_path or not all(peers):
        return None
    often = {path: time for path, time in us_by_path.items() if late.seen[path] >= FEWEST_SAMPLES}
    often = late.beside_training(often)
    code = _apart(late, often, peers, lateness_us, us_by_path)
    return None if code is None else replace(code, samples=int(late.samples.sum()))


def _by_timers(late: RankPaths, others: Sequence[RankPaths], lateness_us: float, own_us: float) -> Alone | None:
    """The code by the samples of the whole run outside the backward passes, the loader and collectives of the script.
    The timers say that the rank is late there; the samples need only say in which line."""
    is_own, *peers = (sum(run_samples(rank.facts, phase) for phase in _WAITING) == 0 for rank in (late, *others))
    counts, own_ns = late.samples * is_own, late.sampled_ns * is_own
    total = counts.sum()
    if not total or not own_ns.any():
        return None
    us_per_ns, each_us = own_us / own_ns.sum(), own_us / total
    seen, often = (by_path(late.facts, late.without_operators(of)) for of in (own_ns * us_per_ns, counts))
    theirs = [by_path(rank.facts, rank.sampled_ns * us_per_ns * it) for rank, it in zip(others, peers, strict=True)]
    enough = late.beside_training({path: us for path, us in seen.items() if often[path] >= MIN_SAMPLES})
    code = _apart(late, enough, theirs, lateness_us, seen)
    if code is None:
        return None
    # What no sample of a peer fell into it may run all the same: for less than three of them in 95 of 100 cases.
    is_few = code.time_us < FEWEST_SAMPLES * each_us
    return replace(code, samples=int(total), peers_us=max(code.peers_us, UNSEEN * each_us * is_few))


def _held(late: RankPaths, others: Sequence[RankPaths], lateness_us: float) -> Alone | None:
    """The code by the time between operators in one phase, which is recorded exactly: what delays the late rank there
    is code that no peer runs. Samples only choose the line.
    """
    for phase in (BACKWARD, FORWARD, REST):
        samples = late.called_in(phase)
        if not (total := samples.sum()):
            continue
        every_us = late.held_us(phase)
        held_us = every_us - float(np.median([rank.held_us(phase) for rank in others]))
        # Where next to all that holds it is its own, so is what any sample falls into; a rank that lacks a CPU for as
        # long stops anywhere, and few samples are then in a line that costs nothing.
        fewest = 1 if held_us >= NEARLY_ALL * every_us else MIN_TIMES
        fewest = FEWEST_SAMPLES if late.lacked_us > MOST_SHARE * held_us else fewest
        if held_us < MOST_SHARE * lateness_us or total < fewest:
            continue
        seen = by_path(late.facts, held_us * samples / total)
        # The loop around it is on all ranks.
        alone = {path: us for path, us in seen.items() if not any(path in rank.seen for rank in others)}
        outer = _outermost(alone, dict.fromkeys(alone, 0.0), lateness_us, late.training_calls)
        if outer is not None:
            return replace(_told(alone, outer, 0.0, seen), samples=int(total))
    return None


def _apart(
    late: RankPaths,
    us_by_path: dict[Path, float],
    peers: Sequence[dict[Path, float]],
    lateness_us: float,
    seen: dict[Path, float],
) -> Alone | None:
    """The path of `us_by_path` that makes the rank late: in a function that peers run far shorter, the part they do not
    run, where that is enough. Its line is chosen from all that was `seen`, however rarely.
    """
    theirs = {path: float(np.median([peer.get(path, 0.0) for peer in peers])) for path in us_by_path}
    outer = _outermost(us_by_path, theirs, lateness_us, late.training_calls)
    if outer is None:
        return None
    extra = {path: us - theirs[path] for path, us in us_by_path.items()}
    alone = {path: us for path, us in us_by_path.items() if path[: len(outer)] == outer and not theirs[path]}
    return _told(
        us_by_path, _outermost(alone, theirs, lateness_us, late.training_calls) or outer, theirs[outer], seen, extra
    )


def _outermost(
    us_by_path: dict[Path, float], theirs: dict[Path, float], lateness_us: float, trains: frozenset[Path]
) -> Path | None:
    """The outermost path that accounts for most of the late rank's lateness beyond its peers, with enough samples.
    `trains`: the functions that run the passes, and their lines."""
    most = MOST_SHARE * lateness_us
    is_call = {path: path[-1][1] == ANY_LINE and path not in trains for path in us_by_path}
    apart = (
        path
        for path, time in us_by_path.items()
        if time - theirs[path] >= most and time >= (TIMES_PEERS_CALL if is_call[path] else TIMES_PEERS) * theirs[path]
    )
    return min(apart, key=lambda p: (len(p), -us_by_path[p]), default=None)


def _told(
    us_by_path: dict[Path, float],
    outer: Path,
    peers_us: float,
    seen: dict[Path, float],
    extra: dict[Path, float] | None = None,
) -> Alone:
    """The code in words. `extra`: time beyond the peers', where they have any, by which the call inside is chosen. A
    line of a loop that peers share they run too, though no sample saw them: most of its time, not nearly all, will do.
    """
    in_shared = outer[-1][1] != ANY_LINE
    called = _hottest(extra or us_by_path, outer, MOST_SHARE if in_shared else HOT_SHARE)
    line, inside = _words(seen, outer), _words(seen, called)
    return Alone(line, "" if inside == line else inside, us_by_path[outer], peers_us, in_shared=in_shared)


def alone_by_rank(
    ranks: Sequence[RankFacts], blame: Table, step_us: float, timed: tuple[Array, Array], host_us: Array
) -> dict[int, Alone]:
    """Position -> code that makes this rank alone late, for ranks that others clearly wait for in the traced steps or
    by whole-run timers. `timed`: lateness by these (us, 0 for none) and time outside backward passes; `host_us`: by
    which the host of a rank is free for longer than the typical one's, of what others wait for it; of shape (ranks,).
    """
    by_rank = {}
    seen = paths_of(ranks, step_us)
    apart = [replace(rank, without_saves=True) for rank in seen]
    least_us = MIN_LATENESS * step_us
    for late, lateness in enumerate(all_lateness_us(ranks, blame).tolist()):
        late_us, beside_us, free_us = (float(each[late]) for each in (*timed, host_us))
        alone = runs_alone(seen, late, lateness) if lateness >= least_us else None
        if alone is None and late_us > 0:
            alone = _by_timers(seen[late], [rank for rank in seen if rank is not seen[late]], late_us, beside_us)
        if alone is None and least_us <= free_us <= lateness:
            alone = runs_alone(seen, late, free_us)
        if alone is not None:
            by_rank[late] = replace(alone, beside_saves=_beside_saves(seen, apart, late, lateness, alone))
    return by_rank


def _beside_saves(
    ranks: Sequence[RankPaths], apart: Sequence[RankPaths], late: int, lateness_us: float, alone: Alone
) -> tuple[Alone, ...] | None:
    """`Alone.beside_saves` of the code of a late rank, for ranks whose frames show what they ran, in the windows or the
    whole run. `apart`: the same ranks without what saves.
    """
    if not all(rank.has_frames for rank in ranks):
        return None
    saved_us = ranks[late].working_us - apart[late].working_us
    if alone.samples:
        saved_us = ranks[late].sampled_us - apart[late].sampled_us
    if not saved_us > 0 or runs_alone(apart, late, lateness_us) == alone:
        return None
    left = runs_alone(apart, late, lateness_us - saved_us)
    return () if left is None else (left,)


def all_lateness_us(ranks: Sequence[RankFacts], blame: Table) -> Array:
    """Lateness of every rank, shape (ranks,)."""
    steps = min((len(facts.steps) for facts in ranks), default=0)
    is_known = blame["culprit"] != NULL
    charged = np.zeros(len(ranks), np.int64)
    np.add.at(charged, blame["culprit"][is_known], blame["dur_ns"][is_known])
    return charged / 1e3 / max(1, steps) / max(1, len(ranks) - 1)


def _hottest(us_by_path: dict[Path, float], path: Path, share: float) -> Path:
    """The innermost path inside a path that takes this share of its time."""
    enough = share * us_by_path[path]
    while True:
        inner = [p for p in us_by_path if len(p) == len(path) + 1 and p[:-1] == path and us_by_path[p] >= enough]
        if not inner:
            return path
        path = max(inner, key=lambda p: us_by_path[p])


def _often_enough(late: RankPaths, us_by_path: dict[Path, float]) -> dict[Path, float]:
    """The paths with at least MIN_SAMPLES samples in the windows, where the rank was sampled."""
    facts = late.facts
    if not us_by_path or not is_sampled(facts):
        return us_by_path
    least_us = MIN_SAMPLES * float(np.median(facts.script_spans["resolution_ns"])) / 1e3 / len(facts.steps)
    return {path: time for path, time in us_by_path.items() if time >= least_us}


def _words(us_by_path: dict[Path, float], path: Path) -> str:
    """The innermost function of a path, with its line or the line seen most."""
    if path[-1][1] == ANY_LINE:
        lines = [p for p in us_by_path if len(p) == len(path) + 1 and p[:-1] == path]
        path = max(lines, key=lambda p: us_by_path[p])
    return written(*path[-1])
