"""Small Kineto files by hand, one event after another: what the trace generator does not draw."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labelled_runs import run_of

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.facts.model import RankFacts
from ddprof.readers import discover, read


@dataclass
class Script:
    """One rank's events; times in microseconds. `now_us`: the host's time; `free_us`: when the device is free."""

    events: list[dict[str, Any]] = field(default_factory=list)
    now_us: float = 1_000.0
    free_us: float = 0.0
    launches: int = 0

    def host(self, name: str, dur_us: float, cat: str = "cpu_op", **args: Any) -> None:
        """A call of the host, which then goes on."""
        self.add(name, cat, self.now_us, dur_us, 1, args)
        self.now_us += dur_us

    def idle(self, dur_us: float) -> None:
        """Time of which nothing is recorded."""
        self.now_us += dur_us

    def launch(
        self, name: str = "kernel", dur_us: float = 5.0, call_us: float = 4.0, op: str = "aten::mul", times: int = 1
    ) -> None:
        """An operator that launches one kernel, 10 us beside the launch call; again and again."""
        for _ in range(times):
            ids, begin, call = self._next_ids(), self.now_us, self.now_us + 5
            self.add(op, "cpu_op", begin, 10 + call_us, 1, {"External id": self.launches})
            self.add("cudaLaunchKernel", "cuda_runtime", call, call_us, 1, ids)
            self._run(name, "kernel", max(self.free_us, call + call_us + 1), dur_us, ids)
            self.now_us = begin + 10 + call_us

    def copy(self, size_bytes: int, dur_us: float = 10.0) -> None:
        """A batch copied to the device, asynchronously."""
        self._copy("Memcpy HtoD (Pinned -> Device)", size_bytes, dur_us, self.now_us + 4)

    def blocking_copy(self, name: str, size_bytes: int, dur_us: float = 10.0, early_us: float = 10.0) -> None:
        """A copy of pageable memory, whose call returns so long before its end."""
        self._copy(name, size_bytes, dur_us, max(self.free_us, self.now_us + 5) + dur_us - early_us)

    def _copy(self, name: str, size_bytes: int, dur_us: float, returns_us: float) -> None:
        ids = self._next_ids()
        self.add("cudaMemcpyAsync", "cuda_runtime", self.now_us, returns_us - self.now_us, 1, ids)
        self._run(name, "gpu_memcpy", max(self.free_us, self.now_us + 5), dur_us, {**ids, "bytes": size_bytes})
        self.now_us = returns_us

    def copy_pageable(self, size_bytes: int, dur_us: float, to_host: bool = False) -> None:
        """A copy between the device and pageable memory: the host waits for it."""
        ids, start = self._next_ids(), max(self.free_us, self.now_us + 5)
        took_us = start + dur_us - self.now_us
        self.add("aten::copy_", "cpu_op", self.now_us, took_us + 3, 1, {"External id": self.launches})
        self.add("cudaMemcpyAsync", "cuda_runtime", self.now_us + 1, took_us + 1, 1, ids)
        name = "Memcpy DtoH (Device -> Pageable)" if to_host else "Memcpy HtoD (Pageable -> Device)"
        self._run(name, "gpu_memcpy", start, dur_us, {**ids, "bytes": size_bytes})
        self.now_us = self.free_us + 3

    def reduce(self, until_us: float, elements: int = 2**20, ranks: int = 2, op: str = "allreduce") -> None:
        """An all-reduce, or another collective, launched now, on the stream of the kernels, that ends at `until_us`."""
        ids, start = self._next_ids(), max(self.free_us, self.now_us + 5)
        self.add("cudaLaunchKernelExC", "cuda_runtime", self.now_us, 4.0, 1, ids)
        described = {"Collective name": op, "Process Group Name": "0", "Group size": ranks, "dtype": "Float"}
        sized = {"In msg nelems": elements, "Out msg nelems": elements, "Process Group Ranks": str(list(range(ranks)))}
        name, args = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", {**ids, **described, **sized}
        self._run(name, "kernel", start, until_us - start, args)
        self.now_us += 4

    def _next_ids(self) -> dict[str, Any]:
        """Numbers of a call and of what it launches."""
        self.launches += 1
        return {"correlation": self.launches, "External id": self.launches}

    def _run(self, name: str, cat: str, start_us: float, dur_us: float, args: dict[str, Any]) -> None:
        self.add(name, cat, start_us, dur_us, 7, {**args, "stream": 7, "device": 0})
        self.free_us = start_us + dur_us

    @contextmanager
    def frame(self, name: str, cat: str = "python_function") -> Iterator[None]:
        """A Python frame ("train.py(88): evaluate"), or another range, around whatever is recorded inside."""
        begin = self.now_us
        self.add(name, cat, begin, 0.0, 1, {})
        event = self.events[-1]
        yield
        event["dur"] = self.now_us - begin

    def synchronise(self, name: str = "cudaDeviceSynchronize", least_us: float = 3.0) -> None:
        """The host waits until the device is done."""
        self.host(name, max(least_us, self.free_us - self.now_us), "cuda_runtime", correlation=10**6 + self.launches)

    def steps(self, count: int) -> Iterator[int]:
        """Numbers from 0 on; what is played between one and the next is a step, marked from 1 on."""
        for number in range(count):
            begin_us = self.now_us
            yield number
            self.step(number + 1, begin_us)

    def step(self, number: int, begin_us: float) -> None:
        """A step mark from `begin_us` to now."""
        self.add(f"ProfilerStep#{number}", "user_annotation", begin_us, self.now_us - begin_us, 1, {})

    def add(self, name: str, cat: str, ts: float, dur: float, tid: int, args: dict[str, Any]) -> None:
        where = {"pid": 0 if cat in ("kernel", "gpu_memcpy") else 77, "tid": tid}
        self.events.append({"ph": "X", "cat": cat, "name": name, **where, "ts": ts, "dur": dur, "args": args})

    def facts(self, folder: Path, rank: int = 0, world_size: int = 1, on_cpu: bool = False) -> RankFacts:
        """The facts of the rank whose trace this is; `on_cpu`: it has no device."""
        path = folder / f"rank{rank}.json"
        device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
        info = {"backend": "gloo" if on_cpu else "nccl", "rank": rank, "world_size": world_size}
        head = {"schemaVersion": 1, "deviceProperties": [] if on_cpu else [device], "distributedInfo": info}
        path.write_text(json.dumps({**head, "traceEvents": self.events}))
        ((_, sources),) = discover([str(path)]).runs
        return rank_facts(read(sources[0]))


def meet(scripts: list[Script], transfer_us: float = 50.0) -> None:
    """An all-reduce of all ranks: it ends on all of them a transfer after the last one arrived."""
    last_us = max(max(script.free_us, script.now_us + 5) for script in scripts)
    for script in scripts:
        script.reduce(last_us + transfer_us, ranks=len(scripts))


def in_step(
    ranks: int, steps: int, work: Callable[[Script, int, int], None], wait: str = "cudaDeviceSynchronize"
) -> list[Script]:
    """Ranks that do `work` (script, rank, step), meet in an all-reduce and `wait` ("": do not) for it, step by step."""
    scripts = [Script() for _ in range(ranks)]
    for step in range(steps):
        begins_us = [script.now_us for script in scripts]
        for rank, script in enumerate(scripts):
            work(script, rank, step)
        meet(scripts)
        for script, begin_us in zip(scripts, begins_us, strict=True):
            if wait:
                script.synchronise(wait)
            script.step(step + 1, begin_us)
    return scripts


def loaded(scripts: list[Script], folder: Path) -> LoadedRun:
    return run_of([script.facts(folder, rank, len(scripts)) for rank, script in enumerate(scripts)])


def held_ms(facts: RankFacts, cause: str) -> float:
    """Time of the rank's host in spans of this cause."""
    start, end = facts.spans_of(cause).bounds
    return float((end - start).sum()) / 1e6
