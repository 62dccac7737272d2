"""Limits of a recording: the work in its only step may be one-off."""

import json
from pathlib import Path
from typing import Any

import pytest

from ddprof.analyzers.engine import analyze
from ddprof.analyzers.job.scope import NOTHING_COMPUTED, ONE_STEP_LEFT
from ddprof.report.model import Report

STEP_US, OPERATOR_US, FETCH_US = 100_000, 1_000, 30_000


def span(category: str, name: str, start_us: float, length_us: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start_us, "dur": length_us}


PACES = [(50, 60, 0), (150, 60, 0), (50, 20_000, 0), (50, 20_000, 6e6), (150, 60, 6e8)]
STEP = span("user_annotation", "ProfilerStep#1", 0, STEP_US)
SEND = span("kernel", "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20_000, 70_000)


def events(steps: int) -> list[dict[str, Any]]:
    """Steps of a rank without a device, each of which waits for its batch and then computes; by time."""
    found = []
    for step, begin in enumerate(range(0, steps * STEP_US, STEP_US)):
        found.append(span("user_annotation", f"ProfilerStep#{step + 1}", begin, STEP_US))
        found.append(span("user_annotation", "enumerate(DataLoader)#_Iter.__next__", begin, FETCH_US))
        found += [span("cpu_op", "aten::mm", at, OPERATOR_US) for at in range(begin + FETCH_US, begin + STEP_US, 1_000)]
    return found


def report_of(text: str, folder: Path) -> Report:
    folder.mkdir()
    (folder / "rank0.json").write_text(text, encoding="utf-8")
    return analyze([folder])[0]


def test_the_only_step_left_or_one_in_which_no_device_computes_names_nothing(tmp_path: Path) -> None:
    assert report_of(json.dumps({"traceEvents": events(1)}), tmp_path / "whole").findings[0].id == "input.starved"
    torn = json.dumps({"traceEvents": events(2)})
    silent = report_of(torn[: int(0.7 * len(torn))], tmp_path / "torn")
    assert not silent.findings and ONE_STEP_LEFT in {abstention.reason for abstention in silent.abstentions}
    lost = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": [STEP]}
    lost["traceEvents"] += [span("cpu_op", "aten::mm", *at) for at in ((9, 59_000), (80_000, 1_000))]
    lost["traceEvents"].append(span("cuda_runtime", "cudaLaunchKernel", FETCH_US, 5))
    unmeasured = [span("kernel", "ampere_sgemm_128x64_tn", 60_000, 0)]
    took = "no cuda kernels were recorded; on the host the longest operator, aten::mm, takes 60 %, mostly its"
    for kernels, words in (([], took), (unmeasured, "no cuda kernels with a length were recorded")):
        text = json.dumps(lost | {"traceEvents": lost["traceEvents"] + kernels})
        said = report_of(text, tmp_path / f"lost{len(kernels)}").verdict.headline
        assert words in said and ("longest" in said) == (not kernels)
    fetch = span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 9, 70_000)
    fed = json.dumps(lost | {"traceEvents": [*lost["traceEvents"], fetch]})
    assert "on the host loading takes 70 %" in report_of(fed, tmp_path / "fed").verdict.headline
    # The parameters that DDP sends first are no traffic of every step.
    found = report_of(json.dumps({"traceEvents": [STEP, SEND]}), tmp_path / "first")
    assert not found.findings and NOTHING_COMPUTED in {abstention.reason for abstention in found.abstentions}
    gemm = span("kernel", "ampere_sgemm_128x64_tn", 10_000, 8_000)
    trained = report_of(json.dumps({"traceEvents": [STEP, gemm, SEND]}), tmp_path / "trained")
    assert NOTHING_COMPUTED not in {abstention.reason for abstention in trained.abstentions}


def test_what_is_left_of_a_rank_beside_ranks_with_devices_computes_nothing(tmp_path: Path) -> None:
    """Its file ends before its device's first work, the other's behind it: it is no rank that computes on its host."""
    calls = [span("cuda_runtime", "cudaLaunchKernel", 10_000 + 100 * call, 5) for call in range(50)]
    called = [event | {"args": {"correlation": max(1, at)}} for at, event in enumerate([SEND, *calls])]
    for rank, recorded in enumerate(([STEP, *called], [STEP])):
        text = json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": recorded})
        (tmp_path / f"rank{rank}.json").write_text(text, encoding="utf-8")
    found = analyze([tmp_path])[0]
    assert not found.findings and NOTHING_COMPUTED in {abstention.reason for abstention in found.abstentions}


@pytest.mark.parametrize(("length_us", "says"), [(0.13, True), (60.0, True), (6000.0, False)])
def test_nothing_is_said_of_less_than_a_launch_or_slice(tmp_path: Path, length_us: float, says: bool) -> None:
    kernel = span("kernel", "ampere_sgemm_128x64_tn", 0, length_us / 1.6)
    found = report_of(json.dumps([kernel, span("cpu_op", "aten::mm", 0, length_us)]), tmp_path / "sample")
    assert ("too little was recorded" in found.verdict.headline) == says and not (says and found.findings)


@pytest.mark.parametrize(("kernels", "us", "idle_us"), PACES)
def test_a_few_operations_in_seconds_are_no_pace(tmp_path: Path, kernels: int, us: int, idle_us: float) -> None:
    found = [span("cuda_runtime", "cudaGetDeviceCount", -idle_us, 20)] if idle_us else []
    for number in range(1, kernels + 1):
        ids = {"correlation": number, "stream": 7, "device": 0}
        found.append({**span("cuda_runtime", "cudaLaunchKernel", number * 100_000, 20), "args": ids})
        found.append({**span("kernel", "fusion", number * 100_000 + 25, us), "pid": 0, "tid": 7, "args": ids})
    report = report_of(json.dumps({"traceEvents": found}), tmp_path / "program")
    assert (f"recorded: {kernels} operations" in report.verdict.headline) == (kernels * us == 3_000 or idle_us > 0)


# A call that creates the context, its length; the kernels after it, and the time between them (us).
@pytest.mark.parametrize(
    ("call", "call_us", "kernels", "between_us", "is_judged"),
    [
        ("cudaMallocManaged", 7_200_000, (6_300_000,), 0, True),
        ("hipMalloc", 2_200_000, (20_000,) * 80, 2_000, True),
        ("cudaMalloc", 7_200_000, (60_000,) * 3, 900_000, False),  # little is computed in what is left
    ],
)
def test_a_program_that_computes_after_a_long_start_is_judged_by_that(
    tmp_path: Path, call: str, call_us: int, kernels: tuple[int, ...], between_us: int, is_judged: bool
) -> None:
    found, now_us = [span("cuda_runtime", call, 0, call_us)], call_us
    for number, length_us in enumerate(kernels, 1):
        ids = {"correlation": number, "stream": 7, "device": 0}
        found.append({**span("cuda_runtime", "cudaLaunchKernel", now_us, 20), "args": ids})
        found.append({**span("kernel", "stencil", now_us + 25, length_us), "pid": 0, "tid": 7, "args": ids})
        now_us += 25 + length_us
        found.append(span("cuda_runtime", "cudaDeviceSynchronize", now_us - length_us, length_us))
        now_us += between_us
    report = report_of(json.dumps({"traceEvents": found}), tmp_path / "program")
    assert report.verdict.bound == ("compute" if is_judged else "none") and not report.findings
    said = [words in report.verdict.headline for words in ("of the remaining", "only start-up")]
    assert said == [is_judged, not is_judged], report.verdict.headline


@pytest.mark.parametrize(("category", "tail_us"), [("cpu_op", 80_000), ("Operator", 150_000)])  # PyTorch 1.8
def test_the_end_of_the_profiler_is_no_part_of_a_step(tmp_path: Path, category: str, tail_us: int) -> None:
    found: list[dict[str, Any]] = []
    for step, begin in enumerate(range(0, 5 * STEP_US, STEP_US)):
        found.append(span(category, f"ProfilerStep#{step + 1}", begin, STEP_US + tail_us * (step == 4)))
        for at in range(begin, begin + STEP_US, OPERATOR_US):
            found += [span(category, "aten::mm", at, OPERATOR_US), {**span("kernel", "gemm_tn", at, 900), "pid": 0}]
    report = report_of(json.dumps({"traceEvents": found}), tmp_path / "tail")
    assert report.steps.wall_us == pytest.approx(STEP_US, rel=0.02)
