"""One rank's simulated run as the text of a Kineto trace."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from benchmarks.oracle.comm import CommArgs
from benchmarks.oracle.device import DeviceOp
from benchmarks.oracle.header import header, metadata
from benchmarks.oracle.kernel_names import MATMUL_ROLES
from benchmarks.oracle.layers import Operator
from benchmarks.oracle.layout import LAYOUTS, document
from benchmarks.oracle.names import CALLBACK_IDS, names_for
from benchmarks.oracle.rank import BACKWARD, FOREIGN, HostEvent, Rank
from benchmarks.oracle.rows import COMPLETE, FLOW_END, FLOW_START, TEXT, Row
from benchmarks.oracle.simulate import Run
from benchmarks.oracle.stacks import memory_events, python_frames

BASE_NS = 1760000000000000000
START_US = 4458676000000.0  # where the recording begins, after BASE_NS
LEAD_US = 180.0  # the profiler's window opens this long before the first step
AUTOGRAD_TID = 711
NVIDIA_STREAMS = {0: 7, 1: 20, 2: 24, 3: 28, 4: 32, 5: 36, 6: 40}
AMD_STREAMS = {0: 0, 1: 3, 2: 4, 3: 5, 4: 6, 5: 7, 6: 8}


Change = Callable[[Rank, list[Row]], list[Row]]  # what a mess does to a rank's file


def unchanged(rank: Rank, rows: list[Row]) -> list[Row]:
    """The rows as they are."""
    return rows


class TraceWriter:
    """Turns one rank's host events and device operations into text; times become that host's local times."""

    def __init__(self, run: Run, rank: Rank, change: Change = unchanged, begins_us: float = 0.0) -> None:
        self.change = change
        scenario, cluster = run.scenario, run.scenario.cluster
        self.run, self.rank, self.scenario, self.format = run, rank, scenario, scenario.format
        self.names = names_for(scenario, run.world.model.precision, bool(run.world.compiled))
        self.amd = cluster.vendor == "amd"
        self.streams = AMD_STREAMS if self.amd else NVIDIA_STREAMS
        self.pid, self.device = 4000 + 13 * rank.rank, rank.rank % 8
        offset, drift = cluster.clocks[cluster.hosts[rank.rank]]
        first = min(r.marks[0] for r in run.ranks)
        marks, steady = run.ranks[0].marks, run.ranks[0].steady
        middle = (marks[steady[0]] + marks[steady[-1] + 1]) / 2
        base = BASE_NS / 1e3 if self.format.time != "base" else 0.0
        # local = true + offset + drift * (true - middle), kept as thousandths of a microsecond (integers, exact)
        self._shift = round((base + START_US + begins_us + offset - first) * 1000)
        self._drift, self._middle = drift * 1e-6, middle
        self._text = LAYOUTS[self.format.layout]
        self._rows: list[Row] = []
        self._index = 0
        self._begun: set[int] = set()  # calls whose flow has begun

    def nanoseconds(self, true_us: float) -> int:
        """Local time of a true time, in nanoseconds from the file's base."""
        return self._shift + round(1000.0 * (true_us + self._drift * (true_us - self._middle)))

    def times(self, start: float, dur: float) -> str:
        """The `ts` and `dur` fields."""
        begin = self.nanoseconds(start)
        if self.format.time == "integer":
            return f'"ts": {begin // 1000}, "dur": {self.nanoseconds(start + dur) // 1000 - begin // 1000}'
        length = max(0, self.nanoseconds(start + dur) - begin)
        return f'"ts": {begin // 1000}.{begin % 1000:03d}, "dur": {length // 1000}.{length % 1000:03d}'

    def moment(self, at: float) -> str:
        """A `ts` field alone."""
        begin = self.nanoseconds(at)
        fraction = "" if self.format.time == "integer" else f".{begin % 1000:03d}"
        return f'"ts": {begin // 1000}{fraction}'

    def emit(self, category: str, name: str, place: str, span: tuple[float, float], args: str, number: int = 0,
             step: int = -1) -> None:  # fmt: skip
        """Append a complete event; `span` is its start and duration, `number` its correlation id."""
        self._rows.append(Row(COMPLETE, category, name, place, *span, args, number, step))

    def rendered(self, row: Row) -> str:
        """A row as text."""
        if row.phase == TEXT:
            return row.args
        if row.phase == COMPLETE:
            head = f'"ph": "X", "cat": "{row.category}", "name": {quoted(row.name)}, {row.place}'
            return self._text(head, self.times(row.start, row.dur), row.args)
        bind = ', "bp": "e"' if row.phase == FLOW_END else ""
        return (
            f'  {{\n    "ph": "{row.phase}", "id": {row.correlation}, {row.place}, {self.moment(row.start)},\n'
            f'    "cat": "ac2g", "name": "ac2g"{bind}\n  }}'
        )

    def host_place(self, thread: str) -> str:
        """pid and tid of a host thread."""
        return f'"pid": {self.pid}, "tid": {self.pid + (AUTOGRAD_TID if thread == BACKWARD else 0)}'

    def device_place(self, stream: int) -> str:
        """pid and tid of a device stream."""
        return f'"pid": {self.device}, "tid": {self.streams[stream]}'

    def next_index(self) -> int:
        """A fresh `Ev Idx`."""
        self._index += 1
        return self._index

    def host_event(self, event: HostEvent) -> None:
        """A CPU operator, annotation or Python event. Frames are written only where stacks are recorded."""
        if event.category == "python_function" and "): " in event.name and not self.format.stacks:
            return
        parts = (
            [] if event.category == "python_function" else [f'"External id": {event.external},"Record function id": 0']
        )
        parts += self._host_args(event.args)
        parts.append(f'"Ev Idx": {self.next_index()}')
        place = self.host_place(event.thread)
        self.emit(event.category, event.name, place, (event.start, event.dur), ", ".join(parts))

    def _host_args(self, args: Any) -> list[str]:
        if args is None:
            return []
        kind = args[0]
        if kind == "seq":
            sequence = f'"Sequence number": {args[1]}, "Fwd thread id": 0'
            return [sequence] if args[2] is None else [sequence, *self._host_args(args[2])]
        if kind == "dims":
            return (
                [
                    operator_dims(
                        args[1],
                        args[2],
                        self.scenario.model.hidden,
                        self.scenario.model.tokens,
                        self.run.world.model.precision,
                    )
                ]
                if self.format.shapes
                else []
            )
        if kind == "comm_dims":
            return (
                [f'"Input type": ["TensorList"], "Input Dims": [[[{args[1].in_elems}]]]'] if self.format.shapes else []
            )
        return self.comm_args(args[1], True) if self.format.collective_args else []

    def comm_args(self, args: CommArgs, host: bool) -> list[str]:
        """The collective's arguments as `record_param_comms` and the kernel carry them."""
        parts = [collective_text(args)]
        if args.seq is not None and self.format.seq:
            parts.append(f'"Seq": {args.seq}')
        if args.peer is not None:
            parts.append(f'"{args.peer[0]}": {args.peer[1]}')
        if host:
            parts.append(f'"Rank": {self.rank.rank}, "Global rank start": {args.ranks[0]}, "Global rank stride": 1')
        return parts

    def runtime_call(self, event: HostEvent) -> None:
        """A call of the CUDA or HIP runtime."""
        name = self.names.call(event.name)
        number = '"cid": 107' if self.amd else f'"cbid": {CALLBACK_IDS.get(name, 0)}'
        external = f'"External id": {event.external}, ' if event.external else ""
        args = f'{external}{number}, "correlation": {event.args}'
        category = "cuda_driver" if name == "cuLaunchKernel" else "cuda_runtime"
        self.emit(category, name, self.host_place(event.thread), (event.start, event.dur), args, event.args)

    def device_op(self, op: DeviceOp, thread: str) -> None:
        """A kernel or copy, with the flow from its launch."""
        assert op.start is not None and op.end is not None
        place = self.device_place(op.stream)
        dur = op.end - op.start
        number = op.correlation
        # Not for what was launched before the recording, as a host far ahead does, and once for a graph.
        if op.launch_start >= self.rank.marks[0] and number not in self._begun:
            self._begun.add(number)
            self._flow(FLOW_START, op.correlation, self.host_place(thread), op.launch_start)
        self._flow(FLOW_END, op.correlation, place, op.start)
        stream = self.streams[op.stream]
        where = f'"device": {self.device}, "context": 1, "stream": {stream}, "correlation": {op.correlation}'
        if op.cause == "memcpy":
            rate = op.bytes / max(dur, 1e-3) / 1e3
            moved = f'"bytes": {int(op.bytes)}, "memory bandwidth (GB/s)": {rate:.6f}'
            args = f'"External id": {op.external}, {where}, {moved}'
            self.emit("gpu_memcpy", self.names.copy(op.name), place, (op.start, dur), args, number, op.step)
            return
        if op.collective is None:
            launch = GEMM_LAUNCH if op.name.split("/")[0] in MATMUL_ROLES else POINTWISE_LAUNCH
            args = f'"External id": {op.external}, "queued": 0, {where}, {launch}'
            self.emit("kernel", self.names.kernel(op.name), place, (op.start, dur), args, number, op.step)
            return
        # Collectives' arguments are those of the host call, so kernels launched before the recording have none.
        seen = op.launch_start >= self.rank.marks[0]
        extra = ", ".join(self.comm_args(op.args, False)) if self.format.collective_args and seen else ""
        args = f'"External id": {op.external}, "queued": 0, {where}, {COMM_LAUNCH}' + (f", {extra}" if extra else "")
        self.emit("kernel", self.names.collective(op.name), place, (op.start, dur), args, number, op.step)
        if not seen:
            return
        span = (op.start - 0.001, dur + 0.002)
        args = f'"External id": {op.external}'
        self.emit("gpu_user_annotation", op.args.annotation, place, span, args, number, op.step)

    def _flow(self, phase: str, number: int, place: str, at: float) -> None:
        self._rows.append(Row(phase, "ac2g", "ac2g", place, at, 0.0, "", number))

    def steps(self) -> None:
        """The step ranges on host and device."""
        marks = self.rank.marks
        name = "ProfilerStep#{}" if self.format.step_marks else "training_step"
        ops = [op for op in self.rank.ops if op.stream == 0 and op.start is not None]
        for i, (start, end) in enumerate(itertools.pairwise(marks)):
            external = 10_000_000 + i
            label = name.format(self.scenario.first_step + i)
            args = f'"External id": {external},"Record function id": 0, "Ev Idx": {self.next_index()}'
            self.emit("user_annotation", label, self.host_place("main"), (start, end - start - 1.0), args)
            inside = [op for op in ops if start <= op.launch_start < end]
            if inside:
                begin, last = inside[0].start or 0.0, inside[-1].end or 0.0
                args = f'"External id": {external}'
                self.emit("gpu_user_annotation", label, self.device_place(0), (begin, last - begin), args)

    def text(self) -> str:
        """The whole file."""
        rank, begin = self.rank, self.rank.marks[0]
        end = rank.marks[-1]
        threads: dict[int, str] = {}
        for event in rank.events:
            if event.start < begin:
                continue
            if event.category == "cuda_runtime":
                self.runtime_call(event)
                threads[event.args] = event.thread
            else:
                self.host_event(event)
        self.steps()
        self._rows += python_frames(self) if self.format.stacks else []
        self._rows += memory_events(self) if self.format.memory else []
        for op in rank.ops:
            if (op.start or 0.0) >= begin and op.pool != FOREIGN:
                self.device_op(op, threads.get(op.correlation, "main"))
        end = max([end, *(op.end or 0.0 for op in rank.ops)])
        closing = (rank.marks[-1] + 15.0, end - rank.marks[-1] + 3.5)
        self.emit("cuda_runtime", self.names.call("cudaDeviceSynchronize"), self.host_place("main"), closing,
                  f'"cbid": 165, "correlation": {rank.next_correlation()}')  # fmt: skip
        texts = [self.rendered(row) for row in self.change(self.rank, self._rows)]
        texts += metadata(self, begin - LEAD_US, end + 300.0)
        head, tail = header(self.run, rank, BASE_NS)
        return document(head, texts, tail, self.format.layout)


GEMM_LAUNCH = (
    '"registers per thread": 168, "shared memory": 87568, "blocks per SM": 2.0, "warps per SM": 24.0, '
    '"grid": [264, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 31'
)
POINTWISE_LAUNCH = (
    '"registers per thread": 32, "shared memory": 0, "blocks per SM": 15.515152, "warps per SM": 62.060606, '
    '"grid": [2048, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 87'
)
COMM_LAUNCH = (
    '"registers per thread": 96, "shared memory": 87568, "blocks per SM": 0.181818, "warps per SM": 2.909091, '
    '"grid": [24, 1, 1], "block": [512, 1, 1], "est. achieved occupancy %": 0'
)


@lru_cache(maxsize=4096)
def quoted(name: str) -> str:
    """A JSON string."""
    return json.dumps(name)


@lru_cache(maxsize=4096)
def collective_text(args: CommArgs) -> str:
    """The arguments every member of a call shares."""
    ranks = json.dumps(list(args.ranks))
    return (
        f'"Collective name": "{args.collective}", '
        f'"In msg nelems": {args.in_elems}, "Out msg nelems": {args.out_elems}, '
        f'"Group size": {len(args.ranks)}, "dtype": "{args.dtype}", "In split size": "[]", "Out split size": "[]", '
        f'"Process Group Name": "{args.group_name}", "Process Group Description": "{args.group_desc}", '
        f'"Process Group Ranks": "{ranks}"'
    )


@lru_cache(maxsize=4096)
def operator_dims(operator: Operator, scale: float, hidden: int, tokens: int, precision: str) -> str:
    """`Input Dims` and types as `record_shapes` writes them; rows follow the amount of work."""
    rows = max(1, round(tokens * scale))
    dtype = "float" if precision == "fp32" else "c10::BFloat16"
    if operator.dims is None:
        dims, types = [[rows, hidden], [rows, hidden], []], [dtype, dtype, "Scalar"]
    else:
        m, k, n = (rows if d == 0 else d * hidden for d in operator.dims)
        dims, types = [[m, k], [k, n]], [dtype, dtype]
        if operator.path[-1] == "aten::addmm":
            dims, types = [[n], *dims, [], []], [dtype, *types, "Scalar", "Scalar"]
    inputs = ["" if dim else "1" for dim in dims]
    strides = [[*dim[1:], 1] if dim else [] for dim in dims]
    return (
        f'"Concrete Inputs": {json.dumps(inputs)}, "Input type": {json.dumps(types)}, '
        f'"Input Strides": {json.dumps(strides)}, "Input Dims": {json.dumps(dims)}'
    )
