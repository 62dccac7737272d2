"""Run the programs of all ranks against their devices: who waits for whom decides every time in the result."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.oracle.device import DeviceOp, Devices
from benchmarks.oracle.draws import generator
from benchmarks.oracle.faults import build
from benchmarks.oracle.loader import BatchQueue, ReadyBatches
from benchmarks.oracle.programs import StepProgram, program_for
from benchmarks.oracle.rank import COMPUTE, FOREIGN, Meeting, Program, Rank
from benchmarks.oracle.spec import Scenario
from benchmarks.oracle.step import device_sync
from benchmarks.oracle.windows import Window, windows
from benchmarks.oracle.world import Step, World

MARK_US = 1.0  # between the end of one step's range and the start of the next
START_SKEW_US = 40.0  # ranks do not start at the same moment
WARMUP_STEPS = 1  # simulated but not recorded, so that the recording begins in the steady state
QUEUE_WARMUP_STEPS = 4  # until a host that never waits has filled the queue of launches


@dataclass
class Run:
    """A finished simulation: the scenario, the world it ran in, and every rank with its true times."""

    scenario: Scenario
    world: World
    ranks: list[Rank]

    def windows(self, rank: Rank) -> list[Window]:
        """When a rank's steady steps were, in true microseconds."""
        return windows(rank)

    def step_us(self) -> float:
        """Mean wall time of a steady step over ranks and steps."""
        walls = [sum(end - begin for begin, end in w) / len(w) for w in map(self.windows, self.ranks)]
        return sum(walls) / len(walls)

    def per_step_us(self) -> list[float]:
        """Wall time of each steady step, mean over ranks."""
        table = [[end - begin for begin, end in self.windows(rank)] for rank in self.ranks]
        return [sum(column) / len(column) for column in zip(*table, strict=True)]

    def marked_us(self) -> float:
        """Mean distance of the host's marks over all recorded steps, those that occur once included."""
        walls = [(rank.marks[-1] - rank.marks[0]) / (len(rank.marks) - 1) for rank in self.ranks]
        return sum(walls) / len(walls)


def simulate(scenario: Scenario, world: World | None = None, recording: bool = True) -> Run:
    """Simulate a scenario, in `world` if given (see `faults.build`), else with all its faults.

    Without `recording` the run has all its times but no host events: it cannot be written.
    """
    given = world if world is not None else build(scenario)
    return Run(scenario, given, _run(given, recording))


def step_time(scenario: Scenario, world: World | None = None) -> float:
    """Mean step time in microseconds of a scenario, in `world` if given."""
    return simulate(scenario, world, recording=False).step_us()


def _run(world: World, recording: bool) -> list[Rank]:
    devices = Devices(world.size, world.noise.contention)
    meeting = Meeting(world)
    skew = generator(world.seed, "start").uniform(0.0, START_SKEW_US, world.size)
    ranks = [Rank(r, world, devices, meeting, float(skew[r]), recording) for r in range(world.size)]
    hosts = [_program(rank) for rank in ranks]
    waiting: list[DeviceOp | None] = [None] * world.size
    for r in range(world.size):
        waiting[r] = _run_host(hosts[r])
    while (ended := devices.step()) is not None:
        for op in ended:
            if waiting[op.rank] is op:
                waiting[op.rank] = _run_host(hosts[op.rank])
    stuck = [r for r in range(world.size) if waiting[r] is not None]
    if stuck:
        raise RuntimeError(f"deadlock: the hosts of ranks {stuck} wait for work that never ends")
    return ranks


def _run_host(program: Program) -> DeviceOp | None:
    """Let a host run until it waits for work whose end is not known yet; None when its program is over."""
    blocked = next(program, None)
    while blocked is not None and blocked.end is not None:
        blocked = next(program, None)
    return blocked


def _program(rank: Rank) -> Program:
    queue = BatchQueue(rank.world, rank.rank, rank.t)
    program = program_for(rank.world.parallel.kind)
    waits = rank.world.model.sync != "none"
    for step in rank.world.plan(WARMUP_STEPS if waits else max(QUEUE_WARMUP_STEPS, 2 * rank.world.queue_steps)):
        if step.recorded and not rank.marks and (waits or any(once.opens_job for once in step.once)):
            yield from device_sync(rank)  # recording starts on an idle device
            rank.t += MARK_US
        if step.recorded and not rank.marks:
            _foreign_work(rank)
        if step.recorded:
            rank.steady += [len(rank.marks)] if step.steady else []
            rank.marks.append(rank.t)
        rank.begin_step(step.index)
        rank.t += 0.5
        if step.once:
            yield from _once(rank, step, queue, program)
        else:
            yield from program(rank, queue)
        rank.t += MARK_US
    rank.marks.append(rank.t)


def _foreign_work(rank: Rank) -> None:
    """Work of others on the compute stream: launched before the recording, and not in the file."""
    us = rank.world.foreign_us.get(rank.rank, 0.0)
    if us:
        op = DeviceOp(rank.rank, COMPUTE, "compute", FOREIGN, us)
        op.pool = FOREIGN
        rank.submit(op, rank.t - 2.0, rank.t - 1.0, 0)


def _once(rank: Rank, step: Step, queue: BatchQueue, program: StepProgram) -> Program:
    """A step with what occurs in it alone. Its batch is there, and the loader's workers rest for as long as it takes:
    the steps after it go on as if it had not been."""
    began = rank.t
    for once in step.once:
        if once.start is not None:
            yield from once.start(rank)
    yield from program(rank, ReadyBatches(rank.late_batch_us))
    rank.late_batch_us = 0.0
    for once in step.once:
        if once.end is not None:
            yield from once.end(rank)
    queue.rest(rank.t - began)
