"""Nsight Systems: exports, and reports, which an `nsys` on PATH exports; without one the command to type is said."""

import gzip
import os
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import FORMATS, issues, names, one_trace, refusal, traces

from ddprof.model import DEVICE_KINDS, Kind
from ddprof.tables import NULL

EXPORTS = f"{FORMATS}/nsys_sqlite"
KERNELS = {"h100_2gpu_1s": [1721, 1721], "mfu_2gpu_before": [1993, 2017]}  # of each rank in a file
KERNELS |= {"nsys_2024_h200_report1": [18], "nvtx_only_old_export": [0]}


@pytest.mark.parametrize(("name", "kernels"), KERNELS.items())
def test_nsys(shared_dir: Path, name: str, kernels: list[int]) -> None:
    ranks = traces(shared_dir / EXPORTS / f"{name}.sqlite.gz")
    assert [len(names(t, Kind.KERNEL)) for t in ranks] == kernels
    assert [t.identity.rank for t in ranks] == list(range(len(kernels)))
    for trace in ranks:
        assert trace.has_base_time and (trace.events["dur_ns"] >= 0).all()
        device = np.isin(trace.events["kind"], DEVICE_KINDS)
        calls = trace.events["correlation"][trace.events["kind"] == Kind.RUNTIME]
        assert not device.any() or np.isin(trace.events["correlation"][device], calls).any()
        assert not any(n.endswith("_v7000") for n in names(trace, Kind.RUNTIME))
        operators = names(trace, Kind.CPU_OP)  # ranges of torch
        assert not any("op_id" in n for n in operators)
        if name == "h100_2gpu_1s" and trace is ranks[0]:
            assert "aten::view" in operators
            assert (trace.events["external_id"][trace.events["kind"] == Kind.CPU_OP] != NULL).any()


def test_an_empty_capture_says_that_it_is_empty(shared_dir: Path) -> None:
    said = refusal(shared_dir / EXPORTS / "empty_capture.sqlite.gz")
    assert "the capture is empty: no kernels and no NVTX ranges" in said


def written(folder: Path, **tables: tuple[str, list[tuple[Any, ...]]]) -> Path:
    """An export of these tables: the names of their columns, and rows."""
    path = folder / "report1.sqlite"
    with sqlite3.connect(path) as made:
        for table, (columns, rows) in tables.items():
            made.execute(f"CREATE TABLE {table} ({columns})")
            made.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns.split()))})", rows)
    return path


TEXTS = ("id, value", list[tuple[Any, ...]]())


@pytest.mark.parametrize(
    ("calls", "said"),
    [([(0, 5), (7, 9)], "2 calls of the operating system and 2 calls of CUDA"), ([], "the capture is empty")],
)
def test_a_capture_of_calls_alone_is_not_called_empty(tmp_path: Path, calls: list[tuple[int, int]], said: str) -> None:
    table = ("start, end, globalTid, nameId", [(start, end, 1, 1) for start, end in calls])
    told = refusal(written(tmp_path, StringIds=TEXTS, OSRT_API=table, CUPTI_ACTIVITY_KIND_RUNTIME=table))
    assert said in told and ("empty" in told) == (not calls)


def test_kernels_without_a_process_are_said_to_have_none_and_are_no_damage(tmp_path: Path) -> None:
    kernels = ("start, end, deviceId", [(0, 5, 0)])
    told = refusal(written(tmp_path, StringIds=TEXTS, CUPTI_ACTIVITY_KIND_KERNEL=kernels))
    assert "no column globalPid" in told and "damaged" not in told


def _capture(folder: Path, **work: list[tuple[int, int, int, int]]) -> Path:
    """A capture with kernels, or graphs: (start, end, device, pid) of each."""
    rows = {
        table: [(start, end, device, 7, at, pid << 24) for at, (start, end, device, pid) in enumerate(spans)]
        for table, spans in work.items()
    }
    columns = "start, end, deviceId, streamId, correlationId, globalPid"
    return written(folder, **{f"CUPTI_ACTIVITY_KIND_{table}": (columns, its) for table, its in rows.items()})


@pytest.mark.parametrize("kernels", [[(100, 110, 0, 111)], []])
def test_launches_of_cuda_graphs_are_device_time(tmp_path: Path, kernels: list[tuple[int, int, int, int]]) -> None:
    graphs = [(200, 900, 0, 111), (1000, 1700, 0, 111)]
    trace = one_trace(_capture(tmp_path, KERNEL=kernels, GRAPH_TRACE=graphs))
    assert names(trace, Kind.KERNEL) == ["kernel"] * len(kernels) + ["CUDA graph"] * 2
    assert trace.events["dur_ns"].sum() == 1400 + 10 * len(kernels)
    assert "2 launches of CUDA graphs were recorded as one operation each" in issues(trace)
    assert "no kernels" not in issues(trace)


def test_a_device_on_which_a_process_ran_hardly_anything_is_no_rank(tmp_path: Path) -> None:
    stray = [(10, 11, 0, 102), (10, 11, 0, 103), (10, 2**62, 0, 103)]  # the last one's end is damage
    own = [(100, 1000, device, 101 + device) for device in range(3)]
    ranks = traces(_capture(tmp_path, KERNEL=[*stray, *own, (1100, 1000, 3, 104)]))
    told = [(t.identity.rank, t.identity.pid, t.identity.local_device) for t in ranks]
    assert told == [(at, 101 + at, at) for at in range(4)]
    odd = ["a few kernels on other devices too: 0" in issues(trace) for trace in ranks]
    assert odd == [False, True, True, False]


def test_a_range_called_backward_is_the_scripts_own(tmp_path: Path) -> None:
    texts = ["Forward", "Backward", "loss Backward", "AddmmBackward0", "MulBackward, seq = 5, op_id = 7"]
    rows = [(at * 10, at * 10 + 9, 59, 111 << 24, text) for at, text in enumerate(texts)]
    trace = one_trace(written(tmp_path, NVTX_EVENTS=("start, end, eventType, globalTid, text", rows)))
    assert names(trace, Kind.ANNOTATION) == texts[:3]
    assert names(trace, Kind.CPU_OP) == ["AddmmBackward0", "MulBackward"]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    file = tmp_path / "runs" / "my report.nsys-rep"
    file.parent.mkdir()
    file.write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 100)
    return file


def nsys(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `nsys` of ours, alone on PATH with the shell's tools."""
    program = folder / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_an_nsys_is_called(shared_dir: Path, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = (shared_dir / EXPORTS / "h100_2gpu_1s.sqlite.gz").read_bytes()
    (tmp_path / "real.sqlite").write_bytes(gzip.decompress(packed))
    said, database = (shlex.quote(str(tmp_path / name)) for name in ("said", "real.sqlite"))
    # nsys export --type sqlite --force-overwrite true --output FILE REPORT
    nsys(tmp_path, f'printf "%s\\n" "$@" > {said}; cp {database} "$7"', monkeypatch)
    assert [len(names(t, Kind.KERNEL)) for t in traces(report)] == [1721, 1721]
    words = (tmp_path / "said").read_text().split("\n")[:6]
    assert " ".join(words) == "export --type sqlite --force-overwrite true --output"
    assert [path.name for path in report.parent.iterdir()] == [report.name]  # nothing is left beside it


def test_an_nsys_that_fails_is_one_line(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys(tmp_path, "echo 'Failed to import the report' >&2; exit 1", monkeypatch)
    assert "nsys cannot export it (Failed to import the report)" in refusal(report)
    report.with_suffix(".sqlite").write_bytes(b"SQLite format 3\0")
    assert "what to analyze: my report.sqlite" in refusal(report)
    # Without any nsys the command is said.
    report.with_suffix(".sqlite").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "nsys export --type sqlite FILE" in refusal(report)
