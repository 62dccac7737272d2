"""Comparisons: change against noise, what came and went, what may not be compared."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddprof.dashboard.exhibits.compare import kernel_deltas
from ddprof.errors import NoUsableInput
from ddprof.report.comparison.compare import compare, regressions, to_json
from ddprof.report.comparison.text import comparison_headline, render_markdown, render_text
from ddprof.report.json.contract import from_contract, to_contract
from ddprof.report.model import Ledger, Report, Steps, Training, step_causes
from ddprof.significance import difference_interval
from ddprof.slices.comparison.compare_command import render_html
from ddprof.tables import Column, Schema

LEDGER = Schema("ledger", *(Column(n, "int64", "") for n in ("rank", "step", "cause", "dur_ns")))
TIMED = [
    ((120.9e3, 121.9e3), None, "same", "the traced steps alone were 30 ms faster; those of the whole run do not"),
    ((100e3, 80e3), None, "faster", "200 and 200 steps outside the trace windows"),
    ((100e3, 120e3), None, "disagree", "the traced steps alone were 30 ms faster"),
    ((100e3, 80e3), 0.4, "noise", "waited for a CPU for 40 % and 40 % of the time"),
    ((100e3, 40e3), 0.2, "faster", "200 and 200"),
]
BATCHES = [
    ("SGD", (0.1, 0.1), (64, 128), "takes 128 samples instead of 64; the learning rate stayed 0.1, by the linear"),
    ("SGD", (0.1, 0.2), (64, 128), "the learning rate went from 0.1 to 0.2, as by the linear rule"),
    ("AdamW", (1e-3, 1e-3), (64, 256), "by the square root rule (Malladi 2022) it would be 0.002"),
    ("AdamW", (1e-3, None), (64, 256), "its learning rate is not known"),
    ("SGD", (0.1, 0.1), (64, 64), "takes 64 samples in both runs"),
    ("SGD", (0.1, 0.1), (64, None), ""),
]


def _run(report: Report, steps_us: list[float], loader_us: list[float]) -> Report:
    """The report with these steps, whose compute is what the loader leaves."""
    compute = [step - wait for step, wait in zip(steps_us, loader_us, strict=True)]
    wall, wait = float(np.mean(steps_us)), float(np.mean(loader_us))
    job = {"wall_us": wall, "compute": wall - wait, "dataloader": wait}
    ledger = Ledger({0: job}, job, {"compute": tuple(compute), "dataloader": tuple(loader_us)})
    return dataclasses.replace(
        report, steps=Steps(len(steps_us), "profiler_step", wall, tuple(steps_us)), ledger=ledger
    )


def _of_world(report: Report, size: int) -> Report:
    return dataclasses.replace(report, run=dataclasses.replace(report.run, world_size=size))


@pytest.fixture
def slow(straggler_report: Report) -> Report:
    return _run(straggler_report, [100e3, 101e3, 99e3, 100e3, 100e3], [30e3, 31e3, 29e3, 30e3, 30e3])


@pytest.fixture
def fast(straggler_report: Report) -> Report:
    run = _run(straggler_report, [71e3, 70e3, 70e3, 69e3, 70e3], [1e3, 0.0, 0.0, 0.0, 0.0])
    return dataclasses.replace(run, findings=())


def test_the_changed_cause_is_named_in_all_forms(slow: Report, fast: Report) -> None:
    result = compare(slow, fast)
    assert (result.step.outcome, result.step.change_us) == ("faster", pytest.approx(-30e3))
    assert (result.causes[0].name, result.causes[0].outcome) == ("dataloader", "faster")
    assert {d.name: d.outcome for d in result.causes}["compute"] == "same"
    assert [f.id for f in result.gone] == ["input.straggler"] and result.new == result.differences == ()
    assert "Faster by 30 ms per step (30 %), mostly data loader" in comparison_headline(result)
    for text in (render_text(result), render_markdown(result), render_html(result)):
        assert "30 ms" in text and "data loader" in text
    assert json.loads(json.dumps(to_json(result), allow_nan=False))["step"]["change_us"] == -30000.0


def test_noise_and_few_steps_are_said(slow: Report, straggler_report: Report) -> None:
    times_us = np.array([100e3, 120e3, 80e3, 110e3, 90e3])
    before, after = (_run(straggler_report, [*(times_us + more_us)], [0.0] * 5) for more_us in (0.0, 3e3))
    assert compare(before, after).step.outcome == "noise"
    result = compare(slow, _run(straggler_report, [50e3, 50e3], [0.0, 0.0]))
    assert result.step.outcome == "unknown" and any("only 2 step" in note for note in result.notes)


def _timed(report: Report, mean_us: float, waited: float | None = None) -> Report:
    """The report of a run whose steps took so long in its ten parts, to within 1 %."""
    parts = tuple(mean_us * (1 + 0.01 * (-1) ** part) for part in range(10))
    steps = dataclasses.replace(report.steps, timed_us=parts, timed=200, waited_share=waited)
    return dataclasses.replace(report, steps=steps)


@pytest.mark.parametrize(("times_us", "waited", "outcome", "words"), TIMED)
def test_the_timers_of_the_whole_run_decide(slow: Report, fast: Report, times_us, waited, outcome, words) -> None:
    before, after = (_timed(*one, waited) for one in zip((slow, fast), times_us, strict=True))
    result = compare(from_contract(to_contract(before)), from_contract(to_contract(after)))
    assert result.step.outcome == outcome and any(words in note for note in result.notes), result.notes
    assert (result.step.before_us, result.step.after_us) == pytest.approx(times_us)
    assert to_json(result)["step_by"] == "timers" and to_json(result)["traced_step"]["change_us"] == -30000.0
    assert (outcome == "disagree") is comparison_headline(result).startswith("Not judged")
    assert not regressions(result, (5.0, "%")) or outcome == "slower"
    for low_us, says in ((-7_700.0, False), (1_000.0, True)):  # chance is no regression, whatever its size
        step = dataclasses.replace(result.step, after_us=result.step.before_us + 6_000.0, low_us=low_us, outcome="same")
        assert bool(regressions(dataclasses.replace(result, step=step), (5.0, "ms"))) is says


def test_equal_jobs_on_a_busy_machine_are_not_called_different(straggler_report: Report) -> None:
    """Steps of 40 real jobs on a busy machine: the first half of each against the second, which is the same job."""
    kept = json.loads(Path(__file__).with_name("busy_runs.json").read_text())
    halves = ((np.split(np.array(run["steps_us"]), 2), run["waited"]) for run in kept)
    outcomes = [compare(*(_half(straggler_report, steps, waited) for steps in half)) for half, waited in halves]
    called = [found.step.outcome for found in outcomes if found.step.outcome in ("slower", "faster")]
    assert len(outcomes) == 40 and all(found.is_timed for found in outcomes) and len(called) <= 2


def _half(report: Report, steps_us: Any, waited: float) -> Report:
    """The report of a run of these steps, of which the last five were traced."""
    traced, parts = tuple(map(float, steps_us[-5:])), tuple(steps_us.reshape(6, 3).mean(axis=1).tolist())
    steps = Steps(5, "profiler_step", float(np.mean(traced)), traced, timed_us=parts, timed=18, waited_share=waited)
    return dataclasses.replace(report, steps=steps)


def test_different_jobs_are_not_comparable_and_a_run_without_steps_is_refused(slow: Report, fast: Report) -> None:
    other = dataclasses.replace(fast, run=dataclasses.replace(fast.run, world_size=8, device_name="NVIDIA A100"))
    assert len(compare(slow, other).differences) == 2 and to_json(compare(slow, other))["comparable"] is False
    with pytest.raises(NoUsableInput, match="no measured step"):
        compare(slow, dataclasses.replace(slow, steps=Steps(0, "none", float("nan"))))


def test_intervals_cover_the_truth_and_kernels_are_compared_by_the_noise_of_their_steps() -> None:
    random = np.random.default_rng(7)
    drawn = ([random.normal(mean, 5, 10).tolist() for mean in (100, 103)] for _ in range(300))
    intervals = [interval for one in drawn if (interval := difference_interval(*one)) is not None]
    assert len(intervals) == 300 and 0.88 <= sum(low <= 3 <= high for low, high in intervals) / 300 <= 0.99
    mm, gone, add = (("mm", "compute"), ("gone", "compute"), ("add", "compute"))
    before = {mm: [10.0, 11.0, 10.5], gone: [5.0] * 3, add: [1.0] * 3}
    after = {mm: [14.0, 15.0, 14.5], add: [1.1] * 3}
    outcomes = [(kernel[0], delta.outcome) for kernel, delta in kernel_deltas(before, after, 100.0)]
    assert outcomes == [("gone", "faster"), ("mm", "slower"), ("add", "same")]
    assert kernel_deltas({}, {("new", "compute"): [3.0] * 3}, 100.0)[0][1].before_us == 0.0


def test_step_causes_come_from_the_ledger_and_survive_the_document(straggler_report: Report, slow: Report) -> None:
    rows = {"rank": [0, 0, 1, 1, 0], "step": [0, 1, 0, 1, 0], "cause": [0, 0, 0, 0, 4]}
    table = LEDGER.table({**rows, "dur_ns": [10_000, 20_000, 30_000, 40_000, 5_000]})
    causes = step_causes(dataclasses.replace(straggler_report, tables={"ledger": table}))
    assert (causes["compute"], causes["dataloader"]) == ((20.0, 30.0), (2.5, 0.0))
    assert step_causes(from_contract(json.loads(json.dumps(to_contract(slow))))) == step_causes(slow)


def test_runs_on_more_ranks_give_the_scaling_efficiency(slow: Report) -> None:
    small, large = _of_world(slow, 2), _of_world(_run(slow, [125e3] * 5, [30e3] * 5), 8)
    for result in (compare(small, large), compare(large, small)):
        assert result.scaling is not None and (result.scaling.small, result.scaling.large) == (2, 8)
        assert (result.scaling.weak, result.scaling.strong) == (pytest.approx(0.8), pytest.approx(0.2))
        assert "efficiency from 2 to 8 ranks: 80 % if each" in " ".join(render_text(result).split())
        assert to_json(result)["scaling"]["weak"] == pytest.approx(0.8)
    assert compare(slow, slow).scaling is None


@pytest.mark.parametrize(("optimizer", "rates", "samples", "words"), BATCHES)
def test_another_number_of_ranks_says_what_becomes_of_the_batch(slow: Report, optimizer, rates, samples, words) -> None:
    reports = []
    for world, rate, of in zip((4, 8), rates, samples, strict=True):
        training = Training(samples_per_step=of, learning_rate=rate, optimizer=optimizer)
        reports.append(dataclasses.replace(_of_world(slow, world), training=training))
    notes = compare(*reports).notes
    assert any(words in note for note in notes) if words else not any("optimizer step" in note for note in notes)
    assert not any("optimizer step" in note for note in compare(reports[0], reports[0]).notes)
