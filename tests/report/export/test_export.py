"""Exports of a run with a known culprit: one trace on one clock, arrows that meet slices, tables that read back."""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner

from ddprof.causes import CAUSES
from ddprof.cli.export import command
from ddprof.report.export.columns import report_tables, write_tables
from ddprof.report.export.perfetto import FINDINGS_PROCESS, _flow
from ddprof.report.export.pftrace import Arrow
from ddprof.report.model import Report


@pytest.fixture(scope="module")
def exported(shared_run: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Events of the exported trace."""
    file = tmp_path_factory.mktemp("export") / "new" / "x.json.gz"
    traces = shared_run("oracle_samples/04_slow_gpu_tp2dp2_clock_skew/traces")
    assert CliRunner().invoke(command, [str(traces), "-o", str(file)], catch_exceptions=False).exit_code == 0
    with gzip.open(file, "rt") as stream:
        return json.load(stream)["traceEvents"]


def test_ranks_are_processes_with_steps_on_one_clock_and_findings_are_tracks(exported: list[dict[str, Any]]) -> None:
    names = {e["pid"]: e["args"]["name"] for e in exported if e["ph"] == "M" and e["name"] == "process_name"}
    wanted = {**{rank + 1: f"rank {rank}" for rank in range(4)}, FINDINGS_PROCESS: "ddprof findings"}
    assert {pid: name.split(" on ")[0] for pid, name in names.items()} == wanted
    steps = [[e["ts"] for e in exported if (e["ph"], e["pid"], e.get("tid")) == ("X", p, 0)] for p in range(1, 5)]
    assert min(map(len, steps)) >= 3
    # Hosts of the sample are seconds apart; on the run's clock the first steps start together.
    firsts = [min(of_rank) for of_rank in steps]
    assert max(firsts) - min(firsts) < 20_000 and min(firsts) == 0
    tracks = [e["args"]["name"] for e in exported if e["pid"] == FINDINGS_PROCESS and e["name"] == "thread_name"]
    assert any(name.startswith("straggler.compute (rank") for name in tracks)


def test_arrows_join_slices_of_two_ranks(exported: list[dict[str, Any]]) -> None:
    slices, ends = defaultdict(list), defaultdict(list)
    for event in exported:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] in "sf":
            ends[event["id"]].append(event)
    assert ends
    for start, end in ends.values():
        assert (start["ph"], end["ph"]) == ("s", "f") and start["pid"] != end["pid"] and start["ts"] <= end["ts"]
        for event in (start, end):
            assert any(first - 0.01 <= event["ts"] <= last + 0.01 for first, last in slices[event["pid"], event["tid"]])


def test_an_arrow_never_runs_backwards() -> None:
    """The clocks of its two ranks differ by their error."""
    start, end = _flow(1, Arrow(0, 3, 2_000, 1, 4, 1_500))
    assert (start["ts"], end["ts"]) == (2.0, 2.0)
    assert _flow(1, Arrow(0, 3, 2_000, 1, 4, 2_500))[1]["ts"] == 2.5


def test_tables_read_back_and_are_documented(straggler_report: Report, tmp_path: Path) -> None:
    tables = report_tables(straggler_report)
    files = write_tables(tmp_path / "new", tables, "parquet")
    assert [f.name for f in files] == [f"{name}.parquet" for name in tables] + ["columns.md"]
    for name, table in tables.items():
        assert pyarrow.parquet.read_table(tmp_path / "new" / f"{name}.parquet").to_pylist() == list(table.rows())
    assert len(tables["rank_causes"]) == 4 * len(CAUSES)
    guide = files[-1].read_text()
    assert all(column.meaning in guide for table in tables.values() for column in table.schema.columns)
    write_tables(tmp_path, tables, "csv")
    head, first, *_ = (tmp_path / "findings.csv").read_text().splitlines()
    assert head.startswith("place,id,severity,ranks") and first.startswith("1,input.straggler,critical,2")
