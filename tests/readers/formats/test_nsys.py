"""Nsight Systems exports."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from reading import FORMATS, issues, names, refusal, traces

from ddprof.model import DEVICE_KINDS, Kind
from ddprof.tables import NULL

# File -> kernels of each rank.
KERNELS = {"h100_2gpu_1s": [1721, 1721], "mfu_2gpu_before": [1993, 2017]}
KERNELS |= {"nsys_2024_h200_report1": [18], "nvtx_only_old_export": [0]}


@pytest.mark.parametrize(("name", "kernels"), KERNELS.items())
def test_nsys(shared_dir: Path, name: str, kernels: list[int]) -> None:
    found = traces(shared_dir / FORMATS / "nsys_sqlite" / f"{name}.sqlite.gz")
    assert [len(names(t, Kind.KERNEL)) for t in found] == kernels
    assert [t.identity.rank for t in found] == list(range(len(kernels)))
    for trace in found:
        assert trace.has_base_time and (trace.events["dur_ns"] >= 0).all()
        device = np.isin(trace.events["kind"], DEVICE_KINDS)
        calls = trace.events["correlation"][trace.events["kind"] == Kind.RUNTIME]
        assert not device.any() or np.isin(trace.events["correlation"][device], calls).any()
        assert not any(n.endswith("_v7000") for n in names(trace, Kind.RUNTIME))
        operators = names(trace, Kind.CPU_OP)  # ranges of torch
        assert not any("op_id" in n for n in operators)
        if name == "h100_2gpu_1s" and trace is found[0]:
            assert "aten::view" in operators
            assert (trace.events["external_id"][trace.events["kind"] == Kind.CPU_OP] != NULL).any()


def test_an_empty_capture_says_that_it_is_empty(shared_dir: Path) -> None:
    said = refusal(shared_dir / FORMATS / "nsys_sqlite" / "empty_capture.sqlite.gz")
    assert "the capture is empty: no kernels and no NVTX ranges" in said


@pytest.mark.parametrize(
    ("calls", "said"),
    [([(0, 5), (7, 9)], "2 calls of the operating system and 2 calls of CUDA"), ([], "the capture is empty")],
)
def test_a_capture_of_calls_alone_is_not_called_empty(tmp_path: Path, calls: list[tuple[int, int]], said: str) -> None:
    with sqlite3.connect(tmp_path / "report1.sqlite") as made:
        made.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        for table in ("OSRT_API", "CUPTI_ACTIVITY_KIND_RUNTIME"):
            made.execute(f"CREATE TABLE {table} (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER)")
            made.executemany(f"INSERT INTO {table} VALUES (?, ?, 1, 1)", calls)
    told = refusal(tmp_path / "report1.sqlite")
    assert said in told and ("empty" in told) == (not calls)


def test_kernels_without_a_process_are_said_to_have_none_and_are_no_damage(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "report1.sqlite") as made:
        made.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        made.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER)")
        made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 5, 0)")
    told = refusal(tmp_path / "report1.sqlite")
    assert "no column globalPid" in told and "damaged" not in told


_KERNELS = "(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER)"


def _capture(path: Path, **rows: list[tuple[int, int, int, int]]) -> Path:
    """A capture with kernels, or graphs: (start, end, device, pid) of each."""
    with sqlite3.connect(path) as made:
        for table, spans in rows.items():
            made.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_{table} {_KERNELS}")
            values = [(start, end, device, 7, at, pid << 24) for at, (start, end, device, pid) in enumerate(spans)]
            made.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (?, ?, ?, ?, ?, ?)", values)
    return path


@pytest.mark.parametrize("kernels", [[(100, 110, 0, 111)], []])
def test_launches_of_cuda_graphs_are_device_time(tmp_path: Path, kernels: list[tuple[int, int, int, int]]) -> None:
    graphs = [(200, 900, 0, 111), (1000, 1700, 0, 111)]
    (trace,) = traces(_capture(tmp_path / "report1.sqlite", KERNEL=kernels, GRAPH_TRACE=graphs))
    assert names(trace, Kind.KERNEL) == ["kernel"] * len(kernels) + ["CUDA graph"] * 2
    assert trace.events["dur_ns"].sum() == 1400 + 10 * len(kernels)
    assert "2 launches of CUDA graphs were recorded as one operation each" in issues(trace)
    assert "no kernels" not in issues(trace)


def test_a_device_on_which_a_process_ran_hardly_anything_is_no_rank(tmp_path: Path) -> None:
    stray = [(10, 11, 0, 102), (10, 11, 0, 103), (10, 2**62, 0, 103)]  # the last one's end is damage
    own = [(100, 1000, device, 101 + device) for device in range(3)]
    ranks = traces(_capture(tmp_path / "report1.sqlite", KERNEL=[*stray, *own, (1100, 1000, 3, 104)]))
    assert [(t.identity.rank, t.identity.pid, t.identity.local_device) for t in ranks] == [
        (at, 101 + at, at) for at in range(4)
    ]
    told = ["a few kernels on other devices too: 0" in issues(trace) for trace in ranks]
    assert told == [False, True, True, False]


def test_a_range_called_backward_is_the_scripts_own(tmp_path: Path) -> None:
    texts = ["Forward", "Backward", "loss Backward", "AddmmBackward0", "MulBackward, seq = 5, op_id = 7"]
    with sqlite3.connect(tmp_path / "report1.sqlite") as made:
        made.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType, globalTid INTEGER, text TEXT)")
        rows = [(at * 10, at * 10 + 9, 59, 111 << 24, text) for at, text in enumerate(texts)]
        made.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", rows)
    (trace,) = traces(tmp_path / "report1.sqlite")
    assert names(trace, Kind.ANNOTATION) == texts[:3]
    assert names(trace, Kind.CPU_OP) == ["AddmmBackward0", "MulBackward"]
