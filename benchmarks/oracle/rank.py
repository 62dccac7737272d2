"""One rank: the host threads that issue work, and everything that will be written down about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.oracle.device import Collective, DeviceOp, Devices
from benchmarks.oracle.draws import factors
from benchmarks.oracle.groups import Group, Layout, layout, transfer_us
from benchmarks.oracle.world import World

COMPUTE = 0  # logical streams; the writer gives them numbers
Program = Iterator[DeviceOp]  # a rank's program yields the operation whose end its host waits for
SYNC_RETURN_US = 5.0  # end of the device work -> the blocking call returns
MAIN, BACKWARD = "main", "backward"
FOREIGN = "foreign"  # the pool of work that no file shows
LEVEL_US = 0.9  # an operator calls the next inner one after this long


class HostEvent(NamedTuple):
    """A finished host event; `external` ties it to the device work launched in it; `args` are for the writer."""

    category: str
    name: str
    start: float
    dur: float
    thread: str
    external: int
    args: Any


class Occupant(NamedTuple):
    """Host activity other than issuing work: a ledger cause and its interval."""

    start: float
    end: float
    cause: str


@dataclass(frozen=True)
class Kernel:
    """A device operation to launch: name, duration, and the pool it belongs to."""

    name: str
    dur: float
    pool: str = "body"


class Meeting:
    """Collectives shared by the ranks of a job: the n-th call of a group meets the n-th call of its peers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._met: dict[tuple[str, int], Collective] = {}

    def join(self, channel: str, index: int, kind: str, size_bytes: float, ranks: tuple[int, ...]) -> Collective:
        """The rendezvous of the index-th call on `channel` ("group" or "group:low-high" for a pair)."""
        key = (channel, index)
        found = self._met.get(key)
        if found is None:
            noise = factors(self._world.seed, "comm:" + channel, len(ranks), 0, self._world.noise.comm)[index % 512]
            cost = transfer_us(self._world, kind, size_bytes, ranks) * noise
            tails = {r: _tail(self._world.seed, channel, index, r) if cost > 0 else 0.0 for r in ranks}
            found = self._met[key] = Collective(len(ranks), cost, tails)
        return found


def _tail(seed: int, channel: str, index: int, rank: int) -> float:
    return abs(factors(seed, "tail:" + channel, rank, 0, 1.0)[index % 512] - 1.0) * 1.0


class Rank:
    """The state of one rank while its program runs. All times are true microseconds."""

    def __init__(
        self, rank: int, world: World, devices: Devices, meeting: Meeting, start_us: float, recording: bool = True
    ) -> None:
        self.recording = recording  # False: only times matter, host events are not kept
        self.rank, self.world, self.devices, self.meeting = rank, world, devices, meeting
        self.layout: Layout = layout(world.parallel, world.size, rank, world.model.arch in ("moe", "dlrm"))
        self.t = start_us
        self.thread = MAIN
        self.events: list[HostEvent] = []
        self.ops: list[DeviceOp] = []
        self.occupants: list[Occupant] = []
        self.marks: list[float] = []  # boundaries of the recorded steps
        self.steady: list[int] = []  # which of them are like all others; the label is about these
        self.step = 0
        self.kernel_noise: tuple[float, ...] = ()
        self.host_noise: tuple[float, ...] = ()
        self.speed = 1.0
        self.share_of_work = 1.0  # this step's batch relative to the mean
        self.late_batch_us = 0.0  # how late the next batch of a step that occurs once is
        self.recomputed: list[tuple[float, float]] = []  # when its host launched forward operators again
        self.launch_holds: dict[str, list[float]] = {}  # thread -> how long its next launch calls last besides
        self.sequence = 0  # autograd sequence number
        self._kernels = self._operators = 0
        self._call_stalls: dict[int, float] = {}
        self._external = 0
        self._correlation = 1000 + rank
        self._calls: dict[str, int] = {}
        self._last: dict[int, DeviceOp] = {}
        self._pending: list[DeviceOp] = []  # what the next compute operation must wait for
        self._queue_full_until = 0.0
        self._launched_before: list[int] = []  # operations launched before each step so far

    def begin_step(self, step: int) -> None:
        """Start the noise of a step."""
        world = self.world
        self.step = step
        self._launched_before.append(len(self.ops))
        self.kernel_noise = factors(world.seed, "kernel", self.rank, step, world.noise.kernel)
        self.host_noise = factors(world.seed, "host", self.rank, step, world.noise.host)
        self.speed = world.rank_speed(self.rank, step)
        self.share_of_work = world.work(self.rank, step)
        self._kernels = self._operators = 0
        self._call_stalls = dict(world.call_stalls.get((self.rank, step), ()))

    def next_external(self) -> int:
        """A fresh external id."""
        self._external += 1
        return self._external

    def next_correlation(self) -> int:
        """A fresh correlation id (three apart, as CUPTI numbers them)."""
        self._correlation += 3
        return self._correlation

    def record(self, category: str, name: str, start: float, end: float, args: Any = None) -> int:
        """Note a host event that is over; returns its external id."""
        external = self.next_external()
        if self.recording:
            self.events.append(HostEvent(category, name, start, end - start, self.thread, external, args))
        return external

    def record_as(self, external: int, category: str, name: str, start: float, end: float) -> None:
        """Note a host event whose external id was taken before it began."""
        if self.recording:
            self.events.append(HostEvent(category, name, start, end - start, self.thread, external, None))

    def runtime(self, name: str, start: float, dur: float, external: int, correlation: int = 0) -> int:
        """Note a call of the CUDA or HIP runtime; returns its correlation id."""
        number = correlation or self.next_correlation()
        if self.recording:
            self.events.append(HostEvent("cuda_runtime", name, start, dur, self.thread, external, number))
        return number

    def busy(self, us: float) -> None:
        """Host time nothing is recorded for (Python)."""
        self.t += us * self.world.host_scale[self.rank]

    def occupy(self, category: str, name: str, us: float, cause: str) -> None:
        """Host time under a named event that explains idle device time."""
        start = self.t
        self.t += us
        self.record(category, name, start, self.t)
        self.occupants.append(Occupant(start, self.t, cause))

    def kernel_us(self, weight: float, scale: float = 1.0) -> float:
        """Duration of the next kernel: `weight` model units, with this rank's speed and noise."""
        noise = self.kernel_noise[self._kernels % 512]
        self._kernels += 1
        stage = self.world.stage_scale[self.layout.stage]
        return max(1.5, weight * self.world.model.unit_us * noise * self.speed * stage * scale)

    def operator_us(self, weight: float = 1.0) -> float:
        """Host time of the next operator."""
        noise = self.host_noise[self._operators % 512]
        self._operators += 1
        return weight * self.world.model.host_op_us * noise * self.world.host_scale[self.rank]

    def operator(self, path: tuple[str, ...], kernels: tuple[Kernel, ...], cost: float, args: Any = None) -> None:
        """Run nested operators (outermost first); the innermost launches `kernels`. `cost` is host time in all."""
        start = self.t
        cost += self._call_stalls.get(self._operators, 0.0)
        held = self._held(start + cost * 0.4) if kernels else 0.0
        level = min(LEVEL_US, 0.1 * cost)
        external = 0
        for depth, name in enumerate(path if self.recording else ()):
            inner_start = start + depth * level
            end = start + cost + held - 0.25 * depth
            given = args if depth == len(path) - 1 else None
            if depth == 0:
                given = ("seq", self.sequence, args if len(path) == 1 else None)
            external = self.record("cpu_op", name, inner_start, end, given)
        share = cost * 0.5 / max(1, len(kernels))
        for i, kernel in enumerate(kernels):
            call = start + cost * 0.4 + i * share + (held if i else 0.0)
            self.launch(kernel, call, min(0.25 * cost, 0.8 * share) + (0.0 if i else held), external)
        self.t = start + cost + held

    def _held(self, call: float) -> float:
        """Extra time of the next launch call: until the queue has room, or a module is loaded."""
        holds = self.launch_holds.get(self.thread)
        return max(0.0, self._queue_full_until - call) + (holds.pop() if holds else 0.0)

    def graph(self, kernels: list[Kernel], cost: float) -> None:
        """Replay a captured graph: one call launches all its kernels, which share its correlation id."""
        start = self.t
        held = self._held(start + 0.2 * cost)
        end = start + cost + held
        number = self.runtime("cudaGraphLaunch", start + 0.2 * cost, 0.7 * cost + held, 0)
        for kernel in kernels:
            op = DeviceOp(self.rank, COMPUTE, "compute", kernel.name, kernel.dur)
            op.pool, op.correlation = kernel.pool, number
            self.submit(op, start + 0.2 * cost, end - 0.1 * cost, 0)
        self.t = end

    def launch(self, kernel: Kernel, call: float, call_us: float, external: int) -> DeviceOp:
        """Launch a compute kernel from a call that starts at `call`."""
        op = DeviceOp(self.rank, COMPUTE, "compute", kernel.name, kernel.dur)
        op.pool = kernel.pool
        op.correlation = self.runtime("launch:" + kernel.name, call, call_us, external)
        self.submit(op, call, call + call_us, external)
        return op

    def submit(self, op: DeviceOp, call: float, call_end: float, external: int) -> None:
        """Hand an operation to the device; compute-stream work also waits for what was asked to be waited for."""
        op.launch_start, op.launch_end, op.external, op.step = call, call_end, external, len(self.marks) - 1
        if op.stream == COMPUTE and self._pending:
            op.deps += tuple(self._pending)
            self._pending.clear()
        self.ops.append(op)
        self._last[op.stream] = op
        self.devices.submit(op)

    def queue_slot(self) -> Program:
        """Wait until the queue of launches has room: the next launch call lasts that long."""
        starts = self._launched_before
        ahead = self.world.queue_steps  # CUDA's queue holds 1,024 launches
        if len(starts) > ahead:
            since_step = len(self.ops) - starts[-1]
            oldest = self.ops[min(starts[-1 - ahead] + since_step, starts[-ahead]) - 1]
            yield oldest
            assert oldest.end is not None
            self._queue_full_until = oldest.end

    def last_on(self, stream: int) -> DeviceOp | None:
        """The operation queued last on a stream."""
        return self._last.get(stream)

    def wait_on_stream(self, op: DeviceOp) -> None:
        """Make the compute stream wait for `op` (the host does not)."""
        self._pending.append(op)
        self.runtime("cudaStreamWaitEvent", self.t + 0.9, 1.1, 0)
        self.t += 2.0

    def calls(self, channel: str) -> int:
        """Number of this rank's calls of `channel`, counting this one."""
        index = self._calls.get(channel, 0)
        self._calls[channel] = index + 1
        return index

    def group(self, role: str) -> Group:
        """This rank's group of a role."""
        return self.layout.groups[role]
