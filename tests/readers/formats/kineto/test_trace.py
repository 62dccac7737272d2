"""Kineto events to columns: every layout, exact times, and defects that are counted and said."""

import gzip
import re
from pathlib import Path
from typing import Any

import kineto_text as kt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import broken, healthy, issues, times, trace_of, traces

from ddprof.readers import Source, read
from ddprof.readers.files import unpacking
from ddprof.tables import NULL

pytestmark = pytest.mark.usefixtures("decoding")


def test_odd_events_are_counted_and_what_is_missing_or_off_is_said(shared_dir: Path, tmp_path: Path) -> None:
    trace = broken(shared_dir, "odd_events_negdur_nodur_strts_nullargs_rank0.json.gz")
    assert "25 negative durations" in issues(trace) and "25 events without a usable duration" in issues(trace)
    assert (trace.events["dur_ns"] >= 0).all() and len(trace.events) > 2000
    trace = broken(shared_dir, "nan_infinity_literals.json")
    assert trace.events["dur_ns"].tolist() == [0] and "1 events without a usable duration" in issues(trace)
    trace = broken(shared_dir, "empty_traceEvents.json")
    assert len(trace.events) == 0 and "error:" in issues(trace) and "no events" in issues(trace)
    trace = broken(shared_dir, "gpu_events_missing_rank7.json.gz")
    assert "kernel launches but no device events" in issues(trace) and trace.identity.rank == 7
    trace, sound = broken(shared_dir, "clock_offset_plus37s_rank6.json.gz"), healthy(shared_dir, 6)
    assert abs(int(np.median(trace.events["ts_ns"] - sound.events["ts_ns"])) - 37 * 10**9) < 10**6
    trace = trace_of(tmp_path / "t.json", [kt.span("cuLaunchKernel", 10 * at, 5, cat="") for at in range(3)])
    assert "none of its 3 events is of a kind that PyTorch's profiler writes" in issues(trace)


NAMES = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="@"), max_size=12)
EVENT = st.builds(
    kt.span, name=NAMES, ts_ns=st.integers(0, 10**13), dur_ns=st.integers(0, 10**9), correlation=st.integers(0, 2**40),
    cat=st.sampled_from(["cpu_op", "user_annotation", "cuda_runtime", "kernel"]),
    pid=st.integers(0, 3) | st.sampled_from(["a", "b"]), tid=st.integers(0, 3) | st.just("stream 7"),
)  # fmt: skip


def ns(text: str) -> int:
    return round(float(text.strip("@")) * 1000)


@settings(max_examples=60)
@given(st.lists(EVENT, min_size=2, max_size=20), st.sampled_from(kt.LAYOUTS), st.integers(40, 4000), st.booleans())
def test_round_trip_of_random_events_in_random_layouts(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any], layout: str, block: int, pack: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "trace.json"
    content = kt.render(events, layout)
    path.write_bytes(gzip.compress(content) if pack else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "BLOCK_BYTES", block)
        patch.setattr(unpacking, "_RAW_BYTES", block)
        trace = read(Source(str(path), "kineto"))
    wanted = [(e["name"], ns(e["ts"]), ns(e["dur"]), e["args"]["correlation"]) for e in events]
    assert times(trace) == sorted(wanted, key=lambda e: (e[1], -e[2])) or sorted(times(trace)) == sorted(wanted)
    assert (np.diff(trace.events["ts_ns"]) >= 0).all()
    written = {(str(e["pid"]), str(e["tid"])) for e in events}
    assert set(zip(trace.tracks["pid"].tolist(), trace.tracks["tid"].tolist(), strict=True)) == written
    no_lengths = {ns(e["dur"]) for e in events if e["cat"] == "kernel"} == {0}
    assert ["has a length" in h.issue for h in trace.health if h.severity != "info"] == [True] * no_lengths


def test_epoch_fractions_are_exact(tmp_path: Path) -> None:
    begun = [1_694_128_201_435_418_001 + i * 1_000_003 for i in range(500)]
    trace = trace_of(tmp_path / "t.json", [kt.span(f"e{i}", at, 1_001 + i) for i, at in enumerate(begun)])
    assert trace.events["ts_ns"].tolist() == begun
    assert trace.events["dur_ns"].tolist() == [1_001 + i for i in range(500)] and trace.has_base_time
    # The base time is added wherever it stands.
    base_ns, event = 1_760_000_000_000_000_000, kt.span("a", 4458676000982367, 17619)
    for layout in ("compact", "header_last", "indented"):
        trace = trace_of(tmp_path / "t.json", [event], layout, {"baseTimeNanoseconds": base_ns})
        assert trace.events["ts_ns"].tolist() == [base_ns + 4458676000982367] and trace.has_base_time
    assert not trace_of(tmp_path / "t.json", [kt.span("a", 5000, 10)]).has_base_time


def test_tracks_know_their_device_and_stream_and_events_their_old_ids(tmp_path: Path) -> None:
    events = [kt.kernel("gemm", 0, 10, device=3, stream=20), kt.span("old", 20, 10, "Kernel", 1, "stream 7")]
    named = {"ph": "M", "name": "thread_name", "pid": 99, "tid": 99, "args": {"name": "thread 99 (python)"}}
    trace = trace_of(tmp_path / "t.json", [*events, kt.span("aten::mm", 40, 10, pid=99, tid="99"), named])
    assert list(trace.tracks.rows()) == [
        {"pid": "3", "tid": "20", "name": "", "device": 3, "stream": 20},
        {"pid": "1", "tid": "stream 7", "name": "", "device": 1, "stream": 7},
        {"pid": "99", "tid": "99", "name": "thread 99 (python)", "device": None, "stream": None},
    ]
    events = [kt.span("Kernel", 0, 1, "Kernel", **{"external id": 7}), kt.span("op", 5, 1, **{"External id": 8})]
    assert trace_of(tmp_path / "t.json", events).events["external_id"].tolist() == [7, 8]
    trace = trace_of(tmp_path / "t.json", [kt.span("cudaLaunchKernel", 0, 10, "cuda_runtime", correlation=1)])
    assert [h.severity for h in trace.health if "no device events" in h.issue] == ["error"]


KINDS = {"nccl:all_to_all": "cuda", "aten::record_stream": "cuda", "gloo:all_reduce": "cpu", "aten::pin_memory": "cpu"}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_job_on_a_gpu_that_was_recorded_without_it_is_no_job_on_cpus(tmp_path: Path, name: str, kind: str) -> None:
    category = "cpu_op" if name.startswith("aten") else "user_annotation"
    trace = trace_of(tmp_path / "t.json", [kt.span("aten::mm", 0, 10), kt.span(name, 20, 10, category)])
    assert trace.device.kind == kind and ("recorded without it" in issues(trace)) == (kind == "cuda")


ASKED = ("cudaGetDeviceCount cudaStreamIsCapturing", "cudaHostAlloc cudaEventQuery hipDeviceSynchronize")
WORKED = ("cudaDeviceSynchronize cudaLaunchKernel", "cudaMemcpyAsync", "aclrtSynchronizeDevice")


@pytest.mark.parametrize("calls", [*ASKED, *WORKED])
def test_a_job_on_cpus_of_a_machine_with_a_gpu_is_one_on_cpus(tmp_path: Path, calls: str) -> None:
    kind = "cpu" if calls in ASKED else "cuda"
    spans = [kt.span(name, 20 * at + 20, 10, "cuda_runtime", correlation=at) for at, name in enumerate(calls.split())]
    header = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    assert trace_of(tmp_path / "t.json", [kt.span("aten::mm", 0, 10), *spans], header=header).device.kind == kind


def test_a_file_of_several_ranks_is_one_part_for_each(tmp_path: Path) -> None:
    events = [kt.span("aten::mm", 20 * at, 10, pid=7 + at // 2, rank=at // 2) for at in range(4)]
    of_ranks = traces(kt.write(tmp_path / "merged.json", events))
    assert [(trace.identity.rank, len(trace.events)) for trace in of_ranks] == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("event", "issue"),
    [
        *(({"dur": -5}, "1 negative durations"), ({"dur": None}, "1 events without a usable duration")),
        ({"dur": 10**14}, r"1 durations beyond a day \(overflow\)"),
        *(({"ts": None}, "1 events without a usable timestamp"), ({"ph": "B"}, "1 begin/end events")),
        *(({"ph": phase}, "1 events of an unknown phase") for phase in ("Q", "BE", "")),
        ({"cat": "kernel", "dur": 1e-320}, "none of 1 device operations has a length"),
        ({"name": "x" * (9 << 20)}, "1 names, of more than 8 million characters"),
    ],
)
def test_defects_are_counted_and_said(tmp_path: Path, event: dict[str, Any], issue: str) -> None:
    bad = {"ph": "X", "cat": "cpu_op", "name": "bad", "pid": 1, "tid": 1, "ts": 100, "dur": 5, **event}
    trace = trace_of(tmp_path / "t.json", [kt.span("good", 0, 10), bad, None])
    assert (trace.events["dur_ns"] >= 0).all() and (trace.events["dur_ns"] < 10**9).all()
    assert [h for h in trace.health if re.search(issue, h.issue)]
    assert "1 null events" in issues(trace)
    assert trace_of(tmp_path / "t.json", [kt.span("good", 0, 10), {}]).health == ()  # as rocprof begins its lists
    trace = trace_of(tmp_path / "t.json", [kt.span("child", 100, 5), kt.span("parent", 100, 50)])
    assert [t[0] for t in times(trace)] == ["parent", "child"] and trace.events["correlation"].tolist() == [NULL, NULL]
