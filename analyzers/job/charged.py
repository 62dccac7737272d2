"""Waits charged to late ranks and the causes of their lateness: the blame as arrays per rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.script.alone import all_lateness_us
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.tables import NULL, Array, Table


def waited_us(measures: Measures, causes: Sequence[str], culprits: Array) -> Array:
    """Each rank's waiting charged to culprits for these causes, us per step."""
    blame = measures.job.blame
    is_charged = np.isin(blame["culprit"], culprits)
    is_charged &= np.isin(blame["cause"], [CAUSE_CODE[cause] for cause in causes])
    charged = np.bincount(
        blame["victim"][is_charged], weights=blame["dur_ns"][is_charged], minlength=len(measures.job.ranks)
    )
    return np.asarray(charged / 1e3 / _steps(measures))


def waited_for_us(job: JobFacts) -> Array:
    """Waiting charged to each rank and cause, us per step, mean over the other ranks: shape (ranks, causes).

    A rank never waits for itself: with two ranks, one costs all that the other waits.
    """
    total = np.zeros((len(job.ranks), len(CAUSES)))
    blame = job.blame
    of_rank = blame.take(blame["culprit"] != NULL)
    np.add.at(total, (of_rank["culprit"], of_rank["cause"]), of_rank["dur_ns"])
    return total / 1e3 / min(len(facts.steps) for facts in job.ranks) / max(1, len(job.ranks) - 1)


def waited_for_ranks_us(job: JobFacts, ranks: Sequence[int]) -> float:
    """Waiting of each other rank charged to these ranks (numbers), us per step."""
    return float(all_lateness_us(job.ranks, job.blame)[np.isin(job.rank_ids, ranks)].sum())


def charged_by_step_ns(job: JobFacts, blame: Table, by: str = "culprit") -> Array:
    """Waiting of some rows of a job's blame charged to each rank in each step, or of each rank (`by` "victim"): shape
    (ranks, steps).
    """
    of_rank = blame.take(blame["culprit"] != NULL)
    steps = 1 + max(int(of_rank["step"].max(initial=0)), *(len(facts.steps) - 1 for facts in job.ranks))
    key = of_rank[by].astype(np.int64) * steps + np.maximum(of_rank["step"], 0)
    charged = np.bincount(key, weights=of_rank["dur_ns"], minlength=len(job.ranks) * steps)
    return charged.reshape(len(job.ranks), steps)


def waited_for_part_us(measures: Measures, part_us: Array, culprits: Array) -> Array:
    """Waiting of each rank for hosts slow to launch, for one of the reasons, us per step.

    `part_us`: idle time of each rank for that reason, out of all four (`launching_us`, `stalled_us`, `held_us`,
    `script_us`).
    """
    every = measures.launching_us + measures.stalled_us + measures.held_us + measures.script_us
    share = np.divide(part_us, every, out=np.zeros_like(part_us), where=every > 0)
    blame = measures.job.blame
    is_charged = np.isin(blame["culprit"], culprits) & (blame["cause"] == CAUSE_CODE["host_launch"])
    charged = blame.take(np.flatnonzero(is_charged))
    waits = np.bincount(
        charged["victim"], weights=share[charged["culprit"]] * charged["dur_ns"], minlength=len(part_us)
    )
    return np.asarray(waits / 1e3 / _steps(measures))


def _steps(measures: Measures) -> Array:
    """Number of steps of each rank."""
    return np.array([len(facts.steps) for facts in measures.job.ranks])
