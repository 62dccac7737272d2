"""The run as the simulator sees it: the scenario's settings after its faults (or their remedies) have been applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.oracle.draws import factor
from benchmarks.oracle.spec import Cluster, Loader, Model, Noise, Parallel, Scenario

Moments = dict[tuple[int, int], list[tuple[int, float]]]  # (rank, step) -> [(layer, duration_us)]
FIRST, LAST = "first", "last"
ONCE = 10_000  # steps that occur once are numbered from here, so that no fault of a step falls on them


@dataclass(frozen=True)
class Once:
    """Events of a single step: host programs at its start and at its end (they take the rank)."""

    start: Callable[[Any], Iterator[Any]] | None = None
    end: Callable[[Any], Iterator[Any]] | None = None
    opens_job: bool = False  # nothing ran on the device before


@dataclass(frozen=True)
class Step:
    """One step of the plan: its number (for the noise), whether it is recorded, and what occurs in it alone."""

    index: int
    recorded: bool = True
    once: tuple[Once, ...] = ()
    counted: bool = True

    @property
    def steady(self) -> bool:
        """A recorded step like all others: what the label's step and ledger are taken over."""
        return self.recorded and self.counted and not self.once


@dataclass
class World:
    """Mutable settings and disturbances of one simulation."""

    seed: int
    steps: int
    model: Model
    cluster: Cluster
    parallel: Parallel
    loader: Loader
    noise: Noise
    kernel_scale: list[float]  # per rank
    matmul_scale: list[float]  # per rank, on matmuls and convolutions besides `kernel_scale`
    host_scale: list[float]
    loader_scale: list[float]
    link_scale: list[float]  # per rank: 2.0 = twice as slow
    stage_scale: list[float]  # per pipeline stage: factor on its kernels
    stage_layers: list[int]  # per pipeline stage
    bytes_scale: float = 1.0  # gradient compression
    gradient_dtype: str = "BFloat16"  # of DDP's buckets
    imbalance: dict[tuple[int, int], float] = field(default_factory=dict)  # (rank, step) -> work factor
    slow_since: dict[int, tuple[int, float]] = field(default_factory=dict)  # rank -> step, factor of its kernels
    gc: Moments = field(default_factory=dict)
    stalls: Moments = field(default_factory=dict)  # descheduled host threads: no event shows them
    allocations: Moments = field(default_factory=dict)
    syncs: dict[int, float] = field(default_factory=dict)  # layer -> host work after its `.item()`, microseconds
    checkpoints: dict[tuple[int, int], float] = field(default_factory=dict)  # (rank, step) -> duration
    checkpoint_name: str = "save_checkpoint"
    comm_free: bool = False
    fp32_slowdown: float = 3.2
    memory_share: float = 0.62  # of device memory reserved at the peak
    activations_share: float = 0.0  # of device memory, that one layer's activations take while it is computed again
    once: dict[str | int, list[Once]] = field(default_factory=dict)  # FIRST, LAST or the steady step it comes before
    uncounted: set[int] = field(default_factory=set)  # steady steps that not every rank recorded
    foreign_us: dict[int, float] = field(default_factory=dict)  # rank -> work on its stream that is not in the file
    call_stalls: Moments = field(default_factory=dict)  # [(operator, duration_us)]: descheduled inside a call
    preprocess_us: float = 0.0  # of a batch, in the training process
    hot: dict[int, float] = field(default_factory=dict)  # rank -> work of its experts or tables
    evaluations: dict[tuple[int, int], int] = field(default_factory=dict)  # (rank, step) -> batches evaluated
    scripts: dict[int, float] = field(default_factory=dict)  # rank -> Python of the script behind each step, us
    barriers: dict[int, int] = field(default_factory=dict)  # layer -> barriers that the script calls before it
    pair_scale: dict[tuple[int, int], float] = field(default_factory=dict)  # ranks of a message -> slower by
    rendezvous: str = ""  # hosts wait for one another each step: "beside" collectives or "instead" of them
    length: dict[int, float] = field(default_factory=dict)  # step -> work of every rank in it
    compiled: str = ""  # "" | "inductor" | "graphs"
    queue_steps: int = 2  # how far a host that never waits is ahead of its device

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.cluster.world

    def plan(self, unrecorded: int) -> list[Step]:
        """The steps of the run: `unrecorded` ones, then the steady ones and, among them, those that occur once."""
        found = [Step(index, recorded=False) for index in range(-unrecorded, 0)]
        places: list[str | int] = [FIRST, *range(self.steps), LAST]
        for number, place in enumerate(places):
            if self.once.get(place):
                found.append(Step(ONCE + number, once=tuple(self.once[place])))
            if isinstance(place, int):
                found.append(Step(place, counted=place not in self.uncounted))
        return found

    def rank_speed(self, rank: int, step: int) -> float:
        """Factor on every kernel of a rank in a step: hardware, noise of the rank and step, unequal work."""
        noise = factor(self.seed, "rank", rank, 0, self.noise.rank) * factor(
            self.seed, "step", rank, step, self.noise.step
        )
        since, slower = self.slow_since.get(rank, (0, 1.0))
        return self.kernel_scale[rank] * noise * self.work(rank, step) * (slower if step >= since else 1.0)

    def work(self, rank: int, step: int) -> float:
        """A rank's work in a step relative to the mean: its share of the samples, and their length."""
        return self.imbalance.get((rank, step), 1.0) * self.length.get(step, 1.0)

    def set_model(self, **changes: object) -> None:
        """Change model settings."""
        self.model = replace(self.model, **changes)  # type: ignore[arg-type]

    def set_parallel(self, **changes: object) -> None:
        """Change parallelism settings."""
        self.parallel = replace(self.parallel, **changes)  # type: ignore[arg-type]

    def set_loader(self, **changes: object) -> None:
        """Change loader settings."""
        self.loader = replace(self.loader, **changes)  # type: ignore[arg-type]

    def set_cluster(self, **changes: object) -> None:
        """Change link settings."""
        self.cluster = replace(self.cluster, **changes)  # type: ignore[arg-type]


def healthy_world(scenario: Scenario) -> World:
    """The scenario without any fault or quirk."""
    size = scenario.cluster.world
    return World(
        seed=scenario.seed,
        steps=scenario.steps,
        model=scenario.model,
        cluster=scenario.cluster,
        parallel=scenario.parallel,
        loader=scenario.loader,
        noise=scenario.noise,
        kernel_scale=[1.0] * size,
        matmul_scale=[1.0] * size,
        host_scale=[1.0] * size,
        loader_scale=[1.0] * size,
        link_scale=[1.0] * size,
        stage_scale=[1.0] * max(1, scenario.parallel.pp),
        stage_layers=[scenario.model.layers] * max(1, scenario.parallel.pp),
    )
