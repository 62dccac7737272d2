"""Size of the input of each rank: more or longer samples make a rank compute longer without a slow device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import NO_STRING, Phase, RankFacts, Work
from ddprof.analyzers.facts.names import is_to_device
from ddprof.analyzers.facts.work import computes, host_work
from ddprof.analyzers.job.peers.operators import tensor_elements, usual_work_us
from ddprof.analyzers.job.whole_run.sampling import fed_elements
from ddprof.derived_once import remembered
from ddprof.tables import NULL, Array

EXPLAINING_SHARE = 0.5  # of what a rank computes longer; batches that are larger by as much as that are why
MIN_FED_SPREAD = 0.05  # between the batches of a step; equal batches do not differ but for the last of an epoch
LEAST_SHARE = 0.05  # of a step: half of what timers alone have to show (whole_run/own_times.py)
MIN_UPDATE_NS = 100_000  # the profiler adds some microseconds to each operator: less is not its own time


def fed_ratio(ranks: Sequence[RankFacts]) -> Array:
    """Input of each rank relative to the typical rank, shape (ranks,); NaN where any is unknown.

    Elements of its batches where capture counted them, else bytes copied to its device in its steps, else elements of
    operators' tensors, else the time of its passes relative to its optimizer.
    """
    unknown = np.full(len(ranks), np.nan)
    elements = _elements(ranks)
    fed = np.array([_copied_bytes(facts) for facts in ranks], float) if elements is None else elements.mean(axis=1)
    if (fed > 0).all():
        return np.asarray(fed / averages.typical(fed))
    by_pace = passes_over_optimizer(ranks)
    return unknown if by_pace is None else by_pace


def is_fed_more(ranks: Sequence[RankFacts], factor: Array) -> Array:
    """Mask of ranks whose larger input explains that they compute `factor` times as long as peers; shape (ranks,)."""
    more = fed_ratio(ranks) - 1.0
    with np.errstate(invalid="ignore"):
        return np.asarray((factor > 1.0) & (more >= EXPLAINING_SHARE * (factor - 1.0)))


def fed_more_each_step(ranks: Sequence[RankFacts], least: float) -> Array:
    """Mask of ranks whose input exceeds the typical one by the share `least` in every counted step; shape (ranks,)."""
    elements = _elements(ranks)
    if elements is None:
        return np.zeros(len(ranks), bool)
    return np.asarray((elements >= (1 + least) * averages.typical_row(elements)).all(axis=1))


def fed_more_us(ranks: Sequence[RankFacts], step_us: float) -> Array:
    """Time per step that a CPU rank computes longer than the typical one because every batch of it is larger, us, shape
    (ranks,); 0 where that is little."""
    fed = fed_more_each_step(ranks, MIN_FED_SPREAD)
    if not fed.any() or not all(map(computes, ranks)):
        return np.zeros(len(ranks))
    work_us = np.array([usual_work_us(facts) for facts in ranks])
    more_us = work_us - averages.typical(work_us)
    return np.where(fed & (more_us >= LEAST_SHARE * step_us), more_us, 0.0)


class LargerInput(NamedTuple):
    """Input of a rank that is larger than its typical peer's: `kind` is what of it is, `words` by how much."""

    kind: str
    words: str


SAMPLES, ELEMENTS, BY_SCRIPT, PARAMETERS, OPERANDS = "samples", "elements", "by script", "parameters", "operands"


def larger_input(ranks: Sequence[RankFacts], position: int) -> LargerInput | None:
    """Input of a rank in the traced steps against its typical peer's; None where it was not counted."""
    samples, elements, loaded = _samples(ranks), _elements(ranks), fed_elements(ranks)
    others = np.delete(np.arange(len(ranks)), position)
    if samples is not None and samples[position] != averages.typical(samples[others]):
        words = f"batches of {samples[position]:.0f} samples against {averages.typical(samples[others]):.0f}"
        return LargerInput(SAMPLES, words)
    if elements is None or not len(others):
        return None
    if loaded is not None and not enlarged_by_script(ranks):
        return LargerInput(ELEMENTS, f"batches of {_times_typical(elements.mean(axis=1), position)} the elements")
    parameters = np.array([facts.sidecar.parameters.count or 0 for facts in ranks], float)
    if parameters.all() and parameters[position] >= (1 + MIN_FED_SPREAD) * averages.typical(parameters[others]):
        return LargerInput(PARAMETERS, f"its model has {_times_typical(parameters, position)} the parameters")
    ratio = _times_typical(elements.mean(axis=1), position)
    if loaded is not None:
        return LargerInput(BY_SCRIPT, f"the script makes its batches {ratio} as large")
    return LargerInput(OPERANDS, f"its operators work on {ratio} the elements")


def _times_typical(each: Array, position: int) -> str:
    return f"{each[position] / averages.typical(np.delete(each, position)):.2f}x"


def enlarged_by_script(ranks: Sequence[RankFacts]) -> bool:
    """True where the loaders of all ranks give equally large batches, as counted in the traced steps."""
    fed = fed_elements(ranks)
    return fed is not None and float((fed.max(axis=0) / fed.min(axis=0)).max()) < 1 + MIN_FED_SPREAD


def _samples(ranks: Sequence[RankFacts]) -> Array | None:
    """Samples of a typical batch of each rank in its traced steps, shape (ranks,); None where they were not counted."""
    samples = []
    for facts in ranks:
        traced = set(map(int, facts.steps["index"]))
        each = [fed.samples / fed.batches for fed in facts.sidecar.batches if fed.step in traced and fed.batches]
        samples.append(float(np.median(each)) if each else 0.0)
    return np.array(samples) if len(samples) > 1 and all(samples) else None


def _elements(ranks: Sequence[RankFacts]) -> Array | None:
    """Elements per rank and step as capture counted them, or from operators' shapes (CPU ranks), as a script may
    enlarge a loader's batch. Where both are known, the one by which ranks differ more.
    """
    counts = [each for each in (fed_elements(ranks), tensor_elements(ranks)) if each is not None]
    return max(counts, key=lambda each: float((each.max(axis=0) / each.mean(axis=0)).mean()), default=None)


@remembered
def _copied_bytes(facts: RankFacts) -> float:
    ops = facts.device_ops
    if not len(ops):
        return 0.0
    is_input = (ops["work"] == Work.COPY) & (ops["size_bytes"] != NULL) & is_to_device(facts.strings)[ops["name"]]
    is_input &= (ops["start_ns"] >= facts.steps["start_ns"][0]) & (ops["start_ns"] < facts.steps["end_ns"][-1])
    return float(ops["size_bytes"][is_input].sum()) / len(facts.steps)


def passes_over_optimizer(ranks: Sequence[RankFacts]) -> Array | None:
    """Time of the passes over the optimizer's, relative to the typical rank, shape (ranks,). None where shapes tell
    more, or the optimizer is not marked or too short.

    Ranks hold equal shares of parameters: a slow CPU prolongs optimizer and passes alike, a larger batch only the
    passes.
    """
    ratios = []
    for facts in ranks:
        if not len(facts.host_operators) or (facts.host_operators["shape"] != NO_STRING).any():
            return None
        work = host_work(facts)
        updating = intervals.intersect(work, facts.phase_time(Phase.OPTIMIZER))
        each_ns = intervals.overlap(updating, *facts.steps.bounds)
        passes_ns = intervals.overlap(work, *facts.steps.bounds) - each_ns
        update_ns, pass_ns = averages.typical(each_ns), averages.typical(passes_ns)
        if update_ns < MIN_UPDATE_NS:
            return None
        ratios.append(pass_ns / update_ns)
    return np.array(ratios) / averages.typical(ratios) if len(ratios) > 1 else None
