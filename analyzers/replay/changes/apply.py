"""From changes (what fixes do, in words of the product) to what the simulator alters, and to rates that come on top."""

from __future__ import annotations

from dataclasses import replace

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.ranks import chosen
from ddprof.analyzers.replay.changes.table import KINDS, ToTransfers, kind_of
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.findings import Change
from ddprof.tables import Array


def with_implied(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The changes and what they imply, each once: host time taken away twice would be too much."""
    implied = (Change(name) for change in changes for name in kind_of(change).implies)
    return tuple(dict.fromkeys((*changes, *implied)))


def scenario_of(changes: tuple[Change, ...], graph: Graph, measures: Measures) -> Scenario:
    """All changes of the recorded run at once; a retiming replaces transfers that other changes scaled."""
    result = Scenario()
    for change in changes:
        to_scenario = kind_of(change).scenario
        if to_scenario is not None:
            result = result + to_scenario(change, graph, measures)
    for kind in KINDS.values():
        for change in changes:
            if change.kind == kind.name and kind.retiming is not None:
                transfers = _retimed(kind.retiming, change, changes, graph, measures, result)
                result = replace(result, transfer_ns=transfers)
    return result


def _retimed(
    retiming: ToTransfers,
    change: Change,
    changes: tuple[Change, ...],
    graph: Graph,
    measures: Measures,
    so_far: Scenario,
) -> dict[int, Array]:
    transfers = dict(so_far.transfer_ns)
    for position, new in retiming(change, graph, measures, changes).items():
        rank = next(r for r in graph.ranks if r.position == position)
        transfers[position] = transfers.get(position, rank.ops.transfer_ns).copy()
        transfers[position][new.rows] = new.transfer_ns
    return transfers


def at_rates(changes: tuple[Change, ...], step_us: float, measures: Measures) -> float:
    """The step (us) at the rates that the changes set; `step_us`: as replayed under all of them."""
    for change in changes:
        to_step = kind_of(change).rate
        if to_step is not None:
            step_us = to_step(change, step_us, measures)
    return step_us


def levelled(changes: tuple[Change, ...], graph: Graph, measures: Measures) -> frozenset[int]:
    """Positions of ranks whose work the changes bring to what it takes their peers, or to the mean of all."""
    level = [change for change in changes if kind_of(change).levels_work]
    found = {rank.position for change in level for rank, _ in chosen(change, graph, measures)}
    return as_peers(changes, graph, measures) | found


def as_peers(changes: tuple[Change, ...], graph: Graph, measures: Measures) -> frozenset[int]:
    """Positions of ranks that do, under the changes, what their peers do and nothing else."""
    told = [change for change in changes if change.target == "peers"]
    return frozenset(rank.position for change in told for rank, _ in chosen(change, graph, measures))
