"""Which rank arrives last how often, and whether chance explains it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import comb

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.causes import CAUSE_CODE
from ddprof.tables import NULL, Array

MAX_CHANCE = 0.01  # probability, over all ranks, of "last in k of n" by chance


@dataclass(frozen=True)
class LatestRank:
    """One rank's lateness: last in `last` of `waits` operations others wait in, charged `charged_ns` of `total_ns`."""

    position: int
    last: int
    waits: int
    charged_ns: int
    total_ns: int
    chance: float  # probability that some rank is last so often by chance

    @property
    def is_sure(self) -> bool:
        """Chance does not explain it."""
        return self.chance < MAX_CHANCE


def latest_rank(job: JobFacts, causes: Collection[str]) -> LatestRank | None:
    """The rank charged with most waiting for these causes; None where nobody waited for them.

    Ranks that arrive last more often than by chance go before all others.
    """
    blame = job.blame
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
    usual = chance < MAX_CHANCE
    position = int(np.argmax(np.where(usual, charged, -1.0) if usual.any() else charged))
    return LatestRank(
        position, int(last[position]), len(waited), int(charged[position]), total, float(chance[position])
    )


def _last_counts(job: JobFacts, waited: Array) -> tuple[Array, Array]:
    """Operations that each rank was last in, and the probability that some rank is last so often by chance."""
    late = job.instances["late"][waited]
    last = np.bincount(late[late != NULL], minlength=len(job.ranks))
    members = max(2, round(float(job.instances["members"][waited].mean())))
    counts, which = np.unique(last, return_inverse=True)
    tail = np.array([_tail(int(k), len(waited), 1.0 / members) for k in counts])[which]
    return last, np.minimum(1.0, tail * members)  # Bonferroni: the rank was chosen after seeing the counts


def _tail(successes: int, trials: int, probability: float) -> float:
    """P(X >= successes) of a binomial; the test of "last in k of n" against 1/N."""
    if trials > 400:  # normal approximation: the exact sum adds nothing there
        mean, spread = trials * probability, (trials * probability * (1 - probability)) ** 0.5
        return float(0.5 * np.exp(-(max(0.0, (successes - mean) / spread) ** 2) / 2))
    return float(
        sum(comb(trials, k) * probability**k * (1 - probability) ** (trials - k) for k in range(successes, trials + 1))
    )
