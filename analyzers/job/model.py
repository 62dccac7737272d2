"""JobFacts: the result of comparing the facts of all ranks.

RankFacts keep their own clocks; `JobFacts.clock` maps them onto one. Rows of MEMBERS point into COMMS of their rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.model import HealthNote
from ddprof.sidecar import StepMedians
from ddprof.tables import Array, Column, Schema, Table

UNKNOWN_ROLE = "group of"  # how the role of a group begins where nothing shows it; then its size
GROUPS = Schema(
    "groups",
    Column("size", "int64", "ranks in the group"),
    Column("ranks", "str", "members, comma separated"),
    Column("role", "str", "dp, tp, pp, ep, fsdp_shard, replicate, world; 'group of N' where nothing shows it; or ''"),
    Column("name", "str", "process group name"),
)

INSTANCES = Schema(
    "instances",
    Column("op", "uint8", "index into names.COLLECTIVE_OPS"),
    Column("group", "int64", "row of the groups table"),
    Column("is_message", "bool", "one point-to-point payload, not a collective"),
    Column("size_bytes", "int64", "message size", nullable=True),
    Column("members", "int64", "members seen"),
    Column("transfer_ns", "int64", "time with every member present: the shortest member's duration"),
    Column("complete", "bool", "every member of the group was traced"),
    Column("late", "int64", "position of the rank that came last", nullable=True),
)

MEMBERS = Schema(
    "members",
    Column("instance", "int64", "row of instances"),
    Column("rank", "int64", "position in JobFacts.ranks, not the rank number"),
    Column("comm", "int64", "row of that rank's comms"),
    Column("start_ns", "int64", "arrival, own clock"),
    Column("end_ns", "int64", "end, own clock"),
    Column("ready_ns", "int64", "when the last member had arrived, own clock, within [start, end]"),
)

LEDGER = Schema(
    "ledger",
    Column("rank", "int64", "position in JobFacts.ranks"),
    Column("step", "int64", "position in the rank's steps"),
    Column("cause", "uint8", "code of a cause (ddprof.causes)"),
    Column("dur_ns", "int64", "time booked"),
)

BLAME = Schema(
    "blame",
    Column("instance", "int32", "row of instances where the wait happened"),
    Column("victim", "int32", "position of the rank that waited"),
    Column(
        "culprit",
        "int64",
        "position of the rank the wait is charged to; missing: a rank that was not traced",
        nullable=True,
    ),
    Column("cause", "uint8", "what the culprit spent the time on; code of a cause (ddprof.causes)"),
    Column("step", "int32", "position in the victim's steps"),
    Column("dur_ns", "int64", "charged time; sums over causes and culprits equal the exposed wait"),
)


@dataclass(frozen=True)
class HostClock:
    """One clock domain: offset (local = reference + offset), drift, and the half-width of what causality allows."""

    offset_ns: int = 0
    drift_ppm: float = 0.0
    error_ns: int | None = 0


@dataclass(frozen=True)
class Clock:
    """Clock domains by name, and the domain of each rank (by position)."""

    domains: Mapping[str, HostClock]
    domain_of: tuple[str, ...]
    method: str

    def offset_ns(self, position: int) -> int:
        """Offset to subtract from the rank's times to get the reference clock's."""
        return self.domains[self.domain_of[position]].offset_ns


@dataclass(frozen=True)
class Pipeline:
    """A pipeline found in the point-to-point traffic: stages in order, each a tuple of rank positions.

    `unsure`: why its microbatches, and so its bubble, are uncertain; "" where they are known.
    """

    stages: tuple[tuple[int, ...], ...]
    microbatches: int
    interleave: int = 1  # chunks of layers that each stage holds
    unsure: str = ""
    schedule: str = ""  # key of bubble.SCHEDULES, named or shown by the order of passes; "" where none is known


class LeftOut(Struct, frozen=True):
    """A recorded step that is not steady, and why (steady.py); it enters no average and no price."""

    number: int  # as in STEPS
    wall_ns: int  # on the typical rank
    why: str  # words: "loading code 1.2 s, the first batch 300 ms"


def common_numbers(ranks: Sequence[RankFacts]) -> Array:
    """Numbers (STEPS `index`) of the job's steps: those that most ranks hold, ascending. Ranks that are not compared
    may hold different ones.
    """
    numbers, held = np.unique(np.concatenate([facts.steps["index"] for facts in ranks]), return_counts=True)
    return np.asarray(numbers[held == held.max(initial=0)])


def rows_of_steps(facts: RankFacts, numbers: Array) -> Array:
    """Rows in the rank's STEPS of the job's steps, -1 where it lacks one; shape (steps,)."""
    own = facts.steps["index"]
    order = np.argsort(own, kind="stable")  # a damaged file may number its steps in disorder
    at = np.minimum(np.searchsorted(own[order], numbers), len(own) - 1)
    return np.where(np.isin(numbers, own), order[at], -1)


@dataclass(frozen=True)
class JobFacts:
    """Input of the rules and the replay: all that is known of the job."""

    ranks: tuple[RankFacts, ...]  # sorted by rank number; each has at least one step
    rank_ids: tuple[int, ...]
    world_size: int
    missing_ranks: tuple[int, ...]
    clock: Clock
    groups: Table
    instances: Table
    members: Table
    ledger: Table
    blame: Table
    pipeline: Pipeline | None = None
    health: tuple[HealthNote, ...] = ()
    step_ns: int = 0  # mean job step
    per_step_ns: tuple[int, ...] = field(default=())
    left_out: tuple[LeftOut, ...] = ()  # recorded steps that are no steady steps
    not_compared: str = ""  # why ranks cannot be compared with one another; "" where they can
    step_times: Mapping[int, StepMedians] = field(default_factory=dict)  # rank -> its own timers, traced or not

    @property
    def on_device(self) -> bool:
        """True where the job runs on devices (judged by its first rank) rather than on CPU ranks."""
        return self.ranks[0].is_device_rank

    @cached_property
    def origin_ns(self) -> int:
        """Time zero of all output: the earliest first step mark, ns on the reference clock."""
        return min(int(f.steps["start_ns"][0]) - self.clock.offset_ns(p) for p, f in enumerate(self.ranks))

    @cached_property
    def step_numbers(self) -> Array:
        """Numbers in the traces of the steps that `per_step_ns` counts and pages number from 0."""
        return common_numbers(self.ranks)

    @cached_property
    def step_rows(self) -> Array:
        """Row in each rank's STEPS of each of these steps, -1 where the rank lacks it; shape (ranks, steps)."""
        return np.array([rows_of_steps(facts, self.step_numbers) for facts in self.ranks])

    @cached_property
    def shifts_ns(self) -> Array:
        """Shift of each rank, subtracted from its times for the run's clock, whose zero is `origin_ns`; by position."""
        return np.array([self.clock.offset_ns(position) + self.origin_ns for position in range(len(self.ranks))])

    def shift_ns(self, position: int) -> int:
        """Shift to subtract from one rank's times for the run's clock."""
        return int(self.shifts_ns[position])
