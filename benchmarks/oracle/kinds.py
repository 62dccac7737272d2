"""Kinds of scenarios: which fault (or look-alike) on which job, drawn from a seed and scaled to a share of the step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.oracle.bases import draw_base, draw_format
from benchmarks.oracle.draws import generator
from benchmarks.oracle.fault_kind import DATA, Kind, Maker, some_ranks
from benchmarks.oracle.faults import REMEDIES, build
from benchmarks.oracle.gates import MAX_RECOVERABLE, is_healthy, quirk_gain
from benchmarks.oracle.rarer_kinds import RARER_KINDS
from benchmarks.oracle.simulate import step_time
from benchmarks.oracle.spec import Fault, Scenario

ATTEMPTS = 40
MIN_SHARE, MAX_SHARE = 0.05, 0.60
CLOSE_ENOUGH = 0.12  # of the target share
MAX_PAIR_WORLD = 16
SAVES_APART = 2  # steps: what a recording holds once need not recur, and the label counts it as recurring
CHECKPOINT_NAMES = ("save_checkpoint", "save_checkpoint", "torch.save", "checkpoint")
QUIRK_CHANCE = 0.25  # of a look-alike beside a fault
MAX_SLOW_HOST = 15.0  # times; slower hosts are better described as losing the CPU
SEARCH_STEPS = 14
SEARCH_FLOOR = 0.003  # below this share of the step a cost says nothing about the strength needed
MISSING_CHANCE = 0.04
MEMORY_CHANCE = 0.6  # that a healthy job which recomputes says how full its memory is
WORKERS = (2.0, 4.0, 8.0, 16.0)
Dress = Callable[[Scenario], Scenario | None]  # a change of the healthy job; None: it does not fit


class NoScenarioError(Exception):
    """A seed has no scenario of a kind that meets the kind's conditions."""


ALL = ("ddp", "ddp", "fsdp", "tpdp", "hsdp", "pp")


def _ranks(fault_id: str, **detail: float | str | bool) -> Maker:
    return lambda draw, scenario: Fault(fault_id, 1.0, some_ranks(draw, scenario), detail)


def _job(fault_id: str, **detail: float | str | bool) -> Maker:
    return lambda draw, scenario: Fault(fault_id, 1.0, (), detail)


def _slow_device(draw: np.random.Generator, scenario: Scenario) -> Fault:
    mode = "matmul" if draw.uniform() < 0.25 else "all"
    return Fault("straggler.compute", 1.0, some_ranks(draw, scenario), {"mode": mode})


def _slow_host(draw: np.random.Generator, scenario: Scenario) -> Fault:
    mode = "stall" if draw.uniform() < 0.6 else "scale"
    return Fault("straggler.host", 1.0, some_ranks(draw, scenario), {"mode": mode})


def _starved(draw: np.random.Generator, scenario: Scenario) -> Fault:
    workers = int(draw.choice([1, 2, 2, 4]))
    return Fault("input.starved", 1.0, (), {"num_workers": workers, "recommended_num_workers": 16})


def _small_buckets(draw: np.random.Generator, scenario: Scenario) -> Fault:
    cap = float(draw.choice([0.5, 1.0, 2.0]))
    return Fault("comm.latency_bound", 1.0, (), {"bucket_cap_mb": cap, "recommended_bucket_cap_mb": 25.0})


def _no_overlap(draw: np.random.Generator, scenario: Scenario) -> Fault:
    mode = "late" if draw.uniform() < 0.4 else "huge"
    detail: dict[str, float | str | bool] = {"mode": mode, "recommended_bucket_cap_mb": 25.0}
    if mode == "huge":
        detail["bucket_cap_mb"] = 1e6
    return Fault("comm.no_overlap", 1.0, (), detail)


def _sharding(draw: np.random.Generator, scenario: Scenario) -> Fault:
    hosts = len(set(scenario.cluster.hosts))
    return Fault("comm.sharding", 1.0, (), {"remedy": "hsdp" if hosts > 1 else "reshard"})


def _checkpoint(draw: np.random.Generator, scenario: Scenario) -> Fault:
    ranks = (0,) if draw.uniform() < 0.3 else ()
    return Fault(
        "host.checkpoint",
        1.0,
        ranks,
        {
            "step": int(draw.integers(scenario.steps)),
            "apart": SAVES_APART,
            "name": str(draw.choice(CHECKPOINT_NAMES)),
        },
    )


def _collections(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("host.gc", 1.0, (), {"chance": float(draw.uniform(0.4, 0.8))})


def _few_microbatches(draw: np.random.Generator, scenario: Scenario) -> Fault:
    pp = scenario.parallel.pp
    few = pp * int(draw.choice([1, 1, 2]))
    return Fault("pipeline.bubble", float(few), (), {"microbatches": few, "recommended_microbatches": 4 * few})


def _single_precision(draw: np.random.Generator, scenario: Scenario) -> Fault:
    return Fault("compute.precision", float(draw.uniform(1.8, 2.8)))


def _more_layers(draw: np.random.Generator, scenario: Scenario) -> Fault:
    pp = scenario.parallel.pp
    stage = pp - 1 if draw.uniform() < 0.5 else int(draw.integers(pp))
    extra = int(draw.integers(1, scenario.model.layers + 1))
    return Fault("pipeline.imbalance", float(extra), (), {"stage": stage})


KINDS: dict[str, Kind] = {
    "straggler.compute": Kind(_slow_device, ALL, (0.03, 3.0)),
    "straggler.host": Kind(_slow_host, ("ddp", "ddp", "tpdp", "fsdp"), None),
    "straggler.imbalance": Kind(_job("straggler.imbalance"), ("ddp", "ddp", "fsdp"), (0.04, 0.7), max_share=0.3),
    "input.starved": Kind(_starved, DATA, (1e3, 5e6)),
    "input.straggler": Kind(_ranks("input.straggler"), DATA, (1.0, 200.0)),
    "input.pageable_copy": Kind(_job("input.pageable_copy"), DATA, (4e6, 2e9), max_share=0.4),
    "comm.latency_bound": Kind(_small_buckets, ("ddp",), (20.0, 4000.0), max_share=0.4, max_world=8),
    "comm.no_overlap": Kind(_no_overlap, ("ddp",), (1.0, 400.0), max_share=0.35),
    "comm.bandwidth_bound": Kind(_job("comm.bandwidth_bound"), ("ddp",), (2.0, 800.0), max_share=0.4),
    "comm.slow_link": Kind(_ranks("comm.slow_link"), ("tpdp", "tpdp", "hsdp", "ddp"), (1.0, 900.0), world=8),
    "comm.sharding": Kind(_sharding, ("fsdp",), (1.5, 60.0), max_share=0.3),
    "host.launch_bound": Kind(_job("host.launch_bound"), ("ddp", "fsdp"), (1.1, 40.0), small=True),
    "host.sync": Kind(_job("host.sync"), ("ddp", "fsdp", "tpdp"), (20.0, 1e5)),
    "host.gc": Kind(_collections, DATA, (200.0, 5e5)),
    "host.checkpoint": Kind(_checkpoint, DATA, (200.0, 1e6)),
    "host.allocator": Kind(_job("host.allocator"), DATA, (100.0, 5e5)),
    "memory.headroom": Kind(_job("memory.headroom"), ("ddp", "fsdp"), (100.0, 5e5), memory=True),
    "pipeline.bubble": Kind(_few_microbatches, ("pp",), None),
    "pipeline.imbalance": Kind(_more_layers, ("pp",), None),
    "compute.precision": Kind(_single_precision, ("ddp", "fsdp"), None, shapes=True),
    "compute.unfused_optimizer": Kind(
        _job("compute.unfused_optimizer"), ("ddp", "fsdp"), (3.0, 120.0), max_share=0.25, max_world=8
    ),
}
BY_NAME = KINDS | RARER_KINDS
PAIRS = (
    ("straggler.compute", "host.checkpoint"), ("straggler.compute", "input.pageable_copy"),
    ("straggler.compute", "host.gc"), ("host.sync", "input.pageable_copy"), ("comm.latency_bound", "straggler.compute"),
    ("input.starved", "host.checkpoint"), ("host.allocator", "straggler.compute"),
    ("compute.unfused_optimizer", "comm.no_overlap"), ("host.checkpoint", "host.gc"), ("host.sync", "comm.no_overlap"),
)  # fmt: skip
CLEAN = (
    "plain", "hidden_comm", "jitter", "first_step", "slow_clock", "loader", "gc", "pipeline", "fsdp", "tpdp", "large",
)  # fmt: skip
# Pauses of some steps. A host that is ahead absorbs them or, where it waits for its device, works off a backlog from
# before the recording: marks a few steps apart do not tell their cost.
PAUSES = (
    "host.gc", "host.checkpoint", "host.allocator", "memory.headroom", "straggler.host", "host.stalled",
    "host.evaluation", "host.script", "script.one_rank",
)  # fmt: skip
# The rarer ones are made on request and among messy runs: what a seed gives by default stays what it was.
EVERY_KIND = (*(f"clean.{name}" for name in CLEAN), *KINDS, *("+".join(pair) for pair in PAIRS))


KNOWN_KINDS = (*EVERY_KIND, *RARER_KINDS, "clean.recompute")
WITH_PAUSES = frozenset(kind for kind in EVERY_KIND if any(part in PAUSES for part in kind.split("+")))


def scenario(seed: int, kind: str | None = None, run_ahead: bool = False) -> Scenario:
    """The scenario of a seed, of a kind or of one the seed picks. KeyError: unknown kind.

    With `run_ahead` its script never waits for the device.
    """
    if kind is None:
        names = list(EVERY_KIND)
        kind = names[int(generator(seed, "kind").integers(len(names)))]
    if kind not in KNOWN_KINDS:
        raise KeyError(f"unknown kind {kind!r}; known: {', '.join(KNOWN_KINDS)}")
    for attempt in range(ATTEMPTS):
        draw = generator(seed, "scenario", kind, attempt)
        found = draw_scenario(draw, seed, kind, _never_waiting if run_ahead else _as_drawn)
        if found is not None:
            return found
    raise NoScenarioError(f"no scenario of kind {kind} met its conditions in {ATTEMPTS} attempts (seed {seed})")


def draw_scenario(draw: np.random.Generator, seed: int, kind: str, dress: Dress) -> Scenario | None:
    """One attempt at a kind, on a job that `dress` may change first; None where it missed the kind's conditions."""
    make = _clean if kind.startswith("clean.") else _faulty
    return make(draw, seed, kind, dress)


def _as_drawn(base: Scenario) -> Scenario:
    return base


def _faulty(draw: np.random.Generator, seed: int, kind: str, dress: Dress) -> Scenario | None:
    ids = kind.split("+")
    shared = [p for p in BY_NAME[ids[0]].parallel if all(p in BY_NAME[i].parallel for i in ids)]
    parallel = shared[int(draw.integers(len(shared)))]
    world = max(BY_NAME[i].world for i in ids)
    drawn = draw_base(draw, parallel, f"{kind}_{seed}", seed, world, hosts=2 if "comm.slow_link" in ids else 0)
    base = dress(drawn)
    if base is None:
        return None
    if base.cluster.world > min([BY_NAME[i].max_world for i in ids] + [MAX_PAIR_WORLD] * (len(ids) - 1)):
        return None
    base = _with_quirk(draw, _with_evidence(draw, base, [BY_NAME[i] for i in ids]), ids)
    if not is_healthy(base) and not any(BY_NAME[i].small for i in ids):
        return None
    faults = []
    for fault_id in ids:
        fault = BY_NAME[fault_id].make(draw, base)
        if fault is None:
            return None
        limit = BY_NAME[fault_id].max_share / (1.6 if len(ids) > 1 else 1.0)
        target = float(np.exp(draw.uniform(np.log(0.07 if len(ids) > 1 else MIN_SHARE * 1.15), np.log(limit))))
        tuned = _tuned(replace(base, faults=(fault,)), target)
        if tuned is None or (tuned.detail.get("mode") == "scale" and tuned.strength > MAX_SLOW_HOST):
            return None
        faults.append(_recommended(replace(base, faults=(tuned,))))
    found = replace(base, kind=kind, faults=tuple(faults))
    if len(ids) > 1 and any(share(found, frozenset([i])) < MIN_SHARE for i in range(len(ids))):
        return None  # one hides the other
    if found.quirks and quirk_gain(found, step_time(found)) > MAX_RECOVERABLE:
        return None  # beside this fault the look-alike is worth a finding itself
    return _without_some_ranks(draw, found)


def _with_evidence(draw: np.random.Generator, base: Scenario, kinds: list[Kind]) -> Scenario:
    """The base with what the faults need to be seen: recorded shapes or memory, small kernels, experts or tables."""
    for arch in (kind.arch for kind in kinds if kind.arch):
        base = replace(base, model=replace(base.model, arch=arch), format=replace(base.format, shapes=True))
    if any(kind.shapes or kind.memory for kind in kinds):
        form = draw_format(draw, plain=True)
        shapes, memory = any(k.shapes for k in kinds) or form.shapes, any(k.memory for k in kinds) or form.memory
        base = replace(base, format=replace(form, shapes=shapes, memory=memory))
    if any(kind.stacks for kind in kinds):
        base = replace(base, format=replace(base.format, stacks=True))
    if any(kind.small for kind in kinds):
        factor = float(draw.uniform(0.1, 0.2))
        model = base.model
        base = replace(
            base,
            model=replace(
                model, layers=min(12, 2 * model.layers), unit_us=model.unit_us * factor,
                params_per_layer=int(model.params_per_layer * factor), batch_bytes=model.batch_bytes // 8,
            ),
            loader=replace(base.loader, cost_us=base.loader.cost_us * factor),
        )  # fmt: skip
    return base


def _with_quirk(draw: np.random.Generator, base: Scenario, ids: list[str]) -> Scenario:
    """Now and then the base also has a look-alike of another family than its faults."""
    names = [name for name in ("jitter", "slow_clock", "loader", "gc") if not any(i in RELATED[name] for i in ids)]
    if not names or len(ids) > 1 or base.parallel.kind == "pp" or draw.uniform() > QUIRK_CHANCE:
        return base
    quirk = _quirk(draw, str(draw.choice(names)), base)
    return replace(base, quirks=(quirk,) if quirk is not None else ())


RELATED = {
    "jitter": ("straggler.imbalance",),
    "slow_clock": ("straggler.compute", "straggler.imbalance"),
    "loader": ("input.starved", "input.straggler"),
    "gc": ("host.gc",),
}


def _without_some_ranks(draw: np.random.Generator, found: Scenario) -> Scenario:
    """Now and then a rank that is nobody's culprit left no file."""
    blamed = {rank for fault in found.faults for rank in fault.ranks}
    innocent = [rank for rank in range(1, found.cluster.world) if rank not in blamed]
    if found.cluster.world < 4 or not innocent or found.parallel.kind == "pp" or draw.uniform() > MISSING_CHANCE:
        return found
    return replace(found, missing_ranks=(int(draw.choice(innocent)),))


def _recommended(scenario: Scenario) -> Fault:
    """The only fault, its recommended number of workers the smallest that is as good as many."""
    fault = scenario.faults[0]
    if fault.id != "input.starved":
        return fault
    workers = int(float(fault.detail["num_workers"]))
    best = step_time(scenario, build(scenario, change={"num_workers": WORKERS[-1]}))
    for count in (c for c in WORKERS if c > workers):
        if step_time(scenario, build(scenario, change={"num_workers": count})) <= 1.01 * best:
            return replace(fault, detail={**fault.detail, "recommended_num_workers": int(count)})
    return fault


def share(scenario: Scenario, removed: frozenset[int] = frozenset([0])) -> float:
    """Saving from removing the faults at the indices `removed`, as a share of the step."""
    step = step_time(scenario)
    return (step - step_time(scenario, build(scenario, removed))) / step


def _tuned(scenario: Scenario, target: float) -> Fault | None:
    """The scenario's only fault at the strength that costs about `target` of the step; None if it cannot."""
    fault = scenario.faults[0]
    bounds = _bounds(scenario, fault)
    if bounds is None:
        return fault if MIN_SHARE <= share(scenario) <= MAX_SHARE else None
    low, high = bounds
    healthy = None if fault.id in REMEDIES else step_time(scenario, build(scenario, frozenset([0])))
    strength = math.sqrt(low * high)
    for _ in range(SEARCH_STEPS):
        fault = replace(fault, strength=round(strength, 4))
        with_fault = replace(scenario, faults=(fault,))
        step = step_time(with_fault)
        after = healthy if healthy is not None else step_time(with_fault, build(with_fault, frozenset([0])))
        cost = (step - after) / step
        if abs(cost - target) <= CLOSE_ENOUGH * target:
            return fault if cost >= MIN_SHARE else None
        low, high = (strength, high) if cost < target else (low, strength)
        # what a fault costs grows about in proportion to its strength; else halve the bracket
        guess = strength * target / (1 - target) * (1 - cost) / cost if cost > SEARCH_FLOOR else 0.0
        strength = guess if 1.02 * low < guess < 0.98 * high else math.sqrt(low * high)
    return None


def _bounds(scenario: Scenario, fault: Fault) -> tuple[float, float] | None:
    if fault.id == "straggler.host":
        return (300.0, 5e5) if fault.detail["mode"] == "stall" else (1.5, 400.0)
    return BY_NAME[fault.id].bounds


def _never_waiting(base: Scenario) -> Scenario:
    return replace(base, model=replace(base.model, sync="none"))


def _clean(draw: np.random.Generator, seed: int, kind: str, dress: Dress) -> Scenario | None:
    name = kind.removeprefix("clean.")
    parallel = {"pipeline": "pp", "fsdp": "fsdp", "tpdp": "tpdp"}.get(name, "ddp" if name == "hidden_comm" else "")
    choice = parallel or str(draw.choice(["ddp", "ddp", "fsdp", "tpdp", "hsdp"]))
    world, hosts = (int(draw.choice([16, 32, 64])), 4) if name == "large" else (0, 0)
    base = dress(draw_base(draw, choice, f"{kind}_{seed}", seed, world, hosts))
    if base is None:
        return None
    quirk = _quirk(draw, name, base)
    if name == "hidden_comm":
        cluster = replace(
            base.cluster, intra_gbps=base.cluster.intra_gbps * 0.12, inter_gbps=base.cluster.inter_gbps * 0.3
        )
        base = replace(base, cluster=cluster, parallel=replace(base.parallel, bucket_mb=10.0))
    if name == "recompute":
        base = replace(base, format=replace(base.format, memory=bool(draw.uniform() < MEMORY_CHANCE)))
    found = replace(base, kind=kind, quirks=(quirk,) if quirk is not None else ())
    return found if is_healthy(found) else None


def _quirk(draw: np.random.Generator, name: str, base: Scenario) -> Fault | None:
    if name == "jitter":
        return Fault("quirk.jitter", float(draw.uniform(0.05, 0.1)))
    if name == "first_step":
        return Fault("quirk.first_step", float(draw.uniform(0.03, 0.08)))
    if name == "slow_clock":
        return Fault("quirk.slow_clock", float(draw.uniform(0.008, 0.018)), some_ranks(draw, base))
    if name == "loader":
        return Fault("quirk.loader", 0.017 * base.model.unit_us * base.model.layers * 14.0)
    if name == "recompute":  # nearly full, or not known
        return Fault("quirk.recompute", 1.0, (), {"every": 1, "memory": 0.88, "kept": float(draw.uniform(0.7, 0.9))})
    if name == "gc":
        return Fault(
            "quirk.gc", float(draw.uniform(200.0, 500.0)), (int(draw.integers(base.cluster.world)),), {"chance": 0.5}
        )
    return None
