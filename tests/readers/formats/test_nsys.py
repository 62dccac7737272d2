"""Databases: of Nsight Systems, or what an `nsys` on PATH exports, and of rocprof; odd cells cost their rows alone."""

import gzip
import os
import shlex
import shutil
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import FORMATS, issues, names, one_trace, refusal, traces

from ddprof.errors import DdprofError
from ddprof.model import DEVICE_KINDS, Kind
from ddprof.readers import discover
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
    return write(folder / "report1.sqlite", tables)


TEXTS = ("id value", list[tuple[Any, ...]]())


@pytest.mark.parametrize(("calls", "said"), [([(0, 5), (7, 9)], "system and 2 calls of CUDA"), ([], "is empty")])
def test_a_capture_of_calls_alone_is_not_called_empty(tmp_path: Path, calls: list[tuple[int, int]], said: str) -> None:
    table = ("start end globalTid nameId", [(start, end, 1, 1) for start, end in calls])
    told = refusal(written(tmp_path, StringIds=TEXTS, OSRT_API=table, CUPTI_ACTIVITY_KIND_RUNTIME=table))
    assert said in told and ("empty" in told) == (not calls)
    texts = ("id value", [(1, "cudaLaunchKernel_v7000")])
    told = refusal(write(tmp_path / "b.sqlite", {"StringIds": texts, "CUPTI_ACTIVITY_KIND_RUNTIME": table}))
    assert ("2 launch calls and no record of a kernel" in told) == bool(calls)


def test_kernels_without_a_process_are_said_to_have_none_and_are_no_damage(tmp_path: Path) -> None:
    told = refusal(written(tmp_path, StringIds=TEXTS, CUPTI_ACTIVITY_KIND_KERNEL=("start end deviceId", [(0, 5, 0)])))
    assert "no column globalPid" in told and "damaged" not in told


def _capture(folder: Path, **work: list[tuple[int, int, int, int]]) -> Path:
    """A capture with kernels, or graphs: (start, end, device, pid) of each."""
    rows = {
        table: [(start, end, device, 7, at, pid << 24) for at, (start, end, device, pid) in enumerate(spans)]
        for table, spans in work.items()
    }
    columns = "start end deviceId streamId correlationId globalPid"
    return written(folder, **{f"CUPTI_ACTIVITY_KIND_{table}": (columns, its) for table, its in rows.items()})


@pytest.mark.parametrize("kernels", [[(100, 110, 0, 111)], []])
def test_launches_of_cuda_graphs_are_device_time(tmp_path: Path, kernels: list[tuple[int, int, int, int]]) -> None:
    trace = one_trace(_capture(tmp_path, KERNEL=kernels, GRAPH_TRACE=[(200, 900, 0, 111), (1000, 1700, 0, 111)]))
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
    assert ["a few kernels on other devices too: 0" in issues(trace) for trace in ranks] == [False, True, True, False]


def test_a_range_called_backward_is_the_scripts_own(tmp_path: Path) -> None:
    texts = ["Forward", "Backward", "loss Backward", "AddmmBackward0", "MulBackward, seq = 5, op_id = 7"]
    rows = [(at * 10, at * 10 + 9, 59, 111 << 24, text) for at, text in enumerate(texts)]
    ranges, gpus = ("start end eventType globalTid text", rows), ("id name", [(0, "NVIDIA H100 80GB HBM3")])
    trace = one_trace(written(tmp_path, NVTX_EVENTS=ranges, TARGET_INFO_GPU=gpus))
    assert names(trace, Kind.ANNOTATION) == texts[:3] and names(trace, Kind.CPU_OP) == ["AddmmBackward0", "MulBackward"]
    assert trace.device.kind == "cuda"  # it is there, and was not recorded


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


def test_rocprof_database_and_json_agree(shared_dir: Path, tmp_path: Path) -> None:
    text, database = sorted(traces(shared_dir / FORMATS / "rocm_rpd"), key=lambda trace: trace.format)
    for kind in (Kind.KERNEL, Kind.MEMCPY):
        assert len(names(database, kind)) == len(names(text, kind)) > 0
    assert set(names(text, Kind.RUNTIME)) == set(names(database, Kind.RUNTIME))
    assert database.device.kind == text.device.kind == "rocm"
    assert np.abs(np.sort(database.events["ts_ns"]) - np.sort(text.events["ts_ns"])).max() < 1000
    assert (database.events["correlation"][np.isin(database.events["kind"], DEVICE_KINDS)] != NULL).all()
    assert database.copies["size_bytes"].max() == 2_000_000_000
    archive = shutil.make_archive(str(tmp_path / "packed"), "tar", shared_dir / FORMATS / "rocm_rpd")
    assert len(discover([archive]).runs) == len(discover([shared_dir / FORMATS / "rocm_rpd"]).runs) == 2
    own = names(database, Kind.OVERHEAD)  # the tracer's work, no call of the program
    assert "hcc_activity_callback" in own and "OpTable::writeRows" in own and len(own) == 5
    assert all(name.startswith("hip") for name in names(database, Kind.RUNTIME))


PID, SIX = 111 << 24, [(n, 1000 * n) for n in range(1, 7)]
RPD = {
    "rocpd_string": ("id string", [(1, "gemm"), (2, "hipLaunch"), (3, "KernelExecution"), (4, "CopyHostToDevice")]),
    "rocpd_op": ("id gpuId queueId start end description_id opType_id",
                 [(n, 0, 1, t, t + 400, 1, 3 + n % 2) for n, t in SIX]),
    "rocpd_api": ("id pid tid start end apiName_id", [(n, 9, 9, t - 50, t, 2) for n, t in SIX]),
    "rocpd_api_ops": ("api_id op_id", [(n, n) for n, _ in SIX]),
    "rocpd_copyapi": ("api_ptr_id size", [(n, 64) for n, _ in SIX]),
}  # fmt: skip
NSYS = {
    "StringIds": ("id value", [(1, "gemm"), (2, "cudaLaunchKernel_v7000"), (3, "main")]),
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start end deviceId streamId correlationId demangledName shortName globalPid",
                                   [(t, t + 400, 0, 7, n, 1, 1, PID) for n, t in SIX]),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start end deviceId streamId correlationId bytes copyKind srcKind dstKind globalPid",
                                   [(t + 500, t + 600, 0, 7, n, 64, 1, 1, 2, PID) for n, t in SIX]),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start end globalTid correlationId nameId",
                                    [(t - 50, t, PID + 5, n, 2) for n, t in SIX]),
    "NVTX_EVENTS": ("start end globalTid text textId eventType",
                    [(t, t + 90, PID + 5, f"aten::mm, op_id = {n}, sizes = [[2, 2]]", None, 59) for n, t in SIX]),
    "ThreadNames": ("globalTid nameId", [(PID + 5, 3)]),
    "TARGET_INFO_GPU": ("id name totalMemory computeMajor computeMinor smCount", [(0, "A100", 1 << 36, 8, 0, 108)]),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs systemClockNs", [(10**18, 0)]),
}  # fmt: skip
ROCPD = {
    "rocpd_string": ("id string", [(1, "HIP_RUNTIME_API"), (2, "hipLaunchKernel"), (3, "MEMORY_COPY_HOST_TO_DEVICE"),
                                   (4, "MARKER_CORE_API"), (5, "step 1")]),
    "rocpd_info_process": ("id guid pid", [(9, "g", 9)]),
    "rocpd_info_agent": ("id type type_index product_name", [(4, "GPU", 2, "AMD Instinct"), (0, "CPU", 0, "Xeon")]),
    "rocpd_info_kernel_symbol": ("id display_name", [(1, "gemm")]),
    "rocpd_event": ("id category_id stack_id parent_stack_id",
                    [*((n, 1, n, 0) for n, _ in SIX), (7, 4, 7, 0), *((10 + n, 1, n, n) for n, _ in SIX)]),
    "rocpd_kernel_dispatch": ("agent_id pid stream_id queue_id start end event_id kernel_id",
                              [(4, 9, 1, 1, t, t + 400, 10 + n, 1) for n, t in SIX]),
    "rocpd_memory_copy": ("dst_agent_id src_agent_id pid stream_id queue_id start end event_id name_id size",
                          [(4, 0, 9, 1, 1, t + 500, t + 600, 10 + n, 3, 64) for n, t in SIX]),
    "rocpd_region": ("pid tid start end name_id event_id",
                     [*((9, 9, t - 50, t, 2, n) for n, t in SIX), (9, 9, 900, 7000, 5, 7)]),
}  # fmt: skip
ODD = (None, "x", b"\xff", -1, 2**63 - 1, -(2**63), float("inf"))


def write(path: Path, tables: dict[str, Any]) -> Path:
    """A database of these tables: columns and rows of each."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, (columns, rows) in tables.items():
            quoted = [f'"{name}"' for name in columns.split()]
            connection.execute(f"CREATE TABLE {table} ({', '.join(quoted)})")
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(quoted))})", rows)
    return path


def with_odd(rows: list[tuple[Any, ...]], column: int, odd: Any) -> list[tuple[Any, ...]]:
    """The rows with an odd cell in the second, or only, one."""
    at = min(1, len(rows) - 1)
    return [*rows[:at], (*rows[at][:column], odd, *rows[at][column + 1 :]), *rows[at + 1 :]]


def events(path: Path) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranks = traces(path)
    assert all((trace.events["dur_ns"] >= 0).all() for trace in ranks)
    return sum(len(trace.events) for trace in ranks)


DATABASES = {"trace.rpd": RPD, "trace.sqlite": NSYS, "9_results.db": ROCPD}
both = pytest.mark.parametrize(("name", "tables"), DATABASES.items(), ids=DATABASES)


@both
def test_an_odd_cell_costs_no_more_than_its_row(tmp_path: Path, name: str, tables: dict[str, Any]) -> None:
    before = events(write(tmp_path / name, tables))
    assert before > 10
    for table, (columns, rows) in tables.items():
        for at, column in enumerate(columns.split()):
            for odd in ODD:
                path = write(tmp_path / name, {**tables, table: (columns, with_odd(rows, at, odd))})
                assert events(path) >= before - 1, (table, column, odd)


@both
def test_missing_tables_and_columns_are_absent_facts_or_one_line(tmp_path: Path, name: str, tables: Any) -> None:
    less = [{other: given for other, given in tables.items() if other != table} for table in tables]
    for table, (columns, rows) in tables.items():
        for at, column in enumerate(columns.split()):
            kept = " ".join(other for other in columns.split() if other != column)
            less.append({**tables, table: (kept, [(*row[:at], *row[at + 1 :]) for row in rows])})
    for given in less:
        try:
            events(write(tmp_path / name, given))
        except DdprofError as error:
            assert "\n" not in str(error) and name in str(error)


def test_a_database_of_rocprofv3_states_launches_copies_and_ranges(tmp_path: Path) -> None:
    trace = one_trace(write(tmp_path / "9_results.db", ROCPD))
    assert (trace.format, trace.device.name, trace.identity.local_device) == ("rocpd", "AMD Instinct", 2)
    called = {Kind.KERNEL: "gemm", Kind.MEMCPY: "Memcpy HtoD", Kind.RUNTIME: "hipLaunchKernel"}
    for kind, name in {**called, Kind.ANNOTATION: "step 1"}.items():
        assert set(names(trace, kind)) == {name}
    for kind in called:
        assert trace.events["correlation"][trace.events["kind"] == kind].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_database_without_work_of_a_device_says_no_more(tmp_path: Path) -> None:
    work = ("rocpd_op", "rocpd_kernel_dispatch", "rocpd_memory_copy")
    for name, tables in (("a.rpd", RPD), ("a.db", ROCPD)):
        idle = {table: (columns, [] if table in work else rows) for table, (columns, rows) in tables.items()}
        with pytest.raises(DdprofError, match="of a device was recorded"):
            traces(write(tmp_path / name, idle))


def test_calls_of_a_process_that_ran_hardly_anything_on_a_device_are_not_of_its_rank(tmp_path: Path) -> None:
    work = [(101, 0, 900), (102, 0, 5), (102, 1, 900)]  # process, device, ns
    numbered = list(enumerate(work, 1))
    operations = [(n, gpu, 1, 1000 * n, 1000 * n + ns, 1, 3) for n, (_, gpu, ns) in numbered]
    calls = [(n, pid, 9, 1000 * n - 50, 1000 * n, 2) for n, (pid, _, _) in numbered]
    rows = {"rocpd_op": operations, "rocpd_api": calls, "rocpd_api_ops": [(n, n) for n, _ in numbered]}
    tables = {table: (RPD[table][0], its) for table, its in rows.items()}
    ranks = traces(write(tmp_path / "trace.rpd", {**tables, "rocpd_string": RPD["rocpd_string"]}))
    told = [(t.identity.local_device, t.identity.pid, len(names(t, Kind.RUNTIME))) for t in ranks]
    assert told == [(0, 101, 1), (1, 102, 2)]
