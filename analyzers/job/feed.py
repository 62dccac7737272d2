"""What each rank was fed: more or longer samples make a rank compute longer, and no device slow."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddprof import averages
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.job.whole_run.sampling import fed_elements
from ddprof.tables import NULL, Array

_TO_DEVICE = re.compile(r"HtoD|HostToDevice|H2D", re.IGNORECASE)
EXPLAINING_SHARE = 0.5  # of what a rank computes longer; batches that are larger by as much as that are why


def fed_ratio(ranks: Sequence[RankFacts]) -> Array:
    """What each rank was fed over what the typical rank was, shape (ranks,); NaN where that is not known of all.

    Elements of its batches where the capture counted them, else bytes that were copied to its device in its steps.
    """
    unknown = np.full(len(ranks), np.nan)
    if not ranks:
        return unknown
    elements = fed_elements(ranks)
    fed = np.array([_copied_bytes(facts) for facts in ranks], float) if elements is None else elements.mean(axis=1)
    return np.asarray(fed / averages.typical(fed)) if (fed > 0).all() else unknown


def is_fed_more(ranks: Sequence[RankFacts], factor: Array) -> Array:
    """Whether a rank that computes `factor` times as long as its peers was fed that much more; bool, shape (ranks,)."""
    more = fed_ratio(ranks) - 1.0
    with np.errstate(invalid="ignore"):
        return np.asarray((factor > 1.0) & (more >= EXPLAINING_SHARE * (factor - 1.0)))


def _copied_bytes(facts: RankFacts) -> float:
    ops = facts.device_ops
    if not len(ops) or not len(facts.steps):
        return 0.0
    mine = (ops["work"] == Work.COPY) & (ops["size_bytes"] != NULL) & matches(_TO_DEVICE, facts.strings)[ops["name"]]
    mine &= (ops["start_ns"] >= facts.steps["start_ns"][0]) & (ops["start_ns"] < facts.steps["end_ns"][-1])
    return float(ops["size_bytes"][mine].sum()) / len(facts.steps)
