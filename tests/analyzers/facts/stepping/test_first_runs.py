"""Code that is compiled when it first runs compiles once; what every step prepares is none of it."""

from pathlib import Path

import pytest
from kineto_run import Script, loaded

from ddprof.report.model import Report

COMPILED = "Torch-Compiled Region: 0/0"


def report_of(folder: Path, region: str, *held_us: float, phase: str = "") -> Report:
    """Runs of a region of twelve kernels, which begin after `held_us` of one phase, or of nothing recorded."""
    script = Script()
    for held in held_us:
        with script.frame(region, "cpu_op"):
            if phase:
                script.host(phase, held)
            else:
                script.idle(held)
            for kernel in range(12):
                script.launch(f"triton_poi_fused_{kernel}", dur_us=120.0, op="aten::mm")
        script.synchronise()
    return loaded([script], folder).report


@pytest.mark.parametrize(("region", "held_us"), [(COMPILED, 364e3), ("CompiledFunction", 90e3)])
def test_a_first_run_that_compiles_is_start_up(tmp_path: Path, region: str, held_us: float) -> None:
    report = report_of(tmp_path, region, held_us, 0)
    assert "only start-up was recorded" in report.verdict.headline and not report.findings
    assert report.ledger.job["other"] == pytest.approx(held_us, rel=0.02)


def test_first_runs_of_a_script_are_left_out_of_its_steps(tmp_path: Path) -> None:
    report = report_of(tmp_path, "forward", 298e3, 364e3, 0, 0)
    assert report.verdict.bound == "compute" and not report.findings
    assert "step 0 took 299 ms (first runs of what is compiled then)" in " ".join(note.issue for note in report.health)
    report = report_of(tmp_path, COMPILED, 364e3, phase="backend_compile (dynamo_timed)")
    assert "only start-up was recorded" in report.verdict.headline


@pytest.mark.parametrize(("region", "held_us"), [(COMPILED, (364e3, 300e3)), ("aten::to", (364e3, 0))])
def test_what_is_long_again_or_eager_is_no_first_run(tmp_path: Path, region: str, held_us: tuple[float, ...]) -> None:
    report = report_of(tmp_path, region, *held_us)
    assert "only start-up" not in report.verdict.headline
    assert "compiled" not in " ".join(note.issue for note in report.health)


@pytest.mark.parametrize("api", ["cuda", "hip"])
def test_a_recording_of_a_capture_of_graphs_has_no_verdict(tmp_path: Path, api: str) -> None:
    script = Script()
    script.launch("FillFunctor", dur_us=5.0, op="aten::fill_")
    script.host(f"{api}StreamBeginCapture", 5.0, "cuda_runtime")
    for kernel in range(50):
        script.host(f"{api}LaunchKernel", 8.0, "cuda_runtime", correlation=900_000 + kernel)
        script.idle(500.0)
    script.host(f"{api}StreamEndCapture", 5.0, "cuda_runtime")
    script.host(f"{api}GraphInstantiate", 800.0, "cuda_runtime")
    script.launch("gather", dur_us=5.0, op="aten::gather")
    script.synchronise()
    report = loaded([script], tmp_path).report
    assert "only start-up was recorded (capturing graphs of kernels took 26" in report.verdict.headline
    assert not report.findings
