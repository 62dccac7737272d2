"""rocprof databases, and cells of any type and size in them and in those of Nsight: rows are left out, and said."""

import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import FORMATS, names, one_trace, traces

from ddprof.errors import DdprofError
from ddprof.model import DEVICE_KINDS, Kind
from ddprof.tables import NULL


def test_rocprof_database_and_json_agree(shared_dir: Path) -> None:
    by_format = {t.format: t for t in traces(shared_dir / FORMATS / "rocm_rpd")}
    database, text = by_format["rpd"], by_format["chrome"]
    for kind in (Kind.KERNEL, Kind.MEMCPY):
        assert len(names(database, kind)) == len(names(text, kind)) > 0
    assert set(names(text, Kind.RUNTIME)) == set(names(database, Kind.RUNTIME))
    assert database.device.kind == text.device.kind == "rocm"
    assert np.abs(np.sort(database.events["ts_ns"]) - np.sort(text.events["ts_ns"])).max() < 1000
    device = np.isin(database.events["kind"], DEVICE_KINDS)
    assert (database.events["correlation"][device] != NULL).all()
    assert database.copies["size_bytes"].max() == 2_000_000_000


def test_the_tracers_own_work_is_overhead_and_no_call_of_the_program(shared_dir: Path) -> None:
    (database,) = (t for t in traces(shared_dir / FORMATS / "rocm_rpd") if t.format == "rpd")
    own = names(database, Kind.OVERHEAD)
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
