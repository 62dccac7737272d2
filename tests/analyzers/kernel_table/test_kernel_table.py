"""The kernel table of whole runs: its sums are the report's, as are those of the tables for other tools."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from labelled_runs import Runs, only_run, sample_run

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.kernels import operator_flops
from ddprof.analyzers.kernel_table.model import by_step_us, inclusive_us, merged
from ddprof.analyzers.kernel_table.named_tables import named_tables
from ddprof.analyzers.kernel_table.of_run import kernels_of, least_bytes, path_of
from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.hardware import memory_bandwidth
from ddprof.report.export.columns import write_tables
from ddprof.report.redaction.redact import Redaction
from ddprof.tables import NULL, Table

BUSY = ("compute", "comm_wait", "comm_transfer", "pipeline_bubble", "memcpy")
BF16 = 2


@pytest.mark.parametrize("name", ["straggler.compute", "clean.pp", "clean.tpdp", "compute.precision"])
def test_rows_sum_to_the_ledger_of_each_rank_and_of_the_job(labelled: Runs, name: str) -> None:
    run = labelled(name).run
    table, ledger = kernels_of(run), run.report.ledger
    for rank, row in ledger.per_rank.items():
        mine = table.rows.take(table.rows["rank"] == rank)
        assert mine["busy_us"].sum() == pytest.approx(sum(row[cause] for cause in BUSY), abs=1e-3)
        assert (mine["total_us"] >= mine["busy_us"] - 1e-6).all()
        assert mine["step_share"].sum() * row["wall_us"] == pytest.approx(mine["busy_us"].sum(), rel=1e-6)
    for by in (("kernel", "operator", "kind"), ("operator",), ("module",), ("line",)):
        rows = merged(table, by)
        assert sum(r.busy_us for r in rows) == pytest.approx(sum(ledger.job[cause] for cause in BUSY), abs=1e-3)
        assert all(r.lowest_us <= r.highest_us for r in rows)


def test_the_slow_rank_the_path_the_steps_and_a_filter_of_ranks_agree(labelled: Runs) -> None:
    run = labelled("straggler.compute").run
    table = kernels_of(run)
    rows = [r for r in merged(table, ("kernel", "kind")) if r.key[1] == "compute"]
    (culprit,) = run.report.ranked_findings()[0].ranks
    assert all(r.slowest == culprit and r.highest_us > 1.1 * r.lowest_us for r in rows[:3])
    share = table.rows["path_share"].sum()
    assert 0.5 < share <= 1 + 1e-9
    start, end = path_of(run).bounds
    assert share * (end - start).sum() <= (end - start).sum() + 1
    by_step = by_step_us(table)
    for row in merged(table, ("kernel", "kind")):
        name, kind = row.key
        assert sum(by_step[name, kind]) / len(by_step[name, kind]) == pytest.approx(row.busy_us)
    rows = merged(table, ("kernel",), lambda rank: rank == 1)
    assert {r.slowest for r in rows} == {1} and {r.ranks for r in rows} == {1}
    assert merged(table, ("kernel",), lambda rank: False) == []


def test_modules_and_lines_of_a_real_trace(shared_run: Callable[[str], Path]) -> None:
    run = only_run(shared_run("traces/single_rank/qwen_h100"))
    rows = merged(kernels_of(run), ("module",))
    inside = inclusive_us(rows)
    assert inside["Qwen2Model_0"] == pytest.approx(sum(r.busy_us for r in rows))
    assert len([path for path in inside if path.count(" > ") == 1 and "DecoderLayer" in path]) == 24
    assert {r.key[0].rpartition(" ")[2] for r in merged(kernels_of(run), ("line",))} == {"run_on_input()"}
    product = next(r for r in merged(kernels_of(run), ("operator",)) if r.key[0] == "aten::mm")
    assert product.flops_per_s is not None and 5e14 < product.flops_per_s < 989e12
    assert product.roofline_share is not None and 0.5 < product.roofline_share < 1


def test_cpu_ranks_say_that_their_rows_are_operators(shared_run: Callable[[str], Path]) -> None:
    table = kernels_of(only_run(shared_run("traces/cpu_gloo/ddp-cnn-2r-base")))
    assert table.runs_operators
    assert {"aten::mkldnn_convolution", "aten::convolution_backward"} & set(table.rows["kernel"].tolist())


def test_a_trace_that_is_gone_is_one_line(shared_run: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(shared_run("traces/cpu_gloo/ddp-cnn-2r-base"), tmp_path / "run")
    run = only_run(folder)
    shutil.rmtree(folder)
    with pytest.raises(NoUsableInput, match=r"^[^\n]+$"):
        kernels_of(run)


def test_a_product_reads_both_operands_and_writes_its_result() -> None:
    assert least_bytes("mm", [[64, 32], [32, 128]], BF16) == BF16 * (64 * 32 + 32 * 128 + 64 * 128)
    assert least_bytes("addmm", [[128], [64, 32], [32, 128]], BF16) == least_bytes("mm", [[64, 32], [32, 128]], BF16)
    assert least_bytes("linear", [[8, 64, 32], [128, 32]], BF16) == BF16 * (8 * 64 * 32 + 128 * 32 + 8 * 64 * 128)
    assert math.isnan(least_bytes("mm", [[64, 32], [32, 128]], NULL))
    assert math.isnan(least_bytes("mul", [[64, 32], [64, 32]], BF16))


def test_attention_has_tokens_and_heads_where_each_operator_has_them() -> None:
    batch, heads, tokens, width = 2, 8, 512, 64
    exact = 4.0 * batch * heads * tokens * tokens * width  # queries by keys, then by values
    called, launched = [[batch, heads, tokens, width]] * 3, [[batch, tokens, heads, width]] * 3
    assert operator_flops("aten::_scaled_dot_product_flash_attention", called) == exact
    assert operator_flops("aten::_flash_attention_forward", launched) == exact
    assert operator_flops("aten::_flash_attention_backward", launched) == 2.5 * exact
    assert least_bytes("_flash_attention_forward", launched, BF16) == BF16 * 4 * batch * heads * tokens * width


def test_known_devices_have_a_memory_rate() -> None:
    rates = {"H100 80GB HBM3": 3.35e12, "A100-SXM4-80GB": 2.039e12, "A100-SXM4-40GB": 1.555e12}
    assert {name: memory_bandwidth(f"NVIDIA {name}") for name in rates} == pytest.approx(rates)
    assert memory_bandwidth("a device of tomorrow") is None


@pytest.fixture(scope="module")
def run() -> LoadedRun:
    return sample_run("late_loader")


@pytest.fixture(scope="module")
def tables(run: LoadedRun) -> dict[str, Table]:
    return named_tables(run.job)


def test_no_codes_and_no_positions_and_sums_of_the_report(run: LoadedRun, tables: dict[str, Table]) -> None:
    for name, table in tables.items():
        for column in table.schema.columns:
            assert not column.name.endswith("_ns") and column.dtype != "uint8", (name, column.name)
            assert "position in JobFacts" not in column.meaning
    assert set(tables["collectives"]["op"]) == {"all_reduce"}
    assert set(tables["rank_step_causes"]["cause"]) <= set(CAUSES)
    assert set(tables["charged_waits"]["late_rank"].tolist()) == {2} and tables["process_groups"]["ranks"][0] == "0,1,2"
    steps, causes = tables["rank_steps"], tables["rank_step_causes"]
    assert causes["dur_us"].sum() == pytest.approx(steps["wall_us"].sum())
    for rank in run.job.rank_ids:
        row = run.report.ledger.per_rank[rank]
        assert steps["wall_us"][steps["rank"] == rank].mean() == pytest.approx(row["wall_us"], rel=1e-6)
    assert tables["charged_waits"]["dur_us"].sum() == pytest.approx(run.job.blame["dur_ns"].sum() / 1e3)


def test_times_are_on_one_clock_from_the_first_step(run: LoadedRun, tables: dict[str, Table]) -> None:
    steps, members, collectives = (tables[n] for n in ("rank_steps", "collective_members", "collectives"))
    assert steps["start_us"].min() == 0
    inside = members.take(members["step"] != NULL)
    begins = {(r, s): us for r, s, us in zip(steps["rank"], steps["step"], steps["start_us"], strict=True)}
    starts = zip(inside["rank"], inside["step"], inside["start_us"], strict=True)
    assert len(inside) and all(us >= begins[rank, step] for rank, step, us in starts)
    longest = np.zeros(len(collectives))
    np.maximum.at(longest, members["collective"], members["wait_us"])
    assert longest == pytest.approx(collectives["longest_wait_us"])


def test_ranks_words_and_nulls_are_kept(run: LoadedRun, tables: dict[str, Table], tmp_path: Path) -> None:
    moved = named_tables(replace(run.job, rank_ids=(4, 5, 9)))
    for name in ("rank_steps", "rank_step_causes", "collective_members"):
        assert set(moved[name]["rank"].tolist()) == {4, 5, 9}
    assert set(moved["charged_waits"]["late_rank"].tolist()) == {9}
    for name, column in (("collectives", "op"), ("rank_step_causes", "cause")):
        assert list(Redaction(run.report, b"key").table(tables[name])[column]) == list(tables[name][column])
    unknown = run.job.blame.replace(culprit=np.full(len(run.job.blame), NULL))
    write_tables(tmp_path, named_tables(replace(run.job, blame=unknown)), "parquet")
    read = pyarrow.parquet.read_table(tmp_path / "charged_waits.parquet")
    assert read["late_rank"].null_count == len(read) > 0
