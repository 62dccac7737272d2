"""Loader workers that keep ranks from their cores: both are ready to run and have no CPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.cpu_waits import BUSY_SHARE, traced_shares
from ddprof.analyzers.rules.evidence.loader_cost import evidence, fetch_cost, line_evidence
from ddprof.analyzers.rules.evidence.loader_fixes import cheaper_fix
from ddprof.findings import Basis, Candidate, Evidence, Fix
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share


@dataclass(frozen=True)
class TakenCores:
    """`cores` that each rank's workers compute on, shape (ranks,), and their `part` of the `usable` ones of a host; the
    share of the traced time that ranks `waited` for a CPU, and what of the step that costs: at least the workers' part
    of it, at most all that the rank waits that waits longest, where the host has a core for each rank."""

    cores: Array
    usable: int
    part: float
    waited: float
    least: float
    most: float

    @property
    def cost(self) -> float:
        """The middle of both."""
        return (self.least + self.most) / 2


def taken_cores(measures: Measures) -> TakenCores | None:
    """Cores that workers take from ranks; None where little is taken, or waits were not counted on both sides."""
    ranks, processors = measures.job.ranks, measures.settings.processors
    timed, waited = [facts.sidecar.fetching for facts in ranks], traced_shares(ranks).waited
    shares = np.array([one.waited_share for one in timed if one is not None and one.workers], float)
    if not processors.usable or not len(shares) or not np.isfinite([*shares, *waited]).all():  # NaN: not counted
        return None
    cpu_us = np.array([(one.cpu_ns or 0) / 1e3 if one is not None and one.workers else 0.0 for one in timed])
    cores = cpu_us * measures.host_counts["dataloader"] / measures.step_us
    many = processors.local_ranks or len(ranks)
    part = min(1.0, float(cores.mean()) * many / processors.usable)
    least, most = float(waited.mean()) * part, float(waited.max()) * (1.0 if many <= processors.usable else part)
    is_taken = least >= BUSY_SHARE and float(shares.max()) >= BUSY_SHARE
    return TakenCores(cores, processors.usable, part, float(waited.mean()), least, most) if is_taken else None


def taking(measures: Measures, rule_id: str, alone: bool) -> Candidate | None:
    """A finding on workers that take the cores of ranks; `alone`: those of few ranks, which it names, else of all."""
    taken = taken_cores(measures)
    numbers = () if taken is None else measures.theirs(taken.cores)
    if taken is None or bool(numbers) is not alone:
        return None
    worst = int(np.argmax(taken.cores))
    rank, facts = measures.job.rank_ids[worst], measures.job.ranks[worst]
    cost = fetch_cost(facts)
    if cost is None:
        return None
    cheaper = cheaper_fix(cost)
    cost_us = taken.cost * measures.step_us
    whose = f" of {format_ranks(numbers)}" if alone else ""
    on = f"{taken.cores[worst]:.1f} of {taken.usable} cores" + ("" if alone else " for each rank")
    lacked = format_share(taken.waited)
    return Candidate(
        id=rule_id,
        summary=f"loader workers{whose} compute on {on}; ranks have no CPU for {lacked} of the time",
        ranks=numbers,
        lost_us=cost_us,
        basis=Basis.TIMED,
        evidence=(
            evidence(cost, rank),
            *line_evidence(cost, rank, measures.job.ranks),
            Evidence(f"the workers have {format_share(taken.part)} of the cores' time"),
        ),
        fixes=(*(() if cheaper is None else (cheaper,)), _FEWER),
        ceiling_us=cost_us,
        band=(taken.most - taken.least) / (taken.most + taken.least),
        times_us=tuple((taken.cores * measures.step_us).tolist()),
        is_bound=True,
    )


_FEWER = Fix(
    setting="cores of the loader's workers",
    suggested="cores of their own, or fewer workers while these still deliver a batch per step",
    patch="torch.utils.data.DataLoader(..., worker_init_fn=lambda worker: os.sched_setaffinity(0, CORES_OF_LOADERS))",
    why="workers and training threads wait for the same cores",
    source="PyTorch performance tuning guide",
)
