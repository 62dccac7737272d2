"""The label of a run: what is true of it, with every number from the simulation or from simulating it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.oracle.answers import (
    ACCEPTABLE_IDS,
    BOUNDS,
    SMALL_SHARE,
    TOLERATED,
    culprits,
    decoys,
    tolerated_by_ledger,
)
from benchmarks.oracle.faults import build
from benchmarks.oracle.groups import layout
from benchmarks.oracle.interleaved import CHUNKS
from benchmarks.oracle.ledger import ledger
from benchmarks.oracle.mess.truth import messy_truth
from benchmarks.oracle.rarer_faults import FINDINGS, FIXES
from benchmarks.oracle.simulate import Run, step_time
from benchmarks.oracle.spec import Fault, Scenario

WORKER_SWEEP = (1, 2, 4, 8, 16)
BUCKET_SWEEP = (5, 10, 25, 50, 100)
MICROBATCH_SWEEP = (2, 4, 8, 16, 32)


def step_without(scenario: Scenario, removed: frozenset[int]) -> float:
    """Mean step time with the faults at the indices `removed` remedied."""
    return step_time(scenario, build(scenario, removed))


def sweep(scenario: Scenario, fault: Fault) -> dict[str, dict[str, float]]:
    """True step time at other settings of the knob a fault is about."""
    knobs: dict[str, tuple[str, tuple[int, ...]]] = {
        "input.starved": ("num_workers", WORKER_SWEEP),
        "comm.latency_bound": ("bucket_cap_mb", BUCKET_SWEEP),
        "comm.no_overlap": ("bucket_cap_mb", BUCKET_SWEEP),
        "pipeline.bubble": ("microbatches", MICROBATCH_SWEEP),
    }
    if fault.id not in knobs:
        return {}
    knob, values = knobs[fault.id]
    if knob == "microbatches":
        values = tuple(v for v in values if scenario.parallel.pp <= v <= 8 * scenario.parallel.pp)
    times = {str(v): step_time(scenario, build(scenario, change={knob: float(v)})) for v in values}
    return {knob: {key: round(us, 2) for key, us in times.items()}}


def alternatives(scenario: Scenario, index: int) -> list[tuple[str, float]]:
    """Other defensible fixes of a fault: (change, step time)."""
    fault = scenario.faults[index]
    result: list[tuple[str, float]] = []
    if fault.id in ("comm.bandwidth_bound", "comm.sharding"):
        result.append(("communication takes no time", step_time(scenario, build(scenario, comm_free=True))))
    if fault.id == "comm.bandwidth_bound":
        result.append(("a third less volume", _with_bytes(scenario, 2 / 3)))
    if fault.id == "comm.sharding":
        other = "hsdp" if fault.detail.get("remedy") != "hsdp" else "reshard"
        if other == "reshard" or len(set(scenario.cluster.hosts)) > 1:
            changed = replace(fault, detail={**fault.detail, "remedy": other})
            faults = tuple(changed if i == index else f for i, f in enumerate(scenario.faults))
            result.append((other, step_without(replace(scenario, faults=faults), frozenset([index]))))
    if fault.id == "pipeline.bubble":
        doubled = 2 * int(fault.strength)
        world = build(scenario, change={"microbatches": float(doubled)})
        result.append((f"{doubled} microbatches", step_time(scenario, world)))
    if fault.id == "host.launch_bound":
        for scale in (0.5, 0.1):
            world = build(scenario)
            world.host_scale = [s * scale for s in world.host_scale]
            result.append((f"operators cost {scale:.0%} on the host", step_time(scenario, world)))
    if fault.id == "compute.precision":
        for factor in (0.35, 0.6):
            world = build(scenario)
            world.fp32_slowdown *= factor
            result.append((f"matmuls take {factor:.0%}", step_time(scenario, world)))
    if fault.id == "compute.unfused_optimizer":
        world = build(scenario)
        world.set_model(optimizer="foreach")
        result.append(("foreach", step_time(scenario, world)))
    return result


def _with_bytes(scenario: Scenario, share: float) -> float:
    world = build(scenario)
    world.bytes_scale *= share
    return step_time(scenario, world)


def fault_label(run: Run, index: int, after: float) -> dict[str, Any]:
    """The label of one fault; `after`: the step (us) with it removed and the others staying."""
    scenario, step = run.scenario, run.step_us()
    fault = scenario.faults[index]
    options = [("fault removed or recommended setting", after), *alternatives(scenario, index)]
    gains = [step - us for _, us in options]
    ranks, accepted = culprits(run, fault)
    return {
        "id": FINDINGS.get(fault.id, fault.id),
        "acceptable_ids": acceptable_ids(scenario, fault),
        "culprit_ranks": ranks,
        "acceptable_culprits": accepted,
        "magnitude": round(fault.strength, 4),
        "recoverable_us": round(step - after, 2),
        "recoverable_range_us": [round(min(gains), 2), round(max(gains), 2)],
        "share": round((step - after) / step, 4),
        "counterfactual_step_us": round(after, 2),
        "counterfactuals": [
            {"change": change, "step_us": round(us, 2), "recoverable_us": round(step - us, 2)} for change, us in options
        ],
        "settings": {k: v for k, v in fault.detail.items() if "bucket" in k or "workers" in k or "microbatches" in k},
        "sweep": sweep(scenario, fault),
        "fix_words": list(FIXES.get(fault.id, ())),
        "note": "",
    }


def acceptable_ids(scenario: Scenario, fault: Fault) -> list[str]:
    """Ids that count as this fault, the best first. A slow link is not told from a slow network inside one group."""
    ids = list(ACCEPTABLE_IDS.get(fault.id, (fault.id,)))
    if fault.id == "comm.slow_link" and scenario.parallel.kind in ("ddp", "fsdp"):
        ids.append("comm.bandwidth_bound")
    spared = fault.detail.get("mode") == "matmul" and not scenario.format.shapes
    if fault.id == "straggler.compute" and scenario.parallel.kind == "pp" and scenario.parallel.dp == 1 and spared:
        # The rank is the stage, and matrix products that take longer without their shapes may be larger ones.
        ids.append("pipeline.imbalance")
    return ids


def bounds(run: Run, faults: list[dict[str, Any]]) -> list[str]:
    """Acceptable values of `verdict.bound`."""
    if not faults:
        return ["compute", "pipeline"] if run.world.parallel.pp > 1 else ["compute"]
    found = {b for fault in faults for i in fault["acceptable_ids"] for b in BOUNDS.get(i, ())}
    if max(fault["share"] for fault in faults) < SMALL_SHARE:
        found.add("compute")
    if run.world.parallel.pp > 1:
        found.add("pipeline")
    return sorted(found)


def pipeline(run: Run) -> dict[str, Any] | None:
    """The pipeline: the ranks of each stage, microbatches per step, chunks of layers that each rank holds."""
    parallel = run.world.parallel
    if parallel.pp < 2:
        return None
    stages: list[list[int]] = [[] for _ in range(parallel.pp)]
    for rank in range(run.world.size):
        stages[layout(parallel, run.world.size, rank).stage].append(rank)
    chunks = CHUNKS if parallel.schedule == "interleaved" else 1
    return {
        "stages": stages,
        "microbatches": parallel.microbatches,
        "chunks": chunks,
        "schedule": parallel.schedule,
    }


def label(run: Run) -> dict[str, Any]:
    """The whole label but for `events` and `bytes`, which the writer knows."""
    scenario, step = run.scenario, run.step_us()
    book = ledger(run)
    without = [step_without(scenario, frozenset([i])) for i in range(len(scenario.faults))]
    faults = [fault_label(run, i, after) for i, after in enumerate(without)]
    faults_ids = [i for fault in faults for i in fault["acceptable_ids"]]
    everything = frozenset(range(len(scenario.faults)))
    healthy = step_without(scenario, everything) if len(faults) > 1 else without[0] if faults else step
    comm_free = step_time(scenario, build(scenario, comm_free=True))
    tolerated = {i for fault in scenario.faults for i in TOLERATED.get(fault.id, ())}
    tolerated |= tolerated_by_ledger(run, book["job"], comm_free)
    clocks, hosts = scenario.cluster.clocks, scenario.cluster.hosts
    found = {
        "schema": "ddprof.label/1",
        "scenario": scenario.name,
        "clean": not faults,
        "note": scenario.note,
        "parallelism": scenario.parallel.kind,
        "world_size": scenario.cluster.world,
        "device": "cuda",
        "steps": scenario.steps,
        "hosts": {str(rank): host for rank, host in enumerate(hosts)},
        "acceptable_finding_ids": list(dict.fromkeys(faults_ids)),
        "faults": faults,
        "tolerated_ids": sorted(tolerated - set(faults_ids)),
        "decoys": decoys(run, book["job"], comm_free),
        "expected_bound": bounds(run, faults),
        "step_us": round(step, 2),
        "per_step_us": [round(us, 2) for us in run.per_step_us()],
        "counterfactual_step_us": round(healthy, 2),
        "recoverable_us": round(step - healthy, 2),
        "comm_free_step_us": round(comm_free, 2),
        "ledger": rounded(book),
        "clock": {
            "reference": hosts[0],
            "hosts": {h: {"offset_us": clocks[h][0], "drift_ppm": clocks[h][1]} for h in dict.fromkeys(hosts)},
        },
        "missing_ranks": list(scenario.missing_ranks),
        "health": [f"rank {rank} has no file" for rank in scenario.missing_ranks],
        "format": {
            "layout": scenario.format.layout,
            "naming": scenario.format.naming,
            "seq": scenario.format.seq,
            "collective_args": scenario.format.collective_args,
            "names": scenario.format.names,
            "time": scenario.format.time,
            "step_marks": scenario.format.step_marks,
            "distributed_info": scenario.format.distributed_info,
            "vendor": scenario.cluster.vendor,
            "shapes": scenario.format.shapes,
            "stacks": scenario.format.stacks,
            "memory": scenario.format.memory,
        },
        "pipeline": pipeline(run),
        "generator": {"kind": scenario.kind, "seed": scenario.seed},
    }
    return found | messy_truth(run, found)


def rounded(value: Any) -> Any:
    """Numbers in nested dictionaries rounded to 0.01."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return round(value, 2) if isinstance(value, float) else value
