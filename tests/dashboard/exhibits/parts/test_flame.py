"""The flame graph's tree: sums to the nanosecond, nothing overlaps, levels that were not recorded are not there."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.kernel_table.merged import Merged, merged
from ddprof.analyzers.kernel_table.of_run import kernels_of
from ddprof.dashboard.exhibits.parts.flame import BY, LEAST_SHARE, TreeFrame, frames

NS = 1e-3  # us


def row(module: str, operator: str, kernel: str, busy_us: float, kind: str = "compute") -> Merged:
    key, unknown = (module, operator, kernel, kind), (None, None, None)
    return Merged(key, 2.0, busy_us, busy_us, busy_us / 1000, None, 0.0, 0.0, 0, 1, *unknown)


ROWS = [
    row("Net > Layer_0", "aten::mm", "gemm", 400.0),
    row("Net > Layer_0", "aten::add", "vector", 50.0),
    row("Net > Layer_1", "aten::mm", "gemm", 300.0),
    row("Net", "aten::sum", "reduce", 20.0),
    row("", "", "all_reduce", 230.0, "communication"),
    row("Net > Layer_1", "aten::t", "tiny", 0.5),
    row("Net > Layer_1", "aten::u", "tinier", 0.25),
]


def check(found: list[TreeFrame], rows: list[Merged]) -> None:
    """Every frame is filled by those below it, and none sticks out."""
    assert found[0].busy_us == pytest.approx(sum(r.busy_us for r in rows), abs=NS)
    for i, parent in enumerate(found):
        inside = list(itertools.takewhile(lambda f, depth=parent.depth: f.depth > depth, found[i + 1 :]))
        below = [f for f in inside if f.depth == parent.depth + 1]
        if not below:
            continue
        for field in ("busy_us", "total_us", "calls", "step_share"):
            summed = sum(getattr(f, field) for f in below)
            assert summed == pytest.approx(getattr(parent, field), abs=NS, rel=1e-9), (parent, field)
        assert below[0].start_us == pytest.approx(parent.start_us, abs=NS)
        for left, right in itertools.pairwise(below):
            assert right.start_us == pytest.approx(left.start_us + left.busy_us, abs=NS)


def test_modules_hold_operators_these_hold_kernels_and_what_is_too_narrow_is_one_frame() -> None:
    found = frames(ROWS)
    check(found, ROWS)
    named = [(f.depth, f.level, f.words, f.busy_us) for f in found]
    assert named[:2] == [(0, "all", "all kernels", 1000.75), (1, "module", "Net", 770.75)]
    assert named[2:4] == [(2, "module", "Layer_0", 450.0), (3, "operator", "aten::mm", 400.0)]
    assert (1, "module", "no module", 230.0) in named and (2, "operator", "no operator", 230.0) in named
    assert next(f.name for f in found if f.words == "Layer_1") == "Net > Layer_1"
    assert next(f.kind for f in found if f.words == "no module") == "communication"
    rest = [f for f in frames(ROWS) if f.level == "more"]
    assert [(f.words, f.busy_us, f.name) for f in rest] == [("2 more", 0.75, "")]
    assert all(f.busy_us >= LEAST_SHARE * 1000.75 for f in frames(ROWS) if f.level != "more")


def test_a_sample_sums_to_its_table_and_levels_that_no_row_has_are_left_out(repo_root: Path) -> None:
    bare = [replace(r, key=("", "", *r.key[2:])) for r in ROWS]
    assert {f.level for f in frames(bare)} == {"all", "kernel", "more"}
    check(frames(bare), bare)
    assert frames([]) == []
    (run,) = load_runs([str(repo_root / "sample_traces" / "late_loader" / "traces")], Options(cache=False))
    rows = merged(kernels_of(run), BY)
    found = frames(rows)
    check(found, rows)
    table = merged(kernels_of(run), ("kernel",))
    assert found[0].busy_us == pytest.approx(sum(r.busy_us for r in table), abs=NS)
    by_kernel = {r.key[0]: r.busy_us for r in table}
    for name in {f.name for f in found if f.level == "kernel"}:
        assert sum(f.busy_us for f in found if f.level == "kernel" and f.name == name) <= by_kernel[name] + NS
