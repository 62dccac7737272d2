"""Headlines of what is not sure: whether a long step comes again, whether a fix saves anything."""

from dataclasses import replace
from pathlib import Path

import pytest
from kineto_run import Script, loaded
from labelled_runs import Runs

from ddprof.analyzers.diagnose import Diagnosis
from ddprof.analyzers.verdict import verdict
from ddprof.findings import Finding, Recoverable


def headline(folder: Path, waits_us: list[float]) -> str:
    """The headline of a run whose steps compute for 36 ms and wait so long for their batch."""
    script = Script()
    for step in script.steps(len(waits_us)):
        script.host("enumerate(DataLoader)#_Iter.__next__", 500.0 + waits_us[step], "user_annotation")
        for call in range(40):
            script.launch(f"gemm{call % 5}", dur_us=900.0, op="aten::mm")
        script.synchronise()
    return loaded([script], folder).report.verdict.headline


@pytest.mark.parametrize("place", range(3))
def test_of_three_steps_one_that_waits_is_said_beside_the_others(tmp_path: Path, place: int) -> None:
    said = headline(tmp_path, [170e3 * (step == place) for step in range(3)])
    assert "36.5 ms step" in said and "a step takes 93.2 ms, with waiting for the next batch" in said
    assert f"if step {place + 1} recurs: record more steps to tell" in said


def test_of_many_steps_or_of_two_that_wait_nothing_is_left_open(tmp_path: Path) -> None:
    assert "recurs" not in headline(tmp_path, [2e6, *[0.0] * 14])
    assert "waits for its data loader" in headline(tmp_path, [0.0, 170e3, 0.0, 170e3])


def test_a_fix_that_may_save_nothing_is_no_headline_and_not_denied(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    gain = Recoverable(0.05 * run.measures.step_us, 0.0, 0.09 * run.measures.step_us)
    unsure = Finding("host.script", "Python delays kernels", (), 0.0, gain, 0.5)
    for findings, said in (((), "no fix above 3 % found"), ((unsure,), "finding 1 may save 5.0 %, or nothing")):
        words = verdict(run.measures, Diagnosis(findings, (), (), ()), run.report.steps).headline
        assert f"{said}; the longest operator, aten::" in words


@pytest.mark.parametrize(("bare", "said"), [(0.5, "step without the profiler, 20 %"), (1.0, "step, 60 %")])
def test_the_gain_is_said_of_a_step_without_the_profiler(labelled: Runs, bare: float, said: str) -> None:
    """The profiler doubles what the host takes: a fix that saves 60 % of a traced step saves 20 % of the job's."""
    run = labelled("straggler.compute")
    step_us = run.measures.step_us
    gain, outside = (Recoverable(us, 0.9 * us, 1.1 * us) for us in (0.6 * step_us, 0.2 * bare * step_us))
    finding = Finding("host.launch_bound", "the device waits", (), 0.0, gain, 0.9, unprofiled_us=outside)
    steps = replace(run.report.steps, unprofiled_us=bare * step_us)
    words = verdict(run.measures, Diagnosis((finding,), (), (), ()), steps).headline
    assert words.endswith(said)
