"""Tables for other tools hold names, rank numbers and one clock, and sum to what the report says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from labelled_runs import sample_run

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.kernel_table.named_tables import named_tables
from ddprof.causes import CAUSES
from ddprof.report.export.columns import write_tables
from ddprof.report.redaction.redact import Redaction
from ddprof.tables import NULL, Table


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
    assert set(tables["charged_waits"]["late_rank"].tolist()) == {2}
    assert tables["process_groups"]["ranks"][0] == "0,1,2"
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
    redaction = Redaction(run.report, b"key")
    assert list(redaction.table(tables["collectives"])["op"]) == list(tables["collectives"]["op"])
    assert list(redaction.table(tables["rank_step_causes"])["cause"]) == list(tables["rank_step_causes"]["cause"])
    unknown = run.job.blame.replace(culprit=np.full(len(run.job.blame), NULL))
    write_tables(tmp_path, named_tables(replace(run.job, blame=unknown)), "parquet")
    read = pyarrow.parquet.read_table(tmp_path / "charged_waits.parquet")
    assert read["late_rank"].null_count == len(read) > 0
