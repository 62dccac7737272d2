"""The rarer faults, as they are drawn: for messy corpora, and where they are asked for by name."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.fault_kind import DATA, Kind, some_ranks
from benchmarks.oracle.spec import Fault, Scenario


def _stalled(draw: np.random.Generator, scenario: Scenario) -> Fault:
    ranks = some_ranks(draw, scenario) if draw.uniform() < 0.4 else ()
    return Fault("host.stalled", 1.0, ranks, {"pieces": int(draw.integers(2, 6))})


def _preprocessing(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("input.preprocessing", 1.0)


def _one(draw: np.random.Generator, scenario: Scenario) -> tuple[int, ...]:
    return (int(draw.integers(scenario.cluster.world)),)


def _hot_expert(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("imbalance.hot_expert", 1.0, _one(draw, scenario))


def _hot_table(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("imbalance.hot_table", 1.0, _one(draw, scenario))


def _evaluation(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("host.evaluation", 1.0, (0,), {"every": int(draw.choice([1, 2]))})


def _script(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("host.script", 1.0)


def _script_of_one(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("script.one_rank", 1.0, _one(draw, scenario))


def _barriers(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("comm.barrier", 1.0)


def _nested(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("fsdp.nested", 1.0, (), {"units": int(draw.choice([3, 5]))})


def _no_prefetch(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("fsdp.no_prefetch", 1.0)


def _recompute(draw: np.random.Generator, scenario: Scenario) -> Fault:
    used = float(draw.uniform(0.2, 0.45))
    kept = float(draw.uniform(0.3, 0.95)) * (0.88 - used)
    return Fault("memory.recompute", 1.0, (), {"every": int(draw.choice([1, 1, 2])), "memory": used, "kept": kept})


def _slow_stage_link(draw: np.random.Generator, scenario: Scenario) -> Fault | None:
    """A pipeline link slower than its peers; None where no other link is of its kind, as only a comparison shows it."""
    parallel, hosts = scenario.parallel, scenario.cluster.hosts
    links = (parallel.pp - 1) * parallel.dp
    first = int(draw.integers(links))
    crosses = [hosts[low] != hosts[low + parallel.dp] for low in range(links)]
    if crosses.count(crosses[first]) < 2:
        return None
    return Fault("pipeline.slow_link", 1.0, (first, first + parallel.dp))


def _slow_device(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("straggler.compute", 1.0, _one(draw, scenario), {"mode": "all"})


RARER_KINDS: dict[str, Kind] = {
    "host.stalled": Kind(_stalled, ("ddp", "ddp", "fsdp", "tpdp"), (200.0, 5e5), small=True),
    "input.preprocessing": Kind(_preprocessing, DATA, (200.0, 5e5)),
    "imbalance.hot_expert": Kind(_hot_expert, ("ddp",), (0.05, 20.0), arch="moe"),
    "imbalance.hot_table": Kind(_hot_table, ("ddp",), (0.05, 30.0), arch="dlrm"),
    "host.evaluation": Kind(_evaluation, ("ddp",), (1.0, 12.0)),
    "host.script": Kind(_script, DATA, (200.0, 5e5), stacks=True),
    "script.one_rank": Kind(_script_of_one, ("ddp", "fsdp"), (200.0, 5e5), stacks=True),
    "comm.barrier": Kind(_barriers, ("ddp",), (1.0, 60.0), max_share=0.3),
    "fsdp.nested": Kind(_nested, ("fsdp",), (20.0, 3000.0), max_share=0.35),
    "fsdp.no_prefetch": Kind(_no_prefetch, ("fsdp",), (1.5, 60.0), max_share=0.3),
    "memory.recompute": Kind(_recompute, ("ddp", "fsdp"), None, memory=True),
    "pipeline.slow_link": Kind(_slow_stage_link, ("pp",), (2.0, 5000.0), max_share=0.35),
    "pipeline.slow_device": Kind(_slow_device, ("pp",), (0.03, 3.0)),
}
