"""Writes big multi-rank Kineto traces in Kineto's own text layout, for speed and memory measurements.

    python benchmarks/generate_traces.py OUT --ranks 8 --events 250000 --layers 40 --stack

A sharded (FSDP) transformer: each layer gathers its parameters before its forward pass and scatters its gradients after
its backward pass, all ranks in lockstep. One rank (`--slow-rank`) computes slower, so every collective waits for it.
The mix of events, about 340 bytes each, is that of real traces (see `benchmarks/README.md`). What is true of the run is
written to OUT.truth.json, beside the folder and never inside it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

BASE_TIME_NS = 1_760_000_000_000_000_000
START_US = 4_458_676_000_000.0
LISTED_RANKS = 30  # PyTorch writes no more members of a group than these (torch/csrc/profiler/util.cpp)
OP_US = 42.0  # one kernel of the healthy ranks
OPS_PER_COLLECTIVE = 20
TRANSFER_US = 180.0  # of a collective once everybody has arrived
WORLD_GROUP = "0"

_X = (
    '\n  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
    '    "ts": {ts:.3f}, "dur": {dur:.3f},\n'
)
_NATIVE = "void at::native::"
_OPS = (  # outer operator, inner operator, kernel
    ("aten::linear", "aten::addmm", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"),
    (
        "aten::layer_norm",
        "aten::native_layer_norm",
        _NATIVE + "(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)",
    ),
    ("aten::gelu", "aten::gelu", _NATIVE + "vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)"),
    (
        "aten::scaled_dot_product_attention",
        "aten::_flash_attention_forward",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)",
    ),
    ("aten::add_", "aten::add_", _NATIVE + "vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"),
)
_SHAPES = (
    '"Concrete Inputs": ["", "", "", "1", "1"], '
    '"Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"], '
    '"Input Strides": [[1], [4096, 1], [1, 4096], [], []], '
    '"Input Dims": [[4096], [8192, 4096], [4096, 4096], [], []], '
)
_FILES = (
    "torch/nn/modules/module.py(1747): _call_impl",
    "torch/nn/modules/linear.py(125): forward",
    "model.py(88): forward",
)


@dataclass
class Schedule:
    """When each collective of the job ends, for all ranks: the lockstep that couples them."""

    compute_us: list[list[float]]  # [collective][rank] device time before it
    end_us: list[float] = field(default_factory=list)


def schedule(ranks: int, collectives: int, slow_rank: int, slowdown: float, seed: int) -> Schedule:
    """Draw the compute time before every collective and play the rendezvous.

    A collective ends when its last member came.
    """
    draw = random.Random(seed)
    plan = Schedule([])
    now = START_US + 2000.0
    for _ in range(collectives):
        compute = [
            OPS_PER_COLLECTIVE * OP_US * draw.uniform(0.97, 1.03) * (slowdown if r == slow_rank else 1.0)
            for r in range(ranks)
        ]
        plan.compute_us.append(compute)
        now += max(compute) + TRANSFER_US
        plan.end_us.append(now)
    return plan


class RankWriter:
    """Writes one rank's events; counts them so that the requested number is met."""

    def __init__(self, rank: int, ranks: int, stack: bool) -> None:
        self.rank, self.ranks, self.stack = rank, ranks, stack
        listed = ", ".join(map(str, range(min(ranks, LISTED_RANKS))))
        self.members = f"[{listed}, ...]" if ranks > LISTED_RANKS else f"[{listed}]"
        self.pid, self.device = 4000 + 13 * rank, rank % 8
        self.events = 0
        self.correlation = 1000
        self.external = 0

    def _event(self, cat: str, name: str, pid: int, tid: int, ts: float, dur: float, args: str) -> str:
        self.events += 1
        return (
            _X.format(cat=cat, name=name, pid=pid, tid=tid, ts=ts, dur=dur)
            + '    "args": {\n      '
            + args
            + "\n    }\n  },"
        )

    def _cpu(self, name: str, ts: float, dur: float, shapes: bool = True) -> str:
        self.external += 1
        args = f'"External id": {self.external},"Record function id": {self.external - 1}, '
        if shapes:
            args += _SHAPES
        return self._event("cpu_op", name, self.pid, self.pid, ts, dur, args + f'"Ev Idx": {self.external}')

    def _python(self, name: str, ts: float, dur: float) -> str:
        args = f'"Python parent id": {self.external}, "Python id": {self.external + 1}, "Ev Idx": {self.events}'
        return self._event("python_function", name, self.pid, self.pid, ts, dur, args)

    def _launch(self, call: str, ts: float, dur: float) -> str:
        self.correlation += 1
        args = f'"External id": {self.external}, "cbid": 211, "correlation": {self.correlation}'
        return self._event("cuda_runtime", call, self.pid, self.pid, ts, dur, args)

    def _flow(self, ph: str, pid: int, tid: int, ts: float) -> str:
        self.events += 1
        bind = ', "bp": "e"' if ph == "f" else ""
        head = f'\n  {{\n    "ph": "{ph}", "id": {self.correlation}, "pid": {pid}, "tid": {tid}, "ts": {ts:.3f},\n'
        return head + f'    "cat": "ac2g", "name": "ac2g"{bind}\n  }},'

    def _kernel(self, name: str, stream: int, ts: float, dur: float, extra: str = "") -> str:
        args = (
            f'"External id": {self.external}, "queued": 0, "device": {self.device}, "context": 1, "stream": {stream}, '
            f'"correlation": {self.correlation}, "registers per thread": 128, "shared memory": 49152, '
            '"blocks per SM": 7.757576, "warps per SM": 31.030304, "grid": [1024, 1, 1], "block": [128, 1, 1], '
            f'"est. achieved occupancy %": 25{extra}'
        )
        return self._event("kernel", name, self.device, stream, ts, dur, args)

    def operation(self, index: int, host: float, device: float, dur: float) -> Iterator[str]:
        """One operator: Python frames, nested operators, the launch with its flow arrows, the kernel."""
        outer, inner, kernel = _OPS[index % len(_OPS)]
        if self.stack:
            yield self._python(_FILES[index % 3], host, 30.0)
            if index % 5 < 3:
                yield self._python(_FILES[(index + 1) % 3], host + 1.0, 28.0)
        yield self._cpu(outer, host + 2.0, 26.0)
        yield self._cpu(inner, host + 4.0, 22.0)
        if index % 5 < 3:
            yield self._cpu("aten::empty", host + 5.0, 4.0, shapes=index % 2 == 0)
        yield self._launch("cudaLaunchKernel", host + 12.0, 6.0)
        yield self._flow("s", self.pid, self.pid, host + 12.0)
        yield self._kernel(kernel, 7, device, dur)
        yield self._flow("f", self.device, 7, device)

    def collective(self, seq: int, host: float, start: float, end: float) -> Iterator[str]:
        """A collective: its operator with arguments, the launch, and the kernel on the communication stream."""
        name, kernel = (("_allgather_base", "AllGather"), ("_reduce_scatter_base", "ReduceScatter"))[seq % 2]
        nelems = 33_570_816
        inward, outward = (nelems // self.ranks, nelems) if seq % 2 == 0 else (nelems, nelems // self.ranks)
        args = (
            f'"Collective name": "{name}", "In msg nelems": {inward}, "Out msg nelems": {outward}, '
            f'"Group size": {self.ranks}, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", '
            f'"Process Group Name": "{WORLD_GROUP}", "Process Group Description": "default_pg", '
            f'"Process Group Ranks": "{self.members}", "Global rank start": 0, "Global rank stride": 1, "Seq": {seq}'
        )
        self.external += 1
        head = f'"External id": {self.external},"Record function id": {self.external - 1}, '
        yield self._event("cpu_op", "record_param_comms", self.pid, self.pid, host, 18.0, head + args)
        yield self._launch("cudaLaunchKernelExC", host + 5.0, 7.0)
        yield self._flow("s", self.pid, self.pid, host + 5.0)
        yield self._kernel(
            f"ncclDevKernel_{kernel}_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, start, end - start, ", " + args
        )
        yield self._flow("f", self.device, 20, start)
        yield self._launch("cudaEventRecord", host + 14.0, 1.0)

    def header(self) -> str:
        """Everything before the first event."""
        config = [
            {
                "pg_name": WORLD_GROUP,
                "pg_desc": "default_pg",
                "backend_config": "cuda:nccl",
                "pg_size": self.ranks,
                "ranks": [],  # as PyTorch writes the group of all ranks
            }
        ]
        info = {"backend": "nccl", "rank": self.rank, "world_size": self.ranks, "pg_count": 1, "pg_config": config}
        memory = '"totalGlobalMem": 84942979072, "computeMajor": 9, "computeMinor": 0, "numSms": 132'
        gpu = '"name": "NVIDIA H100 80GB HBM3", ' + memory
        devices = ",\n".join(f'    {{"id": {i}, {gpu}}}' for i in range(8))
        return (
            f'\n{{\n  "schemaVersion": 1,\n  "deviceProperties": [\n{devices}\n  ],\n  "cupti_version": 24,\n'
            f'  "distributedInfo": {json.dumps(info)},\n  "record_shapes": 1,\n  "traceEvents": ['
        )

    def footer(self) -> str:
        """The last event (no comma after it) and the fields Kineto writes at the end."""
        self.events += 1
        end = '\n  {\n    "name": "Record Window End", "ph": "i", "s": "g",\n    "pid": "", "tid": "",'
        end += f' "ts": {START_US:.3f}\n  }}\n  ],\n  "traceName": "rank{self.rank}.json",\n'
        return end + f'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_TIME_NS}\n}}\n'

    def write(self, sink: IO[str], plan: Schedule, events: int, layers: int) -> None:
        """The whole file: header, steps of `2 * layers` collectives until `events` is reached, footer."""
        sink.write(self.header())
        per_step, step_start = 2 * layers, START_US + 2000.0
        previous = START_US + 2000.0
        for seq, (compute, end) in enumerate(zip(plan.compute_us, plan.end_us, strict=True)):
            mine = compute[self.rank]
            host = previous - 1500.0
            parts = []
            for i in range(OPS_PER_COLLECTIVE):
                parts.extend(
                    self.operation(
                        seq * OPS_PER_COLLECTIVE + i,
                        host + 35.0 * i,
                        previous + mine / OPS_PER_COLLECTIVE * i,
                        mine / OPS_PER_COLLECTIVE,
                    )
                )
            parts.extend(self.collective(seq, host + 40.0 * OPS_PER_COLLECTIVE, previous + mine, end))
            if (seq + 1) % per_step == 0:
                step = (seq + 1) // per_step
                name = f"ProfilerStep#{step}"
                self.external += 1
                parts.append(
                    self._event(
                        "user_annotation",
                        name,
                        self.pid,
                        self.pid,
                        step_start - 1500.0,
                        end - step_start,
                        f'"External id": {self.external}',
                    )
                )
                step_start = end
            sink.write("".join(parts))
            previous = end
            if self.events >= events:
                break
        sink.write(self.footer())


def main() -> None:
    """Parse the command line and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--events", type=int, default=250_000, help="per rank")
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--stack", action="store_true", help="with python_function frames, a fifth of the events")
    parser.add_argument("--slow-rank", type=int, default=5)
    parser.add_argument("--slowdown", type=float, default=1.08)
    parser.add_argument("--plain", action="store_true", help="JSON instead of JSON.gz")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    per_collective = 8 * OPS_PER_COLLECTIVE
    plan = schedule(
        options.ranks, options.events // per_collective + 1, options.slow_rank, options.slowdown, options.seed
    )
    for rank in range(options.ranks):
        writer = RankWriter(rank, options.ranks, options.stack)
        path = options.out / f"rank{rank}.json"
        with path.open("w") if options.plain else gzip.open(f"{path}.gz", "wt", compresslevel=6) as sink:
            writer.write(sink, plan, options.events, options.layers)
        print(f"{path.name}: {writer.events} events")
    truth = {
        "slow_rank": options.slow_rank,
        "slowdown": options.slowdown,
        "collectives": len(plan.end_us),
        "ranks": options.ranks,
    }
    options.out.with_name(options.out.name + ".truth.json").write_text(json.dumps(truth, indent=2) + "\n")


if __name__ == "__main__":
    main()
