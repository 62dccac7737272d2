"""Statistical test of how often each rank arrives last."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.scope import out_of_scope
from ddprof.causes import CAUSE_CODE
from ddprof.significance import MAX_CHANCE, binomial_tail
from ddprof.tables import NULL, Array, Table

FEWEST_OTHERS = 4  # waits to compare with, before length alone says that one is no part of the rhythm
MOST_SHARE = 0.9  # of the waiting: operations beyond it cost next to nothing, whoever is last in them
FEW_STEPS = 2  # too few to tell whether a time comes again


@dataclass(frozen=True)
class LatestRank:
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


def latest_rank(job: JobFacts, causes: Collection[str]) -> LatestRank | None:
    """The rank that is repeatedly late for these causes; None where nobody waited for them.

    Ranks that arrive last more often than by chance come first; among them the one that is last most often in the
    operations with most of the waiting. Waits that occur once are left out (`recurring`).
    """
    recurs = recurring(job)
    blame = job.blame.take(recurs)
    if not len(blame):
        return None
    total = int(blame["dur_ns"].sum())
    last_in = job.instances["late"][blame["instance"]]
    mine = np.isin(blame["cause"], [CAUSE_CODE[c] for c in causes]) & (last_in != NULL)
    if total <= 0 or not mine.any():
        return None
    charged = np.bincount(last_in[mine], weights=blame["dur_ns"][mine], minlength=len(job.ranks))
    waited = np.unique(blame["instance"])
    last, chance = _last_counts(job, waited)
    usual = (chance < MAX_CHANCE) & (charged > 0)
    often, _ = _last_counts(job, _most_of(blame))
    order = (charged, np.where(usual, often, -1)) if usual.any() else (charged,)
    position = int(np.lexsort(order)[-1])
    return LatestRank(
        position=position,
        last=int(last[position]),
        waits=len(waited),
        charged_ns=int(charged[position]),
        total_ns=total,
        chance=float(chance[position]),
        once_ns=int(job.blame["dur_ns"][~recurs].sum()),
    )


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


def comes_again(per_step: Array, least: float) -> Array:
    """True where times over steps (last axis) average over `least` even without the largest step, which may be one
    event. Two steps are too few.
    """
    steps = per_step.shape[-1]
    rest = per_step.sum(axis=-1) - per_step.max(axis=-1)
    return np.asarray((rest > least * steps) | (steps <= FEW_STEPS))


def _most_of(blame: Table) -> Array:
    """The instances, longest wait first, that together hold MOST_SHARE of the waiting."""
    waits = np.bincount(blame["instance"], weights=blame["dur_ns"])
    order = np.argsort(-waits, kind="stable")
    reach = np.cumsum(waits[order])
    return order[: int(np.searchsorted(reach, MOST_SHARE * reach[-1])) + 1]


def _last_counts(job: JobFacts, waited: Array) -> tuple[Array, Array]:
    """Operations that each rank was last in, and the probability that some rank is last so often by chance."""
    late = job.instances["late"][waited]
    last = np.bincount(late[late != NULL], minlength=len(job.ranks))
    members = max(2, round(float(job.instances["members"][waited].mean())))
    counts, which = np.unique(last, return_inverse=True)
    tail = np.array([binomial_tail(int(k), len(waited), 1.0 / members) for k in counts])[which]
    return last, np.minimum(1.0, tail * members)  # Bonferroni: the rank was chosen after seeing the counts


def chance_of_most(most: int, trials: int, ranks: int) -> float:
    """Probability that some of `ranks` ranks is last in at least `most` of `trials` by chance."""
    return min(1.0, ranks * binomial_tail(most, trials, 1.0 / ranks))
