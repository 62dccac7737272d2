"""The kernel table: one row per rank, kernel, operator, module and line."""

from __future__ import annotations

from msgspec import Struct

from ddprof.analyzers.facts.model import Work
from ddprof.tables import Array, Column, Schema, Table

INSIDE = " > "  # between the modules of a path
KINDS = {Work.COMPUTE: "compute", Work.COMM: "communication", Work.COPY: "copy"}

KERNELS = Schema(
    "kernels",
    Column("rank", "int64", "rank number"),
    Column("kind", "str", "compute, communication or copy"),
    Column("kernel", "str", "kernel, collective or copy; on a CPU rank an operator; '' for work of no operator"),
    Column("operator", "str", "innermost operator above the launch; on a CPU rank the outermost; '' if not recorded"),
    Column("module", "str", "nn.Module calls around it, outermost first; '' if not recorded"),
    Column("line", "str", "innermost line of the script's own code around it; '' if not recorded"),
    Column("calls", "float64", "calls per step"),
    Column("total_us", "float64", "microseconds per step from start to end of each call"),
    Column("busy_us", "float64", "microseconds per step of the rank's busy time: each moment is in one row"),
    Column("step_share", "float64", "busy_us over the rank's step"),
    Column("path_share", "float64", "share of the critical path of all ranks", nullable=True),
    Column("flops", "float64", "floating-point operations per step, from shapes", nullable=True),
    Column("bytes", "float64", "least bytes that they move per step, from shapes and types", nullable=True),
    Column("roofline_share", "float64", "least time that the device needs for these, over total_us", nullable=True),
)


class KernelTable(Struct, frozen=True):
    """KERNELS of a run. `busy_by_step_us`: a line per row, a column per step that every rank has.

    `runs_operators`: the rows are operators of CPU ranks, without those that they call.
    """

    rows: Table
    busy_by_step_us: Array
    runs_operators: bool
