"""Every rank waits for its data loader.

What it detects: all ranks spend a clear part of each step fetching data, at once or in turn; the step is shorter
without it. The loader's `__next__` fetches. So do functions of the script that read, tokenize or augment data in the
training loop; they need Python frames. Operators on the CPU count before the batch is copied to the device. So does a
queue that a thread of the script fills.
Why it costs: the device is idle until the batch is there.
How the gain is priced: the run is replayed with every batch already in the prefetch queue; of few loaders that are far
slower (input.straggler) the waits stay. Workers may keep up, and still take cores from the ranks: the waits of both for
a CPU show that. Batches that lay ready may hide slow workers in the trace: the timers of the steps outside show what
these cost. The timers of the whole run show processes that are made again for every epoch, and their share of it.
How to fix: more workers, deeper prefetch, persistent workers, cheaper decoding, faster storage. A slow sampler draws in
the training process, whatever the workers: make it cheaper.
Limits: where ddprof captured the run, every fetch was timed inside the workers. The finding then says whether it is
bound by the CPU, by waiting or by collating. Elsewhere the workers' time shows only in the waits that it causes.
Sources: TensorBoard plugin rule (5 % of the step); ml-engineering worker sweep (5.39 s to 0.88 s for 0 to 4 workers).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import is_dataloader
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.occupying import occupying_line, sampled_share
from ddprof.analyzers.job.script.threads import making_line
from ddprof.analyzers.replay.changes.loader import Demand, busy_step_us, demand, takes_from_workers
from ddprof.analyzers.rules.evidence.loader_cost import (
    DrainedQueue,
    drained_queue,
    drawing_line,
    evidence,
    fetch_cost,
    keep_up,
    lack_cores,
    line_evidence,
    made_us,
)
from ddprof.analyzers.rules.evidence.loader_fixes import (
    cheaper_fix,
    loop_fix,
    made_beside,
    sampler_fix,
    taking,
    thread_fix,
)
from ddprof.analyzers.rules.evidence.loader_starts import started_each_epoch, started_each_step
from ddprof.analyzers.rules.evidence.present import present_in, text
from ddprof.analyzers.rules.evidence.spans import largest_span
from ddprof.finding_ids import INPUT_STARVED
from ddprof.findings import Abstention, Alters, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.sidecar import Sidecar
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us
from ddprof.whose import few, whose

UNSEEN = "no DataLoader ranges in the trace, so fetching cannot be separated from other host work"
READY = "the loader's workers make a step's batches in less than a step; fetch time is the hand-over"
LEAST_WAIT_US = 1.0  # per step: less is the rounding of a difference
MIN_SHARE = 0.01  # of the step inside the loader before it is worth pricing
CLEAR_SHARE = 0.15  # of the late loaders' longest fetch: how long the longest fetch of the others may be
CLEAR_FACTOR = 10.0  # or this many times the slowest mean of the others: a longer fetch of theirs is then chance
OWN_SHARE = 0.05  # the same beside ranks whose loaders are far slower still
_LIMITS = {
    "": "",
    "cores": "; the cores of this host cannot make a batch per step: make the batch cheaper too",
    "turns": "; its workers fetch one at a time: give each its own file or connection, or drop the lock",
    "processes": "; even these deliver less than a batch per step: fetch samples in parallel, or from closer storage",
}
OTHER_DRAWS = "; each draws random numbers of its own, and results change as with another seed"
PREFETCH = 4  # batches that each worker holds, suggested where it holds fewer
PARTLY = 0.9  # of the loading: a step that waits for less has the rest beside it (report/phrases.py: ALIKE)
LATE_FACTOR = 2.0  # a loader this much slower than the typical one is a straggler, not starvation


def late_loaders(measures: Measures) -> Array:
    """Positions whose loader takes clearly longer than the typical rank's; at most half of the ranks."""
    late = _behind(measures)
    return late if len(late) and _alone(measures, late) else np.empty(0, np.int64)


def _behind(measures: Measures) -> Array:
    """Positions whose loader takes longer than the typical rank's at all; at most half of the ranks."""
    loader_us, step_us, ready = measures.host_spans_us["dataloader"], measures.step_us, keep_up(measures)
    if len(loader_us) < 2:
        return np.empty(0, np.int64)
    loader_us = np.maximum(np.minimum(loader_us, made_us(measures)), _sampled_us(measures))
    typical = averages.typical(loader_us)
    # Ranks whose workers keep up take batches over, and wait for none: the others need not wait for twice as long.
    excess_us = np.maximum(loader_us - typical, measures.loading_late_us)
    longer = (typical + excess_us > LATE_FACTOR * typical) | (ready.sum() >= len(ready) / 2)
    late = longer & (excess_us > 2 * MIN_SHARE * step_us) & ~ready
    return few(np.flatnonzero(late), len(loader_us))


def _sampled_us(measures: Measures) -> Array:
    """Time per step in the loop's function that makes batches, by samples, of the ranks whose windows did not show it;
    us, shape (ranks,). Zero where batches are made otherwise."""
    ranks, loader_us = measures.job.ranks, measures.host_spans_us["dataloader"]
    worst = ranks[int(np.argmax(loader_us))]
    line = occupying_line(worst, "dataloader") if worst.sidecar.fetching is None else None
    tree = call_tree(worst)
    function = next((name for frame, name in enumerate(tree.names) if tree.words(frame) == line), None)
    return np.array([measures.step_us * sampled_share(facts, function) if function else 0.0 for facts in ranks])


def _alone(measures: Measures, late: Array) -> bool:
    """True where only these loaders are slow, so that the others' queues stay full. In a starved job the others'
    fetches block too, now and then or, with queues a batch ahead in a short recording, not at all; there the workers'
    timed batches decide.
    """
    loader_us, longest_us = measures.host_spans_us["dataloader"], measures.longest_fetch_us
    others = np.setdiff1d(np.arange(len(loader_us)), late)
    if fetch_themselves(measures):  # what a rank has beyond the others is its own: in the traced steps, or in the run
        of_run = np.flatnonzero(measures.loading_late_us > 2 * MIN_SHARE * measures.step_us)
        return len(np.setdiff1d(late, np.union1d(whose(loader_us), of_run))) == 0
    if _are_starved(measures, late, others, _busy_us(measures, late)) or lack_cores(measures, late, others):
        return False
    if _others_are_fed(measures, late):
        return True
    clear = float(longest_us[others].max()) < CLEAR_SHARE * float(longest_us[late].min())
    return clear or float(loader_us[late].min()) > CLEAR_FACTOR * float(loader_us[others].max())


def fetch_themselves(measures: Measures) -> bool:
    """True where all training threads make their own batches: no queue fills, and each rank's time is its own."""
    timed = [facts.sidecar.fetching for facts in measures.job.ranks]
    return all(one is not None and one.workers == 0 for one in timed)


def _are_starved(measures: Measures, late: Array, others: Array, busy_us: float) -> bool:
    """True where the workers of most `others` take longer per batch than the `busy_us` of a step without waiting, and
    not far less than the `late` ones': they deliver less than a batch per step, whoever waits now.
    """
    mine_us, theirs_us = _every_us(measures, late), _every_us(measures, others)
    return theirs_us > busy_us and not mine_us > LATE_FACTOR * theirs_us


def _others_are_fed(measures: Measures, late: Array) -> bool:
    """True where most others' workers have each step's batch ready in a fraction of the `late` ranks' time; their
    fetches then take a busy machine's time, not a batch's. The late ones deliver less than a batch per step, or wait
    longer over the whole run.
    """
    others = np.setdiff1d(np.arange(len(measures.job.ranks)), late)
    mine_us, theirs_us, busy_us = _every_us(measures, late), _every_us(measures, others), _busy_us(measures, late)
    workers = all(takes_from_workers(measures.job.ranks[position]) for position in others)
    waits = mine_us > busy_us or bool(measures.loading_late_us[late].all())
    return workers and waits and mine_us > LATE_FACTOR * theirs_us and theirs_us < busy_us


def _busy_us(measures: Measures, late: Array) -> float:
    """Step time without the part that late loaders take."""
    return measures.step_us - float(measures.host_spans_us["dataloader"][late].min())


def _every_us(measures: Measures, positions: Array) -> float:
    """Typical time between two batches of these ranks' workers; NaN where not all were timed."""
    costs = [fetch_cost(measures.job.ranks[position]) for position in positions]
    return float(np.median([np.nan if cost is None else cost.fetch_us / max(cost.timed.workers, 1) for cost in costs]))


def rank_demand(measures: Measures, busy_us: float, position: int | None = None) -> Demand | None:
    """Workers that a rank's loader needs, by the planner's model (`position` None: the slowest rank)."""
    settings = _settings(measures, position)
    if _has_unknown_workers(measures, settings):
        return None
    had, cores = settings.loader.num_workers or 0, settings.processors.usable or 0
    return demand(measures, busy_us, had, cores, position)


def _settings(measures: Measures, position: int | None) -> Sidecar:
    """Settings of the rank at `position`; those of the job where that is None, or the rank was not captured."""
    own = Sidecar() if position is None else measures.job.ranks[position].sidecar
    return own if own.is_captured else measures.settings


def _has_unknown_workers(measures: Measures, settings: Sidecar) -> bool:
    """True where worker processes made the batches, but their number is unknown."""
    return settings.loader.num_workers is None and any(takes_from_workers(facts) for facts in measures.job.ranks)


def workers_fix(measures: Measures, waited_us: float, needs: Demand | None = None, position: int | None = None) -> Fix:
    """More workers for a rank's loader (`position` None: for all): enough for a batch per step without waiting where
    capture timed them; else twice as many. As the fix is made on every rank, never fewer than a rank has.
    """
    settings = _settings(measures, position)
    workers, ranks = settings.loader.num_workers, measures.job.ranks
    depth = max(PREFETCH, _deepest(measures))
    why = "workers prepare batches during compute"
    if waited_us >= LEAST_WAIT_US:
        why = f"the slowest rank waits {format_us(waited_us)} per step for its batch; {why}"
    why += OTHER_DRAWS * any(facts.sidecar.fetch_draws for facts in ranks)
    lives_on = not any(facts.sidecar.dataset_changed for facts in ranks)  # a worker, from one pass to the next
    pins = execution_of(measures.job).loader_arguments
    arguments = (", persistent_workers=True" if lives_on else "") + pins
    if _has_unknown_workers(measures, settings):
        return Fix(
            setting="num_workers",
            suggested="twice as many as now, up to the number of cores",
            patch=f"DataLoader(..., num_workers=2 * N, prefetch_factor={depth}{arguments})",
            why=why + "; the present number is not recorded",
            source="torch.utils.data.DataLoader documentation",
            alters=Alters.SAMPLES,
        )
    if needs is None:
        usable, local = settings.processors.usable, settings.processors.local_ranks or 1
        cores_each = max(1, usable // local) if usable else 2 * (workers or 2)  # unlimited where not recorded
        suggested = min(4 if not workers else 2 * workers, max(cores_each, workers or 0))
    else:
        suggested = needs.workers
        why += _LIMITS[needs.limit]
    suggested = max(suggested, *(facts.sidecar.loader.num_workers or 0 for facts in ranks))
    if workers and suggested == workers:
        return Fix(
            setting="cost of a batch",
            suggested="cache, decode less, augment on the device",
            why=why,
            source="timed inside the loader by ddprof",
            alters=Alters.KEPT,
        )
    more = (*((("persistent_workers", True),) if lives_on else ()), *((("pin_memory", True),) if pins else ()))
    return Fix(
        setting="num_workers",
        current=text(workers),
        suggested=str(suggested),
        patch=f"DataLoader(..., num_workers={suggested}, prefetch_factor={depth}{arguments})",
        why=why,
        source="torch.utils.data.DataLoader documentation",
        applies=(("num_workers", suggested), ("prefetch_factor", depth), *more),
        alters=Alters.SAMPLES,
    )


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find loaders that are slow on all ranks."""
    remade = started_each_step(measures) or started_each_epoch(measures, alone=False)
    if remade is not None:
        yield remade
        return
    if not measures.host_counts["dataloader"].any():
        yield Abstention(RULE.id, UNSEEN)
        return
    drawing = drawing_line(measures.job.ranks)
    if drawing is None and keep_up(measures).all():
        yield taking(measures, alone=False) or Abstention(RULE.id, READY)
        return
    drained = drained_queue(measures.job.ranks)
    if drained is not None and drawing is None:
        yield _drained(measures, drained)
        return
    typical = averages.typical(np.minimum(measures.host_spans_us["dataloader"], made_us(measures)))
    behind = _behind(measures)
    late = behind if len(behind) and _alone(measures, behind) else behind[:0]
    # Where a few loaders are far behind, the time of the others must be worth a finding of its own.
    floor = OWN_SHARE if len(late) else MIN_SHARE
    # Some loaders are far behind, the others now and then: their queues fill while all wait for the slowest.
    in_turn = len(behind) > 0 and not len(late)
    if (typical < floor * measures.step_us and not in_turn) or (len(late) and _others_are_fed(measures, late)):
        taken = None if len(late) else taking(measures, alone=False)
        yield from () if taken is None else (taken,)
        return
    yield _starved(measures, late, in_turn, drawing)


def _starved(measures: Measures, late: Array, in_turn: bool, drawing: str | None) -> Candidate:
    """Candidate for loading that all ranks have; what `late` loaders have beyond the others is told of their ranks."""
    ledger, made = measures.cause_us("dataloader"), made_us(measures)
    loader_us = np.minimum(measures.host_spans_us["dataloader"], made)
    typical = averages.typical(loader_us)
    alike = np.setdiff1d(np.arange(len(loader_us)), late)
    worst, ranks = int(alike[np.argmax(loader_us[alike])]), len(measures.job.ranks)
    whom = " on the typical rank" if ranks > 1 else ""
    if in_turn:
        whom = f" on {format_ranks(measures.ranks(np.array([worst])))}"
    share = float(loader_us[worst] if in_turn else typical) / measures.step_us
    in_loop = occupying_line(measures.job.ranks[worst], "dataloader")
    cost = None if in_loop or drawing else fetch_cost(measures.job.ranks[worst])
    cheaper = cheaper_fix(cost, measures.job.ranks)
    who, maker = _everybody(measures), making_line(measures.job.ranks[worst])
    operators = _operators_in_loop(measures.job.ranks[worst]) if in_loop is None else None
    what, fixes = _waits(measures, who, maker, in_loop or operators, cheaper, float(ledger[alike].max()))
    if drawing is not None:
        what, fixes = f"{who} waits for the sampler of its data loader, in {drawing}", (sampler_fix(drawing),)
    return Candidate(
        id=RULE.id,
        summary=what,
        lost_us=float(ledger[alike].mean()),
        changes=(Change("instant_loader", measures.ranks(alike) if len(late) else ()),),
        basis=Basis.RECORDED,
        evidence=(
            *evidence(cost, measures.job.rank_ids[worst]),
            Evidence(_takes(float(ledger[alike].mean()), share, measures.step_us, whom)),
            *line_evidence(cost, measures.job.rank_ids[worst], [measures.job.ranks[position] for position in alike]),
            *(largest_span(measures, worst, "dataloader") if operators is None else ()),
        ),
        fixes=fixes,
        ceiling_us=float(made.max()) if np.isfinite(made).all() else None,
        # Fetches block now here, now there where all workers are too slow: the time of a batch is what all have then.
        times_us=() if in_turn else tuple(np.minimum(loader_us, LATE_FACTOR * typical).tolist()),
    )


def _everybody(measures: Measures) -> str:
    return "every rank" if len(measures.job.ranks) > 1 else measures.whom(())


def _drained(measures: Measures, drained: DrainedQueue) -> Candidate:
    """Candidate for workers too slow for the job, whose full queue hid that in the traced steps."""
    share, worst = averages.typical(drained.shares), int(np.argmax(drained.shares))
    cost, rank = fetch_cost(measures.job.ranks[worst]), measures.job.rank_ids[worst]
    lost_us = share * measures.step_us
    took = (
        f"{format_share(share)} of the {format_us(drained.step_us)} step outside the trace, over {drained.steps} steps"
    )
    return Candidate(
        id=RULE.id,
        summary=f"{_everybody(measures)} waits for its data loader",
        lost_us=lost_us,
        basis=Basis.TIMED,
        evidence=(
            *evidence(cost, rank),
            Evidence(f"loading takes {took}; in the trace, batches lay ready"),
            *line_evidence(cost, rank, measures.job.ranks),
        ),
        fixes=_loader_fixes(measures, cheaper_fix(cost, measures.job.ranks), share * drained.step_us),
        times_us=tuple((np.minimum(drained.shares, LATE_FACTOR * share) * measures.step_us).tolist()),
    )


def _takes(waited_us: float, share: float, step_us: float, whom: str) -> str:
    """Loading in words, with what the step waits for it (us) where the rest is beside other work."""
    words = f"loading takes {format_us(share * step_us)} per step ({format_share(share)}){whom}"
    if waited_us * PARTLY > share * step_us:  # what is beyond the timed fetches is want of a CPU
        return f"{words}; traced steps are in it for {format_us(waited_us)}, partly without a CPU"
    if waited_us >= PARTLY * share * step_us:
        return words
    return f"{words}; the step waits for {format_us(waited_us)} of it"


def _waits(
    measures: Measures, who: str, maker: str | None, in_loop: str | None, cheaper: Fix | None, waited_us: float
) -> tuple[str, tuple[Fix, ...]]:
    """Summary and fixes: a thread makes the batches (`maker`), the loop itself (`in_loop`: where), or a data set, for
    which each step waits `waited_us`.
    """
    if maker is not None:
        return f"{who} waits for batches that {made_beside(maker)}", (thread_fix(maker),)
    if in_loop is None:
        return f"{who} waits for its data loader", _loader_fixes(measures, cheaper, waited_us)
    trains = present_in(measures.job).trains
    loop = "the training loop" if trains else "the loop around the model"
    return f"{loop} prepares its own batches, in {in_loop}", (loop_fix(in_loop, trains),)


def _operators_in_loop(facts: RankFacts) -> str | None:
    """The longest operator with which the training thread makes batches, where that is most of the time; what runs
    within a loader's own ranges is the loader's.
    """
    spans = facts.spans_of("dataloader")
    of_loader = is_dataloader(facts.strings)[spans["name"]] if len(spans) else np.zeros(0, bool)
    ranges = intervals.union(*spans.bounds_of(np.flatnonzero(of_loader)))
    outside_ns = spans["end_ns"] - spans["start_ns"] - intervals.overlap(ranges, *spans.bounds)
    if not outside_ns.any() or outside_ns.sum() < intervals.length(ranges):
        return None
    return f"{facts.strings[int(spans['name'][np.argmax(outside_ns)])]} and other operators on the CPU"


def _loader_fixes(measures: Measures, cheaper: Fix | None, waited_us: float) -> tuple[Fix, ...]:
    """Fixes for a loader that each step waits `waited_us` for, a lock first: while workers take turns, no other setting
    helps.
    """
    needs = rank_demand(measures, busy_step_us(measures))
    if cheaper is not None and needs is not None and needs.limit == "turns":
        more = needs.workers > (measures.settings.loader.num_workers or 0)
        return (cheaper, workers_fix(measures, waited_us, needs)) if more else (cheaper,)
    deeper = Fix(
        setting="prefetch_factor",
        current=text(measures.settings.loader.prefetch_factor),
        suggested=str(PREFETCH),
        applies=(("prefetch_factor", PREFETCH),),
        why="a deeper queue absorbs slow batches",
        source="torch.utils.data.DataLoader documentation",
    )
    workers = workers_fix(measures, waited_us, needs)
    return tuple(filter(None, (workers, cheaper, deeper if _deepest(measures) < PREFETCH else None)))


def _deepest(measures: Measures) -> int:
    """Batches that each worker of a rank holds at most, on the rank with the most; 0 where no rank recorded them."""
    return max(facts.sidecar.loader.prefetch_factor or 0 for facts in measures.job.ranks)


RULE = Rule(INPUT_STARVED, "Every rank waits for its data loader", detect, bound="input")
