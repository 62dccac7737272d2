"""Statistical test of how often each rank arrives last."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from msgspec import Struct

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.scope import out_of_scope
from ddprof.causes import CAUSE_CODE
from ddprof.significance import MAX_CHANCE, binomial_tail
from ddprof.tables import NULL, Array, Table

FEWEST_OTHERS = 4  # waits to compare with, before length alone says that one is no part of the rhythm
MOST_SHARE = 0.9  # of the waiting: operations beyond it cost next to nothing, whoever is last in them
FEW_STEPS = 2  # too few to tell whether a time comes again


class LatestRank(Struct, frozen=True):
    """Lateness of one rank: last in `last` of `waits` operations in which others wait, charged `charged_ns` of
    `total_ns`.

    Of waits that recur; `once_ns`: those that do not, of all ranks together.
    """

    position: int
    last: int
    waits: int
    charged_ns: int
    total_ns: int
    chance: float  # probability that some rank is last so often by chance
    once_ns: int = 0

    @property
    def is_sure(self) -> bool:
        """True where chance does not explain the lateness."""
        return self.chance < MAX_CHANCE


def latest_ranks(job: JobFacts, causes: Collection[str]) -> list[LatestRank]:
    """The ranks that are late again and again for these causes, the first of them first; none where nobody waited.

    Ranks that arrive last more often than by chance go before all others, and among them the one that is last most
    often in the operations that make up most of the waiting. Waits that occur once are left out (`recurring`), and of a
    recording of communication alone those for ranks that were late only while the job started. There ranks may be late
    in turn: each that is last more often than by chance is one, with its share. Elsewhere one rank is told.
    """
    recurs = recurring(job)
    alone = out_of_scope(job) is not None
    if alone:
        recurs &= ~np.isin(job.instances["late"][job.blame["instance"]], _late_at_first(job, job.blame.take(recurs)))
    blame = job.blame.take(recurs & beyond_schedule(job))
    total = int(blame["dur_ns"].sum())
    last_in = job.instances["late"][blame["instance"]]
    is_counted = np.isin(blame["cause"], [CAUSE_CODE[c] for c in causes]) & (last_in != NULL)
    if total <= 0 or not is_counted.any():
        return []
    charged = np.bincount(last_in[is_counted], weights=blame["dur_ns"][is_counted], minlength=len(job.ranks))
    waited = np.unique(blame["instance"])
    last, chance = _last_counts(job, waited)
    usual = (chance < MAX_CHANCE) & (charged > 0)
    often, _ = _last_counts(job, making_most(np.bincount(blame["instance"], weights=blame["dur_ns"])))
    order = (charged, np.where(usual, often, -1)) if usual.any() else (charged,)
    ranking = np.lexsort(order)[::-1]
    latest = [p for p in ranking.tolist() if alone and usual[p]] or [int(ranking[0])]
    return [
        LatestRank(
            position=position,
            last=int(last[position]),
            waits=len(waited),
            charged_ns=int(charged[position]),
            total_ns=total,
            chance=float(chance[position]),
            once_ns=int(job.blame["dur_ns"][~recurs].sum()),
        )
        for position in latest
    ]


def beyond_schedule(job: JobFacts) -> Array:
    """Mask of rows of the job's BLAME but for waits of pipeline stages while another one computes, which their schedule
    asks for; shape (blame,).
    """
    is_message = job.instances["is_message"][job.blame["instance"]].astype(bool)
    asked_for = is_message & (job.blame["cause"] == CAUSE_CODE["compute"])
    return ~asked_for if job.pipeline is not None else np.ones(len(job.blame), bool)


def _late_at_first(job: JobFacts, blame: Table) -> Array:
    """Positions of ranks that are last in the first half of what others wait in more often than by chance, and in the
    second neither so, nor as often as the first half lets expect (Laplace's rule of succession): they were starting.
    """
    begin = np.full(len(job.instances), np.iinfo(np.int64).max)
    np.minimum.at(begin, job.members["instance"], job.members["start_ns"])
    waited = np.unique(blame["instance"])
    waited = waited[np.argsort(begin[waited], kind="stable")]
    first, second = np.array_split(waited, 2)
    if not len(second):
        return np.empty(0, np.int64)
    (early, by_chance), (late, again) = _last_counts(job, first), _last_counts(job, second)
    expected = (early + 1) / (len(first) + 2)
    missed = [binomial_tail(len(second) - int(k), len(second), 1 - p) for k, p in zip(late, expected, strict=True)]
    return np.flatnonzero((by_chance < MAX_CHANCE) & (again >= MAX_CHANCE) & (np.array(missed) < MAX_CHANCE))


def recurring(job: JobFacts) -> Array:
    """Mask of rows of the job's BLAME for waits that recur; shape (blame,).

    A window without step marks, or of communication alone, mixes one-off and recurring work. From it, waits longer than
    all others together are removed one by one while enough remain.
    """
    blame = job.blame
    if out_of_scope(job) is None and job.ranks[0].step_source != "inferred":
        return np.ones(len(blame), bool)
    waits = np.bincount(blame["instance"], weights=blame["dur_ns"]) if len(blame) else np.empty(0)
    order = np.argsort(-waits, kind="stable")
    order = order[waits[order] > 0]
    rest = waits[order][::-1].cumsum()[::-1] - waits[order]
    once = 0
    while len(order) - once > FEWEST_OTHERS and waits[order[once]] > rest[once]:
        once += 1
    return ~np.isin(blame["instance"], order[:once])


def comes_again(per_step: Array, least: float | Array) -> Array:
    """True where times over steps (last axis) average over `least`, a limit for all or for each, even without the
    largest step, which may be one event. Two steps are too few.
    """
    steps = per_step.shape[-1]
    rest = per_step.sum(axis=-1) - per_step.max(axis=-1)
    return np.asarray((rest > least * steps) | (steps <= FEW_STEPS))


def making_most(amounts: Array) -> Array:
    """Indices of the largest amounts, these first, that together make MOST_SHARE of all."""
    order = np.argsort(-amounts, kind="stable")
    reach = np.cumsum(amounts[order])
    return order[: int(np.searchsorted(reach, MOST_SHARE * reach[-1])) + 1]


def _last_counts(job: JobFacts, waited: Array) -> tuple[Array, Array]:
    """Operations that each rank was last in, and the probability that some rank is last so often by chance: 1.0 for
    messages of a pipeline, whose schedule decides who enters them last.
    """
    last, is_drawn = _lasts(job, waited), np.ones(len(waited), bool)
    if job.pipeline is not None:
        is_drawn = ~job.instances["is_message"][waited].astype(bool)
    drawn = waited[is_drawn]
    if not len(drawn):
        return last, np.ones(len(last))
    members = max(2, round(float(job.instances["members"][drawn].mean())))
    counts, which = np.unique(_lasts(job, drawn), return_inverse=True)
    return last, np.array([chance_of_most(int(k), len(drawn), members) for k in counts])[which]


def _lasts(job: JobFacts, waited: Array) -> Array:
    late = job.instances["late"][waited]
    return np.bincount(late[late != NULL], minlength=len(job.ranks))


def chance_of_most(most: int, trials: int, ranks: int) -> float:
    """Probability that some of `ranks` ranks is last in at least `most` of `trials` by chance."""
    # Bonferroni: the rank was chosen after seeing the counts.
    return min(1.0, ranks * binomial_tail(most, trials, 1.0 / ranks))
