"""Data loaders that start again for each batch, or dearly for each epoch."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np

from ddprof import averages
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.pauses import Pauses, worst_pauses
from ddprof.analyzers.job.whole_run.unprofiled_steps import unprofiled_step_us
from ddprof.analyzers.replay.changes.loader import steps_per_pass
from ddprof.analyzers.rules.evidence.loader_cost import drawing_line, fetch_cost, usual_loading_us
from ddprof.analyzers.rules.evidence.loader_fixes import sampler_fix
from ddprof.analyzers.rules.evidence.over_the_run import MIN_SHARE, over_the_run
from ddprof.derived_once import remembered
from ddprof.finding_ids import INPUT_STARVED, INPUT_STRAGGLER
from ddprof.findings import Basis, Candidate, Evidence, Fix
from ddprof.sidecar import Pause, Sidecar
from ddprof.units import format_share

NEARLY_ALL, MIN_PASSES = 0.9, 8  # of the steps begin a pass; fewer passes are those of short epochs
LEAST_SHARE = 0.05  # of the step: as much as a late loader needs beside others that are slower
EPOCH_FIX = Fix(
    setting="epochs of the data loader",
    suggested="fewer, longer ones, or what begins an epoch done once",
    why="the first batch of an epoch waits for the order of its samples, or for files that the data set opens",
    source="torch.utils.data.DataLoader documentation: samplers",
)
PERSISTENT_FIX = Fix(
    setting="persistent_workers",
    current="False",
    suggested="True",
    patch="DataLoader(..., persistent_workers=True)",
    applies=(("persistent_workers", True),),
    why="persistent workers keep their data set and prefetch the first batches of an epoch",
    source="torch.utils.data.DataLoader documentation",
)
SHARED_FIX = replace(
    PERSISTENT_FIX,
    suggested="True, with what the script changes in the data set in shared memory",
    patch="self.epoch = torch.tensor(0).share_memory_()  # in the data set; dataset.epoch.fill_(epoch) in the loop\n"
    "DataLoader(..., persistent_workers=True)",
    applies=(),
    why="the script changes its data set between epochs; workers that live on see that in shared memory alone",
)
ITERATOR_FIX = Fix(
    setting="iterator of the data loader",
    current="made for each batch",
    suggested="made once per epoch",
    patch="batches = iter(loader)  # before the loop\nbatch = next(batches)",
    why="each new iterator shuffles the whole data set, and starts and ends the worker processes",
    source="torch.utils.data.DataLoader documentation",
)
MIN_EPOCHS = 2  # after the first, in which the workers start anyway


def started_each_step(measures: Measures) -> Candidate | None:
    """Candidate for loaders of which nearly every step takes the first batch of a new pass (`next(iter(loader))`): all
    that such a pass begins with, and not a batch, is what each step waits for."""
    ranks = measures.job.ranks
    for sidecar in (facts.sidecar for facts in ranks):
        fewest = max(NEARLY_ALL * (sidecar.steps_total or 0), MIN_PASSES)
        if (sidecar.loader_passes or 0) < fewest or sidecar.loader.batches_per_epoch == 1:
            return None
    loading_us = np.array([usual_loading_us(facts) for facts in ranks])
    costs = [fetch_cost(facts) for facts in ranks]
    batch_us = np.array([0.0 if cost is None or cost.timed.workers else cost.fetch_us for cost in costs])
    step_us = unprofiled_step_us(measures.job.ranks) or measures.step_us
    share = float(averages.typical(np.maximum(loading_us - batch_us, 0.0))) / step_us
    if share < LEAST_SHARE:
        return None
    passes, steps = ranks[0].sidecar.loader_passes, ranks[0].sidecar.steps_total
    cost_us = share * measures.step_us
    return Candidate(
        id=INPUT_STARVED,
        summary="the loop starts its data loader again for each batch, as next(iter(loader)) does",
        lost_us=cost_us,
        basis=Basis.TIMED,
        evidence=(
            Evidence(f"{passes} passes over the loader begin in {steps} steps", measures.job.rank_ids[0]),
            Evidence(f"the loader takes {format_share(share)} of a step beside what a batch takes to make"),
        ),
        fixes=(ITERATOR_FIX,),
        band=0.25,
    )


def started_each_epoch(measures: Measures, alone: bool) -> Candidate | None:
    """Candidate for loaders that start anew every epoch, with their workers or with an order drawn by the training
    thread, where that is most of the run's waiting for them; `alone`: few ranks, which it names, or all."""
    ranks = measures.job.ranks
    starts = _starts(measures)
    if starts is None or starts.share < MIN_SHARE:
        return None
    sidecar = ranks[starts.position].sidecar
    steps = [step for step in sidecar.steps if step.length_ns is not None]
    in_loader = sum(step.data_ns or 0 for step in steps) / max(1, sum(step.length_ns or 0 for step in steps))
    if starts.share < in_loader / 2:
        return None
    fix = SHARED_FIX if any(facts.sidecar.dataset_changed for facts in ranks) else PERSISTENT_FIX
    words = "the loader's workers are restarted every epoch:"
    if not sidecar.loader.num_workers:
        line = drawing_line([ranks[starts.position]])
        words = f"the data loader starts anew every epoch{f', in {line}' if line else ''}:"
        fix = sampler_fix(line) if line else EPOCH_FIX
    started = over_the_run(
        INPUT_STRAGGLER if alone else INPUT_STARVED, (words, ""), measures, starts, "starts of the loader", fix
    )
    return started if bool(started.ranks) is alone else None


@remembered
def _starts(measures: Measures) -> Pauses | None:
    return worst_pauses(measures.job.ranks, epoch_starts)


def epoch_starts(sidecar: Sidecar) -> list[Pause]:
    """Loader time at the first batch of each epoch but the first, above that of the other batches; [] where workers
    live on. Epochs begin where batches take longest.
    """
    loader, length = sidecar.loader, steps_per_pass(sidecar)
    if loader.num_workers is None or (loader.num_workers and loader.persistent_workers is not False):
        return []
    timed = [
        (step.index, step.start_ns, step.data_ns)
        for step in sidecar.steps
        if step.index is not None and step.start_ns is not None and step.data_ns is not None
    ]
    if length < 2 or len(timed) < MIN_EPOCHS * length:
        return []
    place = np.array([index % length for index, _, _ in timed])
    taken = np.array([data_ns for _, _, data_ns in timed], float)
    typical = np.array([np.median(taken[place == at]) if (place == at).any() else 0.0 for at in range(length)])
    first = int(np.argmax(typical))
    usual = median(taken[place != first].tolist())
    epochs = [(start_ns, int(data_ns - usual)) for index, start_ns, data_ns in timed[1:] if index % length == first]
    return [Pause(start_ns=start_ns, dur_ns=dur_ns) for start_ns, dur_ns in epochs if dur_ns > 0]
