"""Analysis results as tables for other tools and notebooks.

Names and rank numbers stand in place of codes and positions, microseconds on the run's clock in place of each rank's
nanoseconds.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.job.model import JobFacts
from ddprof.causes import CAUSE_IDS
from ddprof.tables import NULL, Array, Column, Schema, Table

_CAUSES = np.array(CAUSE_IDS, object)
_STEP = Column("step", "int64", "position of the step among the rank's steady steps, from 0", nullable=True)

JOB_GROUPS = Schema(
    "process_groups",
    Column("process_group", "int64", "number of the group, as other tables name it"),
    Column("name", "str", "name of the process group, '' if unknown"),
    Column("role", "str", "dp, tp, pp, ep, fsdp_shard, replicate, world; 'group of N' where nothing shows it"),
    Column("size", "int64", "ranks in the group"),
    Column("ranks", "str", "members, comma separated"),
)
COLLECTIVES = Schema(
    "collectives",
    Column("collective", "int64", "number of the collective, as other tables name it"),
    Column("op", "str", "all_reduce, all_gather, ..."),
    Column("process_group", "int64", "number of the group (process_groups)"),
    Column("role", "str", "role of the group"),
    Column("is_message", "bool", "one point-to-point payload, not a collective"),
    Column("size_bytes", "int64", "message size", nullable=True),
    Column("members_traced", "int64", "members whose traces show it"),
    Column("is_complete", "bool", "every member of the group was traced"),
    Column("last_rank", "int64", "rank that came last", nullable=True),
    Column("start_us", "float64", "arrival of the first member, on the run's clock, 0 = start of the first step"),
    Column("transfer_us", "float64", "time with every member present"),
    Column("longest_wait_us", "float64", "wait of the member that came first"),
)
COLLECTIVE_MEMBERS = Schema(
    "collective_members",
    Column("collective", "int64", "number of the collective (collectives)"),
    Column("rank", "int64", "rank number"),
    _STEP,
    Column("start_us", "float64", "arrival, on the run's clock"),
    Column("wait_us", "float64", "from its arrival until the last member had arrived"),
    Column("dur_us", "float64", "from its arrival until its end"),
)
STEP_LEDGER = Schema(
    "rank_step_causes",
    Column("rank", "int64", "rank number"),
    Column("step", "int64", "position of the step among the rank's steady steps, from 0"),
    Column("cause", "str", "ledger cause"),
    Column("dur_us", "float64", "microseconds booked to it"),
)
RANK_STEPS = Schema(
    "rank_steps",
    Column("rank", "int64", "rank number"),
    Column("step", "int64", "position of the step among the rank's steady steps, from 0"),
    Column("number", "int64", "step number as the trace marks it"),
    Column("start_us", "float64", "start on the run's clock, 0 = start of the first step"),
    Column("wall_us", "float64", "length in microseconds"),
)
CHARGED_WAITS = Schema(
    "charged_waits",
    Column("collective", "int64", "number of the collective where the wait happened (collectives)"),
    Column("waiting_rank", "int64", "rank that waited"),
    Column("late_rank", "int64", "rank that the wait is charged to; null: one that was not traced", nullable=True),
    Column("cause", "str", "what the late rank spent the time on"),
    _STEP,
    Column("dur_us", "float64", "exposed wait charged, microseconds"),
)


def named_tables(job: JobFacts) -> dict[str, Table]:
    """The tables of a job by name."""
    return {
        "rank_steps": rank_steps(job),
        "rank_step_causes": rank_step_causes(job),
        "process_groups": _process_groups(job),
        "collectives": collectives(job),
        "collective_members": _collective_members(job),
        "charged_waits": _charged_waits(job),
    }


def rank_steps(job: JobFacts) -> Table:
    """RANK_STEPS: a row per rank and step."""
    columns: dict[str, list[Array]] = {column.name: [] for column in RANK_STEPS.columns}
    for position, (rank, facts) in enumerate(zip(job.rank_ids, job.ranks, strict=True)):
        start_ns, end_ns = facts.steps.bounds
        columns["rank"].append(np.full(len(start_ns), rank))
        columns["step"].append(np.arange(len(start_ns)))
        columns["number"].append(facts.steps["index"])
        columns["start_us"].append((start_ns - job.shift_ns(position)) / 1e3)
        columns["wall_us"].append((end_ns - start_ns) / 1e3)
    return RANK_STEPS.table({name: np.concatenate(parts) if parts else [] for name, parts in columns.items()})


def rank_step_causes(job: JobFacts) -> Table:
    """STEP_LEDGER: the ledger of every rank and step."""
    booked = job.ledger.take(job.ledger["step"] >= 0)
    return STEP_LEDGER.table(
        {
            "rank": _ranks(job)[booked["rank"]],
            "step": booked["step"],
            "cause": _CAUSES[booked["cause"]],
            "dur_us": booked["dur_ns"] / 1e3,
        }
    )


def collectives(job: JobFacts) -> Table:
    """COLLECTIVES: a row per collective or message of the job."""
    instances, members = job.instances, job.members
    count = len(instances)
    start_ns = members["start_ns"] - job.shifts_ns[members["rank"]]
    first_ns = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, members["instance"], start_ns)
    longest_ns = np.zeros(count, np.int64)
    np.maximum.at(longest_ns, members["instance"], members["ready_ns"] - members["start_ns"])
    seen = np.bincount(members["instance"], minlength=count) > 0
    return COLLECTIVES.table(
        {
            "collective": np.arange(count),
            "op": np.array(COLLECTIVE_OPS, object)[instances["op"]],
            "process_group": instances["group"],
            "role": job.groups["role"][instances["group"]] if count else [],
            "is_message": instances["is_message"],
            "size_bytes": instances["size_bytes"],
            "members_traced": instances["members"],
            "is_complete": instances["complete"],
            "last_rank": _rank_numbers(job, instances["late"]),
            "start_us": np.where(seen, first_ns / 1e3, np.nan),
            "transfer_us": instances["transfer_ns"] / 1e3,
            "longest_wait_us": longest_ns / 1e3,
        }
    )


def _process_groups(job: JobFacts) -> Table:
    groups = job.groups
    numbers = {"process_group": np.arange(len(groups))}
    return JOB_GROUPS.table(numbers | {name: groups[name] for name in ("name", "role", "size", "ranks")})


def _collective_members(job: JobFacts) -> Table:
    members = job.members
    start_ns = members["start_ns"]
    return COLLECTIVE_MEMBERS.table(
        {
            "collective": members["instance"],
            "rank": _ranks(job)[members["rank"]],
            "step": _step_of(job, members),
            "start_us": (start_ns - job.shifts_ns[members["rank"]]) / 1e3,
            "wait_us": (members["ready_ns"] - start_ns) / 1e3,
            "dur_us": (members["end_ns"] - start_ns) / 1e3,
        }
    )


def _charged_waits(job: JobFacts) -> Table:
    blame = job.blame
    return CHARGED_WAITS.table(
        {
            "collective": blame["instance"],
            "waiting_rank": _ranks(job)[blame["victim"]],
            "late_rank": _rank_numbers(job, blame["culprit"]),
            "cause": _CAUSES[blame["cause"]],
            "step": blame["step"],
            "dur_us": blame["dur_ns"] / 1e3,
        }
    )


def _step_of(job: JobFacts, members: Table) -> Array:
    """The step in which each member arrives; NULL outside steps."""
    steps = np.full(len(members), NULL)
    order = np.argsort(members["rank"], kind="stable")
    cuts = np.searchsorted(members["rank"][order], np.arange(1, len(job.ranks)))
    for facts, rows in zip(job.ranks, np.split(order, cuts), strict=True):
        step = intervals.row_at(facts.steps.bounds, members["start_ns"][rows])
        steps[rows] = np.where(step >= 0, step, NULL)
    return steps


def _rank_numbers(job: JobFacts, positions: Array) -> Array:
    """Rank numbers of positions; NULL stays."""
    is_rank = positions != NULL
    return np.where(is_rank, _ranks(job)[np.where(is_rank, positions, 0)], NULL)


def _ranks(job: JobFacts) -> Array:
    return np.array(job.rank_ids, np.int64)
