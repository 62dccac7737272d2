"""Traces of others, and kept recordings of a GPU with a planted fault: causes, ranks, gains and forbidden findings."""

import json
from functools import cache
from pathlib import Path

import pytest
from labelled_runs import only_run, serious

from ddprof.report.model import Report

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
    (stage,) = [f for f in report.findings if f.id == "pipeline.imbalance"]
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
    assert sum(file.stat().st_size for file in RECORDINGS.rglob("*") if file.is_file()) < 900_000
