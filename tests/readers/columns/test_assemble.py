"""Impossible times in a recording are left out and counted, and never overflow."""

import warnings
from pathlib import Path
from typing import Any

import kineto_text as kt
import numpy as np
import pytest
from reading import issues, trace_of

from ddprof.model import Kind
from ddprof.readers import Source, read
from ddprof.readers.numbers import FARTHEST_NS, MAX_NS, lengths_ns, near_each_other
from ddprof.tables import NULL

GOOD = [kt.kernel(f"k{n}", 1000 * n, 500, correlation=n, **{"Collective name": "allreduce"}) for n in range(1, 9)]


ODD = ("9223372036854775807", "-9223372036854775808", "4611686018427387", "-4611686018427387", "4611686018427386.999")
ODD += ("1e400", "-1e18", "1e999999999", "1e-999999999", '"1e18"', "9" * 30, "null", "true", "[]", "{}", '"x"', "-1")


@pytest.mark.usefixtures("decoding")
@pytest.mark.parametrize("field", ["ts", "dur"])
@pytest.mark.parametrize("odd", ODD)
def test_no_time_of_an_event_changes_those_of_others(tmp_path: Path, field: str, odd: str) -> None:
    path, header = tmp_path / "t.json", {"baseTimeNanoseconds": 10**18}
    text = kt.render([*GOOD, {**GOOD[0], field: "ODD"}], header=header)
    path.write_bytes(text.replace(b'"ODD"', odd.encode()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sound, damaged = trace_of(tmp_path / "sound.json", GOOD, header=header), read(Source(str(path), "kineto"))
    times_ns = damaged.events["ts_ns"].tolist()
    assert set(sound.events["ts_ns"].tolist()) <= set(times_ns) and max(times_ns) - min(times_ns) < FARTHEST_NS
    assert len(damaged.collectives) == len(damaged.events)
    assert ((damaged.events["dur_ns"] >= 0) & (damaged.events["dur_ns"] <= 86_400 * 10**9)).all()
    assert len(damaged.events) == 9 or "left out" in issues(damaged)


@pytest.mark.parametrize("base", [2**62, 2**63, 10**30, -1, "x", [], 0.5, True])
def test_a_clock_base_that_is_no_time_is_left_out_and_said(tmp_path: Path, base: Any) -> None:
    trace = trace_of(tmp_path / "t.json", GOOD, header={"baseTimeNanoseconds": base})
    assert len(trace.events) == 8 and not trace.has_base_time
    assert "the header has impossible values for baseTimeNanoseconds" in issues(trace)


def test_lengths_are_null_where_an_end_is_missing_and_never_overflow() -> None:
    start = np.array([0, 5, NULL, 3, -MAX_NS, -MAX_NS + 1, 2**63 - 1])
    end = np.array([4, 2, 9, NULL, 4, MAX_NS - 1, NULL])
    assert lengths_ns(start, end).tolist() == [4, -3, NULL, NULL, NULL, 2**63 - 2, NULL]
    # Times far from the middle one are of no recording.
    times = np.array([0, 10, FARTHEST_NS // 2, 2**61, -(2**61), NULL, 2**63 - 1])
    assert near_each_other(times).tolist() == [True, True, True, False, False, False, False]
    assert near_each_other(np.empty(0, np.int64)).tolist() == []


@pytest.mark.parametrize(
    ("external", "around", "named"),
    [
        ((7, 8), False, [NULL, NULL]),
        ((41, 8), False, [41, 8]),
        ((7, 8), True, [7, 8]),  # the operators of these numbers do hold the launches: written by another tool
    ],
)
def test_an_id_that_repeats_the_correlation_names_no_operator(tmp_path: Path, external, around: bool, named) -> None:
    events = []
    for at, number in enumerate(external):
        ids = {"correlation": 7 + at, "External id": number}
        launch = kt.span("cudaLaunchKernel", 1000 * at, 9, "cuda_runtime", **ids)
        events += [launch, kt.kernel("k", 1000 * at + 50, 500, **ids)]
    begun = [1000 * at - 5 if around else 5000 + 100 * at for at in (0, 1)]
    operators = [kt.span("aten::mm", begun[n - 7], 20, **{"External id": n}) for n in (7, 8)]
    trace = trace_of(tmp_path / "t.json", [*events, *operators])
    ids = trace.events["external_id"]
    assert ids[trace.events["kind"] == Kind.KERNEL].tolist() == named
    assert ids[trace.events["kind"] == Kind.CPU_OP].tolist() == [7, 8]
