"""Ranks get unequal work, and who is late changes or follows the data.

What it detects: compute time differs between ranks within a step more than their pace explains. The slowest rank
changes from step to step, or the same rank has more work. That is more kernels, a larger batch, or some kernels that
take longer while others take their usual time; experts that get more tokens may do so in some steps, on ranks in turn.
On CPU ranks also operators that a rank runs in some steps and its peers in others, or less often: no busy machine does
that.
Why it costs: every step waits for the rank with most work.
How the gain is priced: where ranks take turns, the run is replayed with each step's compute spread evenly over them
(OSDI'25: the mean), and extra operators half way between that and leaving them out; where ranks are named, with theirs
between two collectives as long as the typical peer's.
How to fix: batch by length, pack by the sum of squared lengths, rebalance shards, experts or tables; evaluate on all
ranks.
Limits: what the ranks were fed is known where ddprof captured the run (elements of each batch, padding included). A
single step cannot show who changes. Step timers alone show CPU ranks with long forward passes outside the trace, in
turn and beyond chance. Unequal pipeline stages are pipeline.imbalance.
Sources: OSDI'25 section 5.3 (sequence length imbalance: 21 % of jobs).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.facts.work import host_work, passes_of
from ddprof.analyzers.job.host_costs import STEPPING, part_of
from ddprof.analyzers.job.input_size import (
    MIN_FED_SPREAD,
    enlarged_by_script,
    fed_more_each_step,
    is_fed_more,
    larger_input,
)
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.peers.operators import MORE_WORK_SHARE, usual_work_us
from ddprof.analyzers.job.script.beside import line_of_operators
from ddprof.analyzers.job.slowdown import Slowdown
from ddprof.analyzers.job.waiting.lateness import MOST_SHARE, making_most
from ddprof.analyzers.job.whole_run.sampling import fed_elements
from ddprof.analyzers.rules.evidence.more_work import feeding_fix, hot_evidence, hot_fix, hot_in_some_steps, hot_words
from ddprof.analyzers.rules.evidence.script import called_beside, turns_in_forward
from ddprof.analyzers.rules.evidence.spans import charged_us, largest_wait
from ddprof.analyzers.rules.evidence.stages import unknown_peers
from ddprof.analyzers.rules.straggler_compute import slow_positions
from ddprof.finding_ids import STRAGGLER_IMBALANCE
from ddprof.findings import Abstention, Alters, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share

STEADY_EXCESS = 0.02  # over the typical peer in nearly every step: such ranks are slow, and set aside
LARGER_PART = 0.5  # of the longer time, beyond the pace: it, and not the pace, is then what makes the rank late
NAMED = 2  # operators
MIN_LOST_SHARE = 0.03  # of the step waited, before unequal batches are worth a finding by themselves
_UNEVEN_OPTIMIZER = Fix(
    setting="parameters that each rank's optimizer updates",
    suggested="equal shares: split the largest tensor, or shard each tensor (FSDP) in place of whole ones",
    why="the others wait for the rank with the largest share in each step",
    source="torch.distributed.optim.ZeroRedundancyOptimizer documentation: it sorts whole tensors onto ranks",
)
_AS_MANY_PASSES = Fix(
    setting="micro-batches per step",
    suggested="the same number on every rank",
    why="the others wait for the rank with most passes in each step",
    source="PyTorch DistributedDataParallel documentation: uneven inputs",
    alters=Alters.UPDATES,
)


def rotating_spread(work: Slowdown, culprits: list[int], least: float) -> tuple[float, int]:
    """Mean over steps of (slowest - mean) relative slowdown without steady culprits, and the number of ranks that
    alternate as the slowest.

    Steps count where the slowest is above the mean by at least `least`; ranks with next to none of all excess do not. A
    culprit's whole excess is set aside, as its device may be slow at some kernels alone.
    """
    steps = work.per_step.copy()
    for p in culprits:
        steps[p] /= work.factor[p]
    usable = np.isfinite(steps).all(axis=1)
    if usable.sum() < 2 or steps.shape[1] < 2:
        return 0.0, 0
    kept = steps[usable]
    spread = kept.max(axis=0) - kept.mean(axis=0)
    counted = making_most(spread)
    return float(spread.mean()), len(np.unique(np.argmax(kept, axis=0)[counted[spread[counted] >= least]]))


def burdened(measures: Measures, least: float) -> Array:
    """Positions that compute longer than their peers in nearly every step, beyond their pace.

    Pace is the time of equal kernels. Ranks with larger batches, or with work that their peers do not have, count as
    having their peers' pace. Where batches are larger in every step, most steps suffice, as the machine disturbs some.
    """
    pace = measures.compute.factor.copy()
    pace[list(measures.alone)] = 1.0
    pace[~np.isfinite(pace) | is_fed_more(measures.job.ranks, pace)] = 1.0
    pace[[shard.position for shard in measures.hot]] = 1.0
    work = measures.work
    steady = slow_positions(replace(work, factor=work.factor / pace, per_step=work.per_step / pace[:, None]), least)
    # A slow device is not equally slow at all kernels: a rest beyond its pace explains a little of its time, not all.
    steady = steady[np.log(work.factor[steady] / pace[steady]) >= LARGER_PART * np.log(work.factor[steady])]
    return np.union1d(steady, np.flatnonzero(fed_more_each_step(measures.job.ranks, least)))


def _are_waited_for(measures: Measures, positions: Array) -> bool:
    """True where nearly all waiting is for these ranks, so that ranks do not alternate."""
    everybody = charged_us(measures, list(range(len(measures.job.ranks))))
    return bool(len(positions)) and charged_us(measures, positions.tolist()) >= MOST_SHARE * everybody


def fed_evidence(measures: Measures) -> Iterator[Evidence]:
    """Evidence on the batch sizes in the traced steps, where capture counted them."""
    fed = fed_elements(measures.job.ranks)
    if fed is None:
        return
    if enlarged_by_script(measures.job.ranks):
        yield Evidence("the loaders of all ranks give equally large batches")
        return
    step = int(np.argmax(fed.max(axis=0) / fed.mean(axis=0)))
    most, least = int(np.argmax(fed[:, step])), int(np.argmin(fed[:, step]))
    ratio = float(fed[most, step] / fed[least, step])
    turns = len(np.unique(np.argmax(fed, axis=0)))
    text = f"its batch held {ratio:.2f}x the elements of rank {measures.job.rank_ids[least]}'s in one step; "
    text += "the largest batch moves between ranks" if turns > 1 else "it gets the largest batch in every step"
    yield Evidence(text, measures.job.rank_ids[most])


def _unequal_batches(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Candidates where kernels differ in shape on every rank, so that only batch sizes can be compared."""
    fed = fed_elements(measures.job.ranks)
    spread = 0.0 if fed is None else float((fed.max(axis=0) / fed.mean(axis=0) - 1).mean())
    lost = float(measures.cause_us("comm_wait").mean())
    if fed is None or spread < MIN_FED_SPREAD or lost < MIN_LOST_SHARE * measures.step_us:
        yield Abstention(RULE.id, "no two traced ranks run the same kernels, so balance cannot be judged")
        return
    heavy = np.unique(np.argmax(fed, axis=0))
    numbers = measures.ranks(heavy) if len(heavy) == 1 else ()
    yield Candidate(
        id=RULE.id,
        summary=f"the largest batch of a step holds {format_share(spread)} more than the mean",
        ranks=numbers,
        lost_us=lost,
        basis=Basis.DEDUCED,
        evidence=tuple(fed_evidence(measures)),
        fixes=(_fix(numbers),),
        band=0.5,
        is_bound=True,
    )


def _fix(numbers: tuple[int, ...]) -> Fix:
    return Fix(
        setting="batch composition" + (f" of {format_ranks(numbers)}" if numbers else ""),
        suggested="bucket samples by length, or pack so that the cost of every rank's batch is equal",
        patch="sampler = LengthGroupedSampler(batch_size, lengths=lengths)  # or pack by sum(len**2)",
        why="the same kernels vary from step to step, so the data is uneven, not the device slow",
        source="OSDI'25 section 5.3: re-packing gained 23.9 % in their case",
    )


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find unequal work within steps that no slow device explains."""
    slowdown = measures.compute
    if len(measures.job.ranks) < 2 or not np.isfinite(slowdown.factor).any():
        yield from _unequal_batches(measures)
        return
    if unknown := unknown_peers(measures):
        yield Abstention(RULE.id, unknown)
        return
    in_turn = _operators_in_turn(measures)
    if in_turn is not None:
        beside = called_beside(measures)  # what host.evaluation tells
        yield from [] if beside is not None and beside.in_turn else [in_turn]
        return
    least = execution_of(measures.job).limits.min_work_spread
    slow = slow_positions(slowdown, STEADY_EXCESS)
    slow = slow[~is_fed_more(measures.job.ranks, slowdown.factor)[slow]]
    slow = np.setdiff1d(slow, [shard.position for shard in measures.hot])
    spread, turns = rotating_spread(measures.work, slow.tolist(), least)
    extra = np.flatnonzero(slowdown.has_more)
    fed = np.flatnonzero(fed_more_each_step(measures.job.ranks, least))
    if turns < 2 or (measures.fed_more_us[fed] > 0).any() or _are_waited_for(measures, np.union1d(extra, fed)):
        candidates = list(_one_sided(measures, extra, np.union1d(extra, burdened(measures, least))))
        candidates = candidates or list(hot_in_some_steps(measures, MIN_LOST_SHARE))
    else:
        candidates = list(hot_in_some_steps(measures, MIN_LOST_SHARE))
        if not candidates and spread >= least:
            candidates = [_in_turns(measures, spread, turns)]
    timed = turns_in_forward(measures)
    yield from candidates or ([] if timed is None else [timed])


def _operators_in_turn(measures: Measures) -> Candidate | None:
    """Operators that CPU ranks run in some steps, and their peers do not there; None where no two ranks do by turns."""
    extra, turns = measures.compute.extra, measures.compute.turns
    if extra is None or not len(turns) or extra.late_us < MIN_LOST_SHARE * measures.step_us:
        return None
    ranks, steps = extra.share.shape
    often = int((extra.share >= MORE_WORK_SHARE).any(axis=0).sum())
    # What a line runs again in the backward pass is there because that line ran.
    forward = next((name for name in extra.names if "Backward" not in name), extra.names[0])
    where = line_of_operators(measures.job.ranks, forward)
    listed = " and ".join(list(dict.fromkeys(name.rpartition(": ")[2] for name in extra.names))[:NAMED])
    worst = int(turns[np.argmax(extra.extra_ns[turns].max(axis=1))])
    most = format_share(float(extra.share[worst].max()))
    summary = f"one rank at a time runs extra operators, in {often} of {steps} steps, "
    return Candidate(
        id=RULE.id,
        summary=summary + (f"at {where}" if where else listed),
        lost_us=extra.late_us,
        changes=(Change("balance_compute", target="extra"),),
        basis=Basis.COMPARED,
        evidence=(
            Evidence(f"{listed} and what they call: up to {most} of its operators' time", measures.job.rank_ids[worst]),
            Evidence(f"each of {format_ranks(measures.ranks(turns))} runs more of them than its peers in some step"),
        ),
        fixes=(
            Fix(
                setting="work of single ranks" + (f" in {where}" if where else ""),
                suggested="the same for all ranks in every step, or none",
                why="each step waits for the rank with most work",
                source="OSDI'25 section 5.3",
                alters=Alters.CHORE,
            ),
        ),
        band=1 / (2 * ranks - 1),  # from dividing it over all to leaving it out
    )


def _in_turns(measures: Measures, spread: float, turns: int) -> Candidate:
    """Candidate for work that moves between ranks in the traced steps."""
    worst = int(np.argmax([charged_us(measures, [p]) for p in range(len(measures.job.ranks))]))
    return Candidate(
        id=RULE.id,
        summary=f"the slowest rank computes {format_share(spread)} longer than the mean, and changes from step to step",
        lost_us=float(measures.cause_us("comm_wait").mean()),
        changes=(Change("balance_compute"),),
        basis=Basis.COMPARED,
        evidence=(
            *fed_evidence(measures),
            Evidence(f"{turns} different ranks were the slowest in {measures.steps} steps"),
            *largest_wait(measures, worst),
        ),
        fixes=(_fix(()),),
        ceiling_us=float((measures.cause_us("comm_wait") + measures.cause_us("comm_transfer")).max()),
    )


def _one_sided(measures: Measures, extra: Array, heavy: Array) -> Iterator[Candidate]:
    """Candidates where the same ranks have more work. `extra`: positions with kernels that their peers do not launch;
    among `heavy`."""
    if not len(heavy) or 2 * len(heavy) > len(measures.job.ranks):
        return
    lost_us = _lost_us(measures, heavy)
    if lost_us < MIN_LOST_SHARE * measures.step_us:
        return
    numbers = measures.ranks(heavy)
    worst = int(heavy[np.argmax(np.nanmax(measures.work.per_step[heavy], axis=1))])
    per_step = measures.work.per_step[worst]
    late_rank = measures.job.rank_ids[worst]
    often = int((per_step > 1 + MIN_LOST_SHARE).sum())
    noun = execution_of(measures.job).work_noun
    longer = f"rank {late_rank} computes longer than its peers in {often} of {len(per_step)} steps, up to "
    longer += f"{np.nanmax(per_step):.2f}x; the same {noun} take {measures.compute.factor[worst]:.2f}x as long"
    is_fed = bool(fed_more_each_step(measures.job.ranks, MIN_FED_SPREAD)[heavy].all())
    shard = next((s for s in measures.hot if s.position == worst), None)
    if shard is not None:
        summary, fix = hot_words(shard, numbers), hot_fix(shard, numbers)
    else:
        summary, fix = _words(measures, extra, heavy, worst, is_fed)
    yield Candidate(
        id=RULE.id,
        summary=summary,
        ranks=numbers,
        lost_us=lost_us,
        changes=(_without(measures, extra, heavy, "spread" if shard is not None else "fed" if is_fed else ""),),
        basis=Basis.COMPARED,
        evidence=(
            *(hot_evidence(shard, late_rank) if shard else fed_evidence(measures)),
            *_more_work(measures, extra if shard is None else extra[:0]),
            *([Evidence(longer, late_rank)] if often else []),
            *largest_wait(measures, worst),
        ),
        fixes=(fix,),
        # Tokens and lookups that are spread go to the others: of few ranks each gets a good part of them.
        band=0.25 if shard is None else max(0.25, 1 / len(measures.job.ranks)),
    )


def _words(measures: Measures, extra: Array, heavy: Array, worst: int, is_fed: bool) -> tuple[str, Fix]:
    """Summary and fix for the ranks `heavy` with more work than their peers. `extra`: as of `_one_sided`; `worst`: the
    position of the latest; `is_fed`: their batches are larger."""
    numbers = measures.ranks(heavy)
    who = format_ranks(numbers)
    does, runs, whose = ("does", "runs", "its") if len(numbers) == 1 else ("do", "run", "their")
    passes, usual = _backward_passes(measures, heavy, worst)
    if passes > usual:
        return f"{who} {runs} {passes} backward passes per step, {whose} peers {usual}", _AS_MANY_PASSES
    if is_fed:
        # By the timers, or by usual calls of its operators where peers waited for a CPU in the meantime.
        times_us = [measures.own_us]
        if measures.fed_more_us[worst]:
            times_us.append(np.array([usual_work_us(facts) for facts in measures.job.ranks]))
        more = max(each[worst] / averages.typical(np.delete(each, worst)) for each in times_us)
        summary = f"{who} {does} {more:.2f}x the work of {whose} peers"
        larger = larger_input(measures.job.ranks, worst)
        if larger is None:
            return summary, _fix(numbers)
        return f"{summary}: {larger.words}", feeding_fix(larger, numbers)
    if len(extra):
        return f"{who} {runs} {execution_of(measures.job).work_noun} that the peers do not", _elsewhere(numbers)
    per_step = measures.work.per_step[worst]
    summary = f"{who} {does} {np.nanmedian(per_step):.2f}x the work of {whose} peers"
    if _is_in_optimizer(measures, worst):
        return summary + ", most of it in its optimizer", _UNEVEN_OPTIMIZER
    return summary, _fix(numbers)


def _backward_passes(measures: Measures, heavy: Array, worst: int) -> tuple[int, int]:
    """Backward passes in a typical step of `worst`, and of the peers of `heavy` where it has more in most steps; else
    0, 0."""
    counts = np.array(
        [
            np.histogram(passes_of(facts, Phase.BACKWARD)[0], [*facts.marks[0], facts.marks[1][-1]])[0]
            for facts in measures.job.ranks
        ]
    )
    peers = np.delete(counts, heavy, axis=0)
    if np.mean(counts[worst] > peers.max(axis=0)) <= LARGER_PART:
        return 0, 0
    return int(np.median(counts[worst])), int(np.median(peers))


def _is_in_optimizer(measures: Measures, worst: int) -> bool:
    """True where a CPU rank's optimizer is most of what it computes longer than its peers."""
    stepping = [intervals.intersect(host_work(facts), part_of(facts, STEPPING)) for facts in measures.job.ranks]
    stepping_us = np.array([intervals.length(each) / 1e3 / measures.steps for each in stepping])
    more_us = [each[worst] - averages.typical(np.delete(each, worst)) for each in (stepping_us, measures.work.time_us)]
    return bool(0 < LARGER_PART * more_us[1] <= more_us[0])


def _lost_us(measures: Measures, heavy: Array) -> float:
    """Waiting for these ranks per step, mean over all: as blamed, or by clear timers of the run. In few traced steps
    chance may hold up the others, and so hide whom they wait for."""
    ranks = len(measures.job.ranks)
    timed_us = float(np.maximum(measures.timed_us, measures.fed_more_us)[heavy].max()) * (ranks - len(heavy)) / ranks
    return max(charged_us(measures, heavy.tolist()), timed_us)


def _more_work(measures: Measures, extra: Array) -> Iterator[Evidence]:
    """Evidence on time for work that the peers do not have."""
    if len(extra):
        worst = int(extra[np.argmax(measures.compute.more_work[extra])])
        share = format_share(float(measures.compute.more_work[worst]))
        rank = measures.job.rank_ids[worst]
        noun = execution_of(measures.job).work_noun
        yield Evidence(
            f"rank {rank} spends {share} of its time in {noun} that its peers run less often, or not at all", rank
        )


def _without(measures: Measures, extra: Array, heavy: Array, target: str) -> Change:
    """The change that moves ranks' extra work elsewhere, with its Python where lines show that they alone run it.

    Without kernels that they alone launch, their longer computing says nothing of what such a line costs.
    """
    numbers = measures.ranks(heavy)
    if np.isin(heavy, extra).all() and all(position in measures.alone for position in heavy.tolist()):
        return Change("on_time", numbers)
    return Change("level_compute", numbers, target=target)


def _elsewhere(numbers: tuple[int, ...]) -> Fix:
    return Fix(
        setting=f"work of {format_ranks(numbers)} alone",
        suggested="share it over all ranks (evaluation, generation, metrics), run it beside training, or less often",
        why="the other ranks wait for it in the next collective",
        source="PyTorch DistributedDataParallel documentation: work on one rank",
        alters=Alters.CHORE,
    )


RULE = Rule(
    STRAGGLER_IMBALANCE, "Ranks get unequal work", detect, bound="straggler", compares_ranks=True, tells_line=True
)
