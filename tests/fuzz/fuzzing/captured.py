"""A run folder as `ddprof run` leaves it: traces, sidecars, manifest, records of workers and counters, rings."""

from __future__ import annotations

import json
import struct
from typing import Any

from fuzzing.built import BASE_NS, STEP_US, STEPS, cpu_step, dump, trace
from fuzzing.tree import Tree

FIRST_TRACED = 5  # steps before the trace window
ALL_STEPS = 20
PHASES = {"data_ns": 300_000, "forward_ns": 900_000, "backward_ns": 1_300_000, "optimizer_ns": 300_000}
_RING_HEADER_BYTES = 4096
_RING_CAPACITY = 32
_RING_IDENTITY_AT = 64


def _step_start_ns(index: int) -> int:
    return BASE_NS + (1_000 + (index - FIRST_TRACED) * STEP_US) * 1_000


def step(index: int, rank: int) -> dict[str, Any]:
    """A step as the sidecar has it; nanoseconds."""
    start, data = _step_start_ns(index), PHASES["data_ns"] + rank * 200_000
    profiled = FIRST_TRACED <= index < FIRST_TRACED + STEPS
    times = {"start_ns": start, "end_ns": start + STEP_US * 1_000, **PHASES, "data_ns": data, "collective_ns": 0}
    return {"index": index, **times, "profiled": profiled}


def sidecar(rank: int) -> dict[str, Any]:
    """Every key that the documentation of the run folder names."""
    sampler = {"class": "DistributedSampler", "num_replicas": 2, "rank": rank, "shuffle": True, "sharded": True}
    loader = {"num_workers": 2, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": False}
    loader |= {"batch_size": 8, "drop_last": False, "dataset_length": 512, "batches_per_epoch": 32}
    tensor = {"shape": [8, 16], "dtype": "float32", "fingerprint": 1234 + rank}
    window = {"first_step": FIRST_TRACED, "last_step": FIRST_TRACED + STEPS - 1, "start_ns": _step_start_ns(5)}
    window |= {"end_ns": _step_start_ns(10), "export_pause_ns": 99_000_000, "reason": "planned"}
    ready = [{"name": f"{n}.weight", "size_bytes": 2048, "ready_ns": _step_start_ns(9) + n * 10_000} for n in (2, 0)]
    sync = {"source_line": "train.py:12", "what": "item", "count": 5, "total_ns": 2_000_000, "source": "loss.item()"}
    ping = {"tag": "init", "at_ns": BASE_NS, "rtt_ns": 40_000, "offset_to_rank0_ns": 500 * rank, "method": "store"}
    return {
        **{"schema": "ddprof.run/1", "state": "exit", "rank": rank, "world_size": 2, "local_rank": rank},
        **{"host": "node-a", "pid": 100, "restart": 0, "boot_id": "c5a4834e", "rank_source": "c10d", "backend": "gloo"},
        "device": {"kind": "cpu", "name": "x86_64", "total_memory_bytes": None, "uuid": "GPU-12ab"},
        "versions": {"torch": "2.13.0+cpu", "python": "3.11.7", "ddprof": "0.1.0", "nccl": None},
        "process_groups": [{"name": "0", "desc": "default_pg", "ranks": [0, 1], "backend": "gloo"}],
        "precision": {"autocast": False, "float32_matmul_precision": "highest", "allow_tf32": False},
        "parallelism": ["ddp"],
        "ddp": {"bucket_cap_mb": 25.0, "bucket_sizes_bytes": [2704], "bucket_parameters": [["2.weight", "0.weight"]]},
        "fsdp": {"version": 2, "sharding_strategy": None, "reshard_after_forward": True, "units": 2},
        "optimizer": {"class": "AdamW", "fused": None, "foreach": None, "parameter_groups": 1},
        "parameters": {"count": 676, "size_bytes": 2704, "dtype": "float32", "trainable": 676, "sharded": False},
        "dataloader": {**loader, "sampler": {**sampler, "even": True}},
        "batch": {"tensors": [tensor]},
        "batches": [{"step": n, "batches": 1, "samples": 8, "elements": 128} for n in range(ALL_STEPS)],
        "fetches": [
            {"start_ns": _step_start_ns(n), "dur_ns": 200_000, "cpu_ns": 150_000, "collate_ns": 9_000, "samples": 8}
            for n in range(4)
        ],
        "sample_indices": list(range(rank, 32, 2)),
        "gradient_ready": {"step": 9, "parameters": ready},
        "allocator": {"retries": 0, "device_allocations": 3, "peak_allocated_bytes": 4096},
        "pipeline": {"schedule": "1F1B", "stage_indices": [0], "stages": 1, "microbatches": 4},
        "deepspeed": {"zero_stage": 1},
        "processors": {"usable": 2, "local_ranks": 2},
        "clock_pings": [ping],
        "steps_total": ALL_STEPS,
        "steps": [step(n, rank) for n in range(ALL_STEPS)],
        "windows": [{**window, "trace_path": f"rank{rank}.node-a.100.0.0.pt.trace.json"}],
        "gc": [{"start_ns": _step_start_ns(n) + 9_000, "dur_ns": 1_200_000, "generation": 2} for n in (6, 8)],
        "checkpoints": [{"start_ns": _step_start_ns(7), "dur_ns": 400_000, "what": "torch.save"}],
        "syncs": [sync],
        "skipped_optimizer_steps": 0,
        "overhead": {"bare_step_ns": 2_900_000, "profiled_step_ns": 3_000_000, "own_ns_per_step": 20_000},
        "communication_environment": {"NCCL_DEBUG": "INFO"},
        "nccl": {"version": "2.21.5", "network": "Socket", "transports": {"NET/Socket": 4}},
        "notes": ["no stacks were recorded"],
    }


def manifest() -> dict[str, Any]:
    """The manifest of the run."""
    times = {"step_ns": 3_000_000, **PHASES, "collective_ns": 0, "rest_ns": 100_000}
    gpu = {"index": 0, "uuid": "GPU-12ab", "power_limit_mw": 700_000, "max_sm_clock_mhz": 1_980, "samples": 9}
    gpu |= {"busy_samples": 9, "throttled": {"sw_power_cap": 3}, "sm_clock_mhz": 1_200, "temperature_max_c": 80}
    return {
        **{"schema": "ddprof.run/1", "command": "torchrun train.py", "argv_base64": "W10=", "cwd": "job"},
        **{"host": "node-a", "started_ns": BASE_NS, "ended_ns": BASE_NS + 10**9, "exit_code": 0},
        "options": {"skip": 5, "steps": STEPS, "every": 0, "ranks": "all", "mode": "trace"},
        **{"ranks": [0, 1], "missing_ranks": [], "world_size": 2, "hosts": {"0": "node-a", "1": "node-a"}},
        "overhead": {"bare_step_ns": 2_900_000, "window_frac": 0.03, "own_frac": 0.007},
        "step_times": {"0": times, "1": times, "2": times},
        "disabled": [],
        "triggered": [],
        "gpus": [gpu],
        "topology": {"network": {"eth0": {"speed_mbit_s": 1_000, "numa_node": None}}, "gpus": [], "links": {}},
    }


def ring(rank: int) -> bytes:
    """The steps of a running rank, as `ddprof status` reads them."""
    identity = {"rank": rank, "world_size": 2, "host": "node-a", "pid": 100, "restart": 0, "started_ns": BASE_NS}
    encoded = json.dumps(identity).encode()
    head = bytearray(_RING_HEADER_BYTES)
    struct.pack_into("<8sq", head, 0, b"DDPROFR2", _RING_CAPACITY)
    struct.pack_into("<q", head, _RING_IDENTITY_AT, len(encoded))
    head[_RING_IDENTITY_AT + 8 : _RING_IDENTITY_AT + 8 + len(encoded)] = encoded
    records = b""
    for number in range(_RING_CAPACITY):
        values = step(number, rank)
        fields = [values[name] for name in ("index", "start_ns", "end_ns", *PHASES, "collective_ns")]
        records += struct.pack("<10q", number + 1, *fields, 0)
    return bytes(head) + records


def stacks(rank: int) -> bytes:
    """What was sampled of a rank: every kind of line."""
    frames = [["", "...", 0], ["job/train.py", "<module>", 40], ["job/train.py", "evaluate", 12]]
    frames.append(["lib/torch/x.py", "f", 3])
    start = _step_start_ns(FIRST_TRACED)
    samples = [[n * 500_000, 500_000, 1_000, n // 6, n % 6, 1 + n % 3] for n in range(30)]
    counts = [[1 + n % 3, n % 7, n % 2, 5, 500_000_000, 0] for n in range(12)]
    about = {"from_ns": BASE_NS, "to_ns": start, "steps": [0, 5], "cpu_ns": [[0, 9_000_000], [1, 1_000]]}
    begin = {"schema": "ddprof.stacks/1", "rank": rank, "started_ns": BASE_NS, "path": ["job", "lib"]}
    names = ["data", "forward", "backward", "optimizer", "collective", "rest", "start-up"]
    last = {"at_ns": start, "reason": "signal", "phase": 5, "step": 9, "threads": [[0, 2], [1, 3]]}
    return _lines(
        [
            {"kind": "begin", **begin, "phases": names},
            {"kind": "frames", "from": 0, "frames": frames},
            {"kind": "stacks", "from": 0, "stacks": [[-1, 0], [-1, 1], [1, 2], [2, 3]]},
            {"kind": "threads", "from": 0, "threads": [["MainThread", 100], ["feeds", None]]},
            {"kind": "counts", **about, "counts": counts},
            {"kind": "samples", "at_ns": start, "step": FIRST_TRACED, "period_ns": 500_000, "samples": samples},
            {"kind": "last", **last},
            {"kind": "end", "at_ns": start, "reason": "signal"},
        ]
    )


def calibration() -> bytes:
    """Outcomes of earlier predictions."""
    record: dict[str, Any] = {"schema": "ddprof.calibration/1", "before": "a", "after": "b", "settings": ["compute=2"]}
    record |= {"kinds": ["scale_compute"], "findings": ["input.straggler"], "before_us": 100.0, "predicted_us": 90.0}
    record |= {"low_us": 85.0, "high_us": 95.0, "measured_us": 91.0, "measured_low_us": 90.0, "measured_high_us": 92.0}
    record |= {"compute_us": [50.0, 50.0], "outcome": "inside"}
    return "".join(json.dumps({**record, "at_utc": f"2026-01-0{n}"}) + "\n" for n in (1, 2, 3)).encode()


def _lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def captured() -> Tree:
    """The whole folder of a job of two CPU ranks, of which rank 1's loader is late."""
    tree: dict[str, bytes] = {"run/manifest.json": json.dumps(manifest()).encode()}
    for rank in (0, 1):
        events = [e for n in range(STEPS) for e in cpu_step(n, 10 * n)]
        stem = f"run/rank{rank}.node-a.100.0"
        tree[f"{stem}.0.pt.trace.json"] = trace(rank, events, backend="gloo")
        tree[f"{stem}.sidecar.json"] = json.dumps(sidecar(rank)).encode()
        tree[f"{stem}.0.fr.json"] = json.dumps(dump(rank)).encode()
        fetch = {"dur_ns": 2_000_000, "cpu_ns": 1_900_000, "collate_ns": 50_000, "samples": 8}
        tree[f"{stem}.workers.jsonl"] = _lines(
            [{"worker": n % 2, "start_ns": _step_start_ns(n), **fetch} for n in range(12)]
        )
        tree[f"{stem}.ring"] = ring(rank)
        tree[f"{stem}.stacks.jsonl"] = stacks(rank)
        tree[f"{stem}.worker0.101.stacks.jsonl"] = stacks(rank)
    tree["run/calibration.jsonl"] = tree["home/calibration.jsonl"] = calibration()
    tree["run/control.json"] = b'{"id": 1, "action": "trace", "first_step": 9, "steps": 2, "reason": "x"}'
    tree["run/host.node-a.9.counters.jsonl"] = _lines([{"at_ns": BASE_NS, "cpu": {"load_1m": 1.5}, "gpus": []}] * 3)
    tree["run/nccl.node-a.100.log"] = b"node-a:100 NCCL INFO NET/Socket : Using [0]eth0\n"
    return tree
