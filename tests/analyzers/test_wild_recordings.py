"""Real recordings, by others and of planted faults: what must be said of each, with what was measured by hand."""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from labelled_runs import only_run, serious

from ddprof.analyzers.engine import Options, analyze
from ddprof.errors import DdprofError
from ddprof.report.model import Report

Claim = Callable[[list[Report]], bool]
PREPROCESSING = "video_classification.py:129 preprocess()"
EXPOSED = 0.623  # between the marks that the device holds; between those of the host, which runs ahead of it, 0.657


def loud(reports: list[Report]) -> Iterator[Any]:
    """Findings above "info" of all reports."""
    return (f for report in reports for f in report.findings if report.severity_of(f) != "info")


def says(*starts: str) -> Claim:
    return lambda reports: any(f.id.startswith(starts) for f in loud(reports))


def not_said(start: str) -> Claim:
    return lambda reports: not says(start)(reports)


def shares(reports: list[Report]) -> list[float]:
    """Every share that a text states, in per cent."""
    texts = [text for r in reports for text in (r.verdict.headline, *(f.summary for f in r.findings))]
    return [float(share) for text in texts for share in re.findall(r"(\d+(?:\.\d+)?) %", text)]


def nothing_is_eager(reports: list[Report]) -> bool:
    """No fix says "eager" of what is compiled, or of a program in C."""
    return not any("eager" in f"{fix.current}" for r in reports for f in r.findings for fix in f.fixes)


def no_advice_to_compile(reports: list[Report]) -> bool:
    settings = [fix.setting for r in reports for f in r.findings for fix in f.fixes]
    return nothing_is_eager(reports) and not any("compile" in setting for setting in settings)


def within_reach(reports: list[Report], step_us: float) -> bool:
    """Removing what rank 0 costs gives such a step."""
    return any(abs(reports[0].predicted_step_us(f) / step_us - 1) < 0.1 for f in loud(reports) if f.ranks == (0,))


def headline_lacks(*words: str) -> Claim:
    return lambda reports: not any(word in report.verdict.headline for report in reports for word in words)


def names_line(identifier: str, line: str) -> Claim:
    """The first finding is this one and names this line of the script, in its sentence and in the headline."""
    return lambda reports: all(
        r.findings[0].id == identifier and line in r.findings[0].summary and line in r.verdict.headline for r in reports
    )


def evidence_lacks(*words: str) -> Claim:
    return lambda reports: not any(w in e.text for r in reports for f in r.findings for e in f.evidence for w in words)


def within_idle_after_calls(reports: list[Report]) -> bool:
    """The gain of host.sync is no more than the idle time that its evidence states, and what blocks is named."""
    told = [(r, f) for r in reports for f in loud([r]) if f.id == "host.sync"]
    shares = [float(re.findall(r"([\d.]+) % of each step", f.evidence[0].text)[0]) for _, f in told]
    gains = [100 * f.recoverable_us.value / r.steps.wall_us for r, f in told]
    named = all("aten::nonzero" in f.evidence[0].text for _, f in told)
    return named and all(gain <= share for gain, share in zip(gains, shares, strict=True))


def step_of(least_us: float, most_us: float) -> Claim:
    return lambda reports: all(least_us <= report.steps.wall_us <= most_us for report in reports)


def blames(rank: int) -> Claim:
    return lambda reports: any(f.ranks == (rank,) for f in loud(reports))


def exposed_communication(reports: list[Report]) -> bool:
    job = reports[0].ledger.job
    share = (job["comm_transfer"] + job.get("comm_wait", 0.0)) / job["wall_us"]
    return abs(share - EXPOSED) < 0.03 and reports[0].verdict.bound == "communication"


# Recordings (folders below `wild/recordings`) and what is claimed of them.
CASES = (
    ("unrelated_two_runs", "no allocator", not_said("host.allocator")),
    ("ab_pair", "no share above 100 %", lambda rs: max(shares(rs)) <= 100.0),
    ("ab_pair", "the loader", says("input.starved")),
    ("cold_first_step_loader", "the step of the warm steps", step_of(146e3, 194e3)),
    ("cold_first_step_loader", "the unnamed device", lambda rs: all(r.run.device == "cuda" for r in rs)),
    ("cold_first_step_loader", "not launch-bound", headline_lacks("launch")),
    ("cold_first_step_loader", "the loader", says("input.starved")),
    ("cold_with_collectives", "not launch-bound", not_said("host.launch_bound")),
    (
        "stream_busy_before_recording",
        "busy from its first kernel on",
        lambda rs: all(r.ledger.job["compute"] > 0.8 * r.ledger.job["wall_us"] for r in rs),
    ),
    ("stream_busy_before_recording", "no start-up", headline_lacks("start-up", "loading code")),
    ("preprocessing_in_python", "no waiting for one another", headline_lacks("wait for one another")),
    ("preprocessing_in_python", "the input, by its line", names_line("input.starved", PREPROCESSING)),
    ("preprocessing_in_python", "an inference does not train", headline_lacks("training")),
    ("first_cuda_call", "no allocator", not_said("host.allocator")),
    ("first_cuda_call", "nothing to compile", no_advice_to_compile),
    ("host_stalls_tp8", "stalls", says("host.stalled")),
    ("host_stalls_tp8", "compiled already", no_advice_to_compile),
    ("host_stalls_tp8", "not bound by bandwidth", not_said("comm.bandwidth_bound")),
    ("one_slow_worker_64", "rank 0", blames(0)),
    ("one_slow_worker_64", "the published step without it", lambda rs: within_reach(rs, 23.45e6)),
    ("horovod_late_rank_24", "rank 9", blames(9)),
    ("horovod_late_rank_24", "rank 0 was late once", lambda rs: not any(0 in f.ranks for f in loud(rs))),
    ("already_compiled", "compiled already", nothing_is_eager),
    ("documentation_sample", "too little to judge", headline_lacks("idle", "bound", "%")),
    ("unmarked_last_tail", "the step of the warm steps", step_of(118e3, 127e3)),
    ("unmarked_last_tail", "what an old profiler costs is no launch", not_said("host.launch_bound")),
    ("unrecorded_host_code", "a view does not block", evidence_lacks("as_strided", "idle around them")),
    ("unrecorded_host_code", "calls cost no more than the idle time after them", within_idle_after_calls),
    ("communication_mi300", "two thirds are exposed communication", exposed_communication),
)
REFUSED = (
    *(("flops.nsys-rep", "nsys export"), ("lfs_pointer.pt.trace.json", "git lfs pull")),
    *(("execution_trace.tar.gz", "execution trace"), ("dlprof_dldb.sqlite", "DLProf")),
    ("rocprofiler_sdk_results.json.gz", "rocprof"),
)
# The words of each folder's page: what must be printed, and what must not.
PRINTED = (
    ("unrelated_two_runs", ("only start-up was recorded",), ("STRAGGLER", "2 ranks", "was not traced", "allocates")),
    ("ab_pair", ("data loader",), ("2 ranks",)),
    ("cold_first_step_loader", ("data loader",), ("882 ms", "waits for the host to launch")),
    ("cold_with_collectives", ("only start-up was recorded",), ("waits for the host to launch",)),
    ("stream_busy_before_recording", ("93 %",), ("98 %", "loss_sum", "learning rate")),
    ("sampled_events", ("do not match",), ("aligned within", "high (", "waiting for late ranks")),
    ("already_compiled", ("waits for the host to launch",), ("eager ->", "learning rate")),
    ("text_log_long_preamble", ("takes 32.1 s", "39.3 s", "takes 32.2 s"), ("no trace found", "not a trace")),
    ("text_log_running_mean", ("takes 508 ms", "takes 752 ms"), ("77 %", "critical")),
    ("unmarked_last_tail", ("Compute-bound (82 %)", "16 % of each 121 ms step"), ("137 ms", "torch.compile(")),
    ("unrecorded_host_code", ("no event",), ("37 %", "as_strided")),
)
LARGE = "one_slow_worker_64"


@cache
def reports_of(folder: Path) -> list[Report]:
    return list(analyze([str(folder)], Options(workers=1, cache=False)))


@pytest.mark.parametrize(
    ("folder", "check"),
    [
        pytest.param(folder, check, id=f"{folder}: {claim}", marks=pytest.mark.slow if folder == LARGE else ())
        for folder, claim, check in CASES
    ],
)
def test_what_was_measured_by_hand(shared_run: Callable[[str], Path], folder: str, check: Claim) -> None:
    assert check(reports_of(shared_run(f"wild/recordings/{folder}")))


@pytest.mark.parametrize(("folder", "must", "must_not"), PRINTED, ids=[folder for folder, *_ in PRINTED])
def test_what_is_printed(shared_run: Callable[[str], Path], ddprof, folder: str, must: Any, must_not: Any) -> None:
    _, out, err = ddprof("analyze", "--no-cache", str(shared_run(f"wild/recordings/{folder}")))
    told = " ".join((out + err).split())
    assert [word for word in must if word not in told] == [] and [word for word in must_not if word in told] == []


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_other_formats_are_refused_by_name(shared_dir: Path, name: str, words: str) -> None:
    file = shared_dir / "wild" / "recordings" / "other_formats" / name
    if not file.exists():
        pytest.skip(f"{name} is not among the real traces")
    with pytest.raises(DdprofError) as refused:
        analyze([str(file)], Options(workers=1, cache=False))
    assert words.lower() in str(refused.value).replace(str(file), "").lower()


RECORDINGS = Path(__file__).parent / "recordings"
PLANTED = {file.parent.name: json.loads(file.read_text("utf-8")) for file in sorted(RECORDINGS.glob("*/truth.json"))}
# folder, bound, (finding, ranks) above info, findings that would be false accusations
TRUTHS = (
    ("multi_rank/one_allreduce_2ranks", "none", None, ("comm.", "straggler.", "host.")),  # start-up alone
    ("multi_rank/llama4_tp_rtx4090_2ranks", "communication", ("comm.bandwidth_bound", ()), ("straggler.",)),
    ("multi_rank/megatron_pp_last_stage_slow_8gpu", "pipeline", ("pipeline.imbalance", (6, 7)), ("straggler.",)),
    ("formats/horovod_timeline", "straggler", ("straggler.host", (7,)), ("comm.", "host.", "input.")),
    ("formats/nccl_profiler_jsonl", "none", None, ("",)),  # one collective, which may be the first
    ("single_rank/resnet50_v100_workers0", "input", ("input.starved", ()), ()),
    ("single_rank/resnet50_v100_workers4", "compute", ("host.launch_bound", ()), ("input.",)),
    ("single_rank/resnet_2080ti_input_bound", "input", ("input.starved", ()), ()),
    ("single_rank/ddp_a100_collective_args", "host", ("host.launch_bound", ()), ("input.", "straggler.")),
    ("single_rank/launch_bound_a100", "host", ("host.launch_bound", ()), ("input.",)),
    ("single_rank/bert_small_h100", "host", ("host.launch_bound", ()), ("input.", "comm.")),
    ("single_rank/ddp_v100_ns_timestamps", "compute", None, ("comm.", "host.", "input.", "straggler.")),
    ("single_rank/qwen_h100", "compute", None, ("comm.", "input.", "compute.")),
    ("single_rank/qwen_mi300x", "compute", None, ("comm.", "input.", "compute.")),
    ("formats/tensorflow", "none", None, ("",)),
    ("formats/flight_recorder", "none", None, ("",)),
    ("edge_cases/malformed/gpu_events_missing_rank7.json.gz", "none", None, ("",)),
    ("cpu_gloo/ddp-cnn-2r-base", "compute", None, ("",)),
    ("cpu_gloo/fsdp2-tf-2r-base", "compute", None, ("",)),
    ("cpu_gloo/ddp-cnn-2r-slowdata", "input", ("input.straggler", (1,)), ("straggler.",)),
    ("cpu_gloo/ddp-cnn-2r-slowrank", "straggler", ("straggler.host", (1,)), ("input.",)),
)


@cache
def analyzed(shared_dir: Path, name: str) -> Report:
    return only_run(shared_dir / "traces" / name).report


@pytest.mark.parametrize(("name", "bound", "expected", "false"), TRUTHS)
def test_the_verdict_on_a_real_trace(
    shared_dir: Path, name: str, bound: str, expected: tuple[str, tuple[int, ...]] | None, false: tuple[str, ...]
) -> None:
    report = analyzed(shared_dir, name)
    said = serious(report)
    assert report.verdict.bound == bound, report.verdict
    assert expected is None or said.get(expected[0]) == expected[1]
    assert not any(finding.startswith(false) for finding in said)
    for row in (*report.ledger.per_rank.values(), report.ledger.job):
        parts = sum(value for cause, value in row.items() if cause != "wall_us")
        assert parts == pytest.approx(row["wall_us"], rel=1e-3)


def test_what_was_measured_or_published_of_single_traces(shared_dir: Path) -> None:
    report = analyzed(shared_dir, "multi_rank/dlrm_ddp_v100_8ranks")
    assert "rank 7" in report.verdict.headline and {f.ranks for f in report.findings if f.ranks} >= {(7,)}
    assert report.ledger.job["comm_wait"] == pytest.approx(5_650, rel=0.05)  # us: "about 5 ms of waiting"
    assert report.ledger.job["comm_transfer"] == pytest.approx(200, rel=0.1)  # us: "about 0.2 ms is transfer"
    reasons = {"multi_rank/one_allreduce_2ranks": "only start-up was recorded"}
    for name, why in (reasons | {"formats/nccl_profiler_jsonl": "the trace records communication only"}).items():
        report = analyzed(shared_dir, name)
        (late,) = report.findings
        assert (late.id, late.ranks, report.severity_of(late)) == ("straggler.host", (0,), "info")
        assert why in report.verdict.headline
    report = analyzed(shared_dir, "multi_rank/megatron_pp_last_stage_slow_8gpu")
    (stage, _) = [f for f in report.findings if f.id in ("pipeline.imbalance", "comm.bandwidth_bound")]  # one of a role
    assert report.steps.wall_us == pytest.approx(2.173e6, rel=0.02)
    assert stage.recoverable_us.low <= 2.173e6 - 1.843e6 <= stage.recoverable_us.high * 1.05


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_fault_is_named_and_priced(name: str) -> None:
    """Nothing is named where a fault costs nothing."""
    truth, report = PLANTED[name], only_run(RECORDINGS / name / "run").report
    said, planted = serious(report), {truth["finding"]} - {None}
    assert planted <= set(said) <= {*planted, *truth["also"]}
    assert report.steps.unprofiled_us == pytest.approx(truth["step_us"], rel=0.05)
    for finding in (each for each in report.findings if each.id in planted):
        gain = finding.unprofiled_us
        assert finding.ranks == tuple(truth["ranks"])
        assert gain is not None and gain.low <= truth["step_us"] - truth["fixed_step_us"] <= gain.high
    assert report.replay.error is not None and report.replay.error < 0.01


def test_kept_recordings_are_small() -> None:
    assert sum(file.stat().st_size for file in RECORDINGS.rglob("*") if file.is_file()) < 1_100_000
