"""A model that all ranks call beside the training passes, by samples of the whole run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import FEWEST_SAMPLES
from ddprof.analyzers.job.script.occupying import calls_beside
from ddprof.averages import typical
from ddprof.tables import Array

LARGE_SHARE = 0.1  # of the time, on all ranks: what is wanted of a training, and told where it is a tenth of it


@dataclass(frozen=True)
class CalledBeside:
    """Time of each rank in it per step (us), and so many of all samples (`called` of `every`)."""

    times_us: Array
    called: float
    every: float

    @property
    def lost_us(self) -> float:
        """Time that all ranks have alike: what one has beyond makes that rank late."""
        return typical(self.times_us)


def called_beside(measures: Measures) -> CalledBeside | None:
    """The time in such calls; None where it is little, or one rank's more than others'."""
    called, every = np.array([calls_beside(facts) for facts in measures.job.ranks], float).T
    if called.sum() < FEWEST_SAMPLES or not called.all():
        return None
    beside = CalledBeside(measures.step_us * called / every, float(called.sum()), float(every.sum()))
    is_large = beside.lost_us >= LARGE_SHARE * measures.step_us
    return beside if is_large and not measures.theirs(beside.times_us) else None
