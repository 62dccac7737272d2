"""Tables of RankFacts on computation by name: kernels of a device, operators of a CPU rank."""

from __future__ import annotations

from ddprof.tables import Column, Schema

HOST_WORK = Schema(
    "host_work",
    Column("start_ns", "int64", "start of busy time on the training threads of a CPU rank"),
    Column("end_ns", "int64", "end"),
)

HOST_OPERATORS = Schema(
    "host_operators",
    Column("start_ns", "int64", "start of an operator of a CPU rank that no other operator called"),
    Column("dur_ns", "int64", "duration"),
    Column("name", "int32", "operator"),
    Column("shape", "int32", "its shapes; -2147483648 if not recorded"),
)

UNIT_HOOKS = Schema(
    "unit_hooks",
    Column("start_ns", "int64", "FSDP's Python around the passes of one unit begins (torch's own range)"),
    Column("end_ns", "int64", "it ends"),
)

KERNEL_GROUPS = Schema(
    "kernel_groups",
    Column("name", "int32", "kernel"),
    Column("shape", "int32", "shapes of the operator above it; -2147483648 if not recorded"),
    Column("count", "int64", "launches inside steps"),
    Column("total_ns", "int64", "time"),
    Column("median_ns", "int64", "median duration"),
    Column("flops", "float64", "floating-point operations, from shapes", nullable=True),
    Column("element_bytes", "int64", "of the first operand, from its recorded type", nullable=True),
    Column("is_gemm", "bool", "matrix product or convolution"),
    Column("is_fp32", "bool", "a gemm whose operands are single precision"),
)
