"""Start-up is known by what it holds, also where there is nothing to compare with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import retold
from kineto_run import Script, loaded
from labelled_runs import Labelled, Runs, serious
from retold import Events

from ddprof import intervals
from ddprof.analyzers.facts.model import GAPS, ONCE, STEPS, Once
from ddprof.analyzers.facts.stepping.start_up import book_start_up, start_up
from ddprof.report.model import Report


def cold(labelled: Runs, folder: Path, *changes: retold.Change, is_marked: bool = False) -> Labelled:
    """The first step of a healthy run, without its mark, with changes made before the rest was cut off."""

    @retold.each
    def first_step(events: Events) -> None:
        first = min((e for e in events if retold.is_mark(e)), key=lambda e: float(e["ts"]))
        limit = float(first["ts"]) + float(first["dur"])
        held = [e for e in events if "dur" not in e or float(e["ts"]) < limit]
        events[:] = [e for e in held if is_marked or not str(e["name"]).startswith("ProfilerStep")]

    return retold.told(labelled("clean.ddp"), folder, *changes, first_step)


@pytest.mark.parametrize("where", ["launch", "cudaFree", "cudaMalloc", "cudaHostRegister", "cudaStreamCreateWithFlags"])
def test_of_a_recording_of_start_up_nothing_is_said_to_recur(labelled: Runs, tmp_path: Path, where: str) -> None:
    run = cold(labelled, tmp_path, retold.held_up(0, 2e6, where))
    facts = run.job.ranks[0]
    assert intervals.length(start_up(facts.once, facts.steps)) / 1e9 == pytest.approx(2.0, rel=0.01)
    assert not run.report.findings and run.report.verdict.bound == "none"
    assert "only start-up was recorded" in run.report.verdict.headline
    assert run.report.ledger.job["other"] == pytest.approx(2e6, rel=0.01) and run.report.ledger.job["allocator"] < 1e4


def test_without_start_up_or_with_a_short_or_repeated_one_a_window_is_judged(labelled: Runs, tmp_path: Path) -> None:
    short = cold(labelled, tmp_path / "short", retold.held_up(0, 4e3, "cudaMalloc")).report
    assert short.verdict.bound == "compute" and "host.allocator" not in {f.id for f in short.findings}
    again = cold(labelled, tmp_path / "again", *[retold.held_up(0, 5e3, "cudaMalloc")] * 6)
    assert not intervals.length(start_up(again.job.ranks[0].once, again.job.ranks[0].steps))
    assert again.report.ledger.job["allocator"] > 2e4
    without = cold(labelled, tmp_path / "none").report
    assert without.ledger.job["other"] < 100 and without.verdict.bound == "compute"


def test_the_first_batch_of_a_process_that_starts_is_start_up(labelled: Runs, tmp_path: Path) -> None:
    def late_batch(ranks: Sequence[Events]) -> None:
        retold.held_up(0, 30e3, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")(ranks)
        for event in (e for events in ranks for e in events if str(e.get("name")).startswith("enumerate(DataLoader)")):
            event["cat"] = "user_annotation"

    assert cold(labelled, tmp_path / "batch", late_batch).report.ledger.job["dataloader"] > 25e3
    both = cold(labelled, tmp_path / "both", late_batch, retold.held_up(0, 5e3, "cudaMalloc")).report
    assert both.ledger.job["dataloader"] == 0 and both.ledger.job["other"] > 30e3 and not both.findings


@pytest.mark.parametrize("where", ["open", "close"])
def test_what_a_profiler_may_have_held_the_step_for_is_no_cost(labelled: Runs, tmp_path: Path, where: str) -> None:
    """Before the first work of the step, and after its last, with nothing else to compare the step with."""
    run = cold(labelled, tmp_path, retold.held_up(0, 4e3, where), is_marked=True)
    facts = run.job.ranks[0]
    assert len(labelled("clean.ddp").job.ranks[0].steps) > len(facts.steps) == 1
    assert intervals.length(start_up(facts.once, facts.steps)) / 1e6 == pytest.approx(4.0, rel=0.3)
    assert not serious(run.report)


def test_what_the_profiler_records_of_its_own_work_is_no_slow_host() -> None:
    once = ONCE.table({"start_ns": [10], "end_ns": [60], "kind": [Once.OVERHEAD], "name": [0]})
    row = {"index": [0], "start_ns": [0], "end_ns": [100], "mark_ns": [0], "mark_end_ns": [100]}
    assert intervals.length(start_up(once, STEPS.table(row))) == 50
    assert not intervals.length(start_up(once, STEPS.table({name: cell * 2 for name, cell in row.items()})))
    assert not len(book_start_up(GAPS.empty(), intervals.union(np.array([0]), np.array([10]))))


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
