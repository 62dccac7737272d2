"""Pipelines of CPU ranks: what schedule and slow stage cost is told apart."""

from dataclasses import replace
from pathlib import Path

import pytest
from cpu_pipeline import TRANSFER_US, Pipeline
from labelled_runs import candidates, only_run

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.job.script.alone import Alone

WORK_US = 30_000.0


def accused(run: LoadedRun) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.id, f.ranks) for f in run.report.ranked_findings() if run.report.severity_of(f) != "info"]


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 16), (4, 32)])
def test_a_healthy_pipeline_is_seen_and_not_accused(tmp_path: Path, stages: int, microbatches: int) -> None:
    run = only_run(Pipeline([WORK_US] * stages, microbatches).write(tmp_path))
    assert run.job.pipeline is not None and run.job.pipeline.stages == tuple((rank,) for rank in range(stages))
    assert (run.job.pipeline.microbatches, run.job.pipeline.interleave) == (microbatches, 1)
    messages = run.job.instances["is_message"]
    assert messages.sum() == 4 * 2 * microbatches * (stages - 1)  # of 4 steps, there and back
    assert (run.job.instances["members"][messages] == 2).all() and run.pricer.error < 0.002
    assert [found for found in accused(run) if found[0] != "pipeline.bubble"] == []
    assert accused(run) == [] or stages == 4  # 3 of 35 slots is a bubble worth a word


def test_the_bubble_is_what_the_schedule_leaves_idle(tmp_path: Path) -> None:
    run = only_run(Pipeline([WORK_US] * 2, 8).write(tmp_path))
    bubble, late = run.measures.cause_us("pipeline_bubble"), run.measures.cause_us("comm_wait")
    # The last stage waits for the drain of a step at the beginning of the next: in the first it did not.
    assert bubble.tolist() == pytest.approx([WORK_US, (3 + 1 / 3) / 4 * WORK_US], rel=0.03)
    assert late.max() < 0.03 * WORK_US
    assert run.measures.cause_us("comm_transfer").max() < 2 * 8 * 2 * TRANSFER_US


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_slow_stage_is_named_and_priced(tmp_path: Path, slow: int) -> None:
    work = [WORK_US] * 3
    work[slow] *= 1.8
    pipeline = Pipeline(work, 12)
    even = Pipeline([sum(work) / 3] * 3, 12)
    run = only_run(pipeline.write(tmp_path))
    assert accused(run)[0] == ("pipeline.imbalance", (slow,))
    (found,) = (f for f in run.report.findings if f.id == "pipeline.imbalance")
    assert run.report.steps.wall_us == pytest.approx(pipeline.step_us, rel=0.02)
    assert found.recoverable_us.value == pytest.approx(pipeline.step_us - even.step_us, rel=0.1)


@pytest.mark.parametrize(("logs_us", "in_line"), [(0.0, False), (40_000.0, False), (40_000.0, True)])
def test_a_stage_is_late_beyond_the_schedule_where_it_alone_runs_a_line(
    tmp_path: Path, logs_us: float, in_line: bool
) -> None:
    """By which the last stage is later than its schedule asks for, whatever it computes."""
    measures = only_run(Pipeline([WORK_US] * 2, 4, steps=6, logs_us=logs_us).write(tmp_path)).measures
    first_us, last_us = measures.late_us.tolist()  # meanwhile stage 0 begins its next step
    assert first_us < 1_500.0 and logs_us / 2 <= last_us + 1_500.0 <= logs_us + 3_000.0
    alone = {1: Alone("train.py:39 journal()", "", logs_us, 0.0)} if in_line else {}
    said = candidates("straggler.host", replace(measures, alone=alone))
    assert [(one.ranks, one.ceiling_us) for one in said] == ([((1,), measures.late_us[1])] if in_line else [])
    assert all("transfers" in one.summary for one in said)


def test_messages_meet_where_steps_begin_behind_the_first_receive(tmp_path: Path) -> None:
    """A loop of sends and receives by hand: in the file of a later stage the first message is missing."""
    run = only_run(Pipeline([WORK_US, WORK_US, 1.8 * WORK_US, WORK_US], 12, at_forward=True).write(tmp_path))
    assert run.job.not_compared == "" and run.job.pipeline is not None
    assert accused(run)[0] == ("pipeline.imbalance", (2,))
    assert (run.job.instances["members"][run.job.instances["is_message"]] == 2).mean() > 0.95


def test_few_microbatches_are_named_and_priced_where_inputs_are_known(tmp_path: Path) -> None:
    run = only_run(Pipeline([WORK_US, 1.8 * WORK_US], 2, inputs=False).write(tmp_path))
    assert run.job.pipeline is None
    assert {"pipeline.bubble", "pipeline.imbalance"} <= {told.id for told in run.report.abstentions}
    assert accused(run) == []
    few = Pipeline([WORK_US] * 4, 4)
    run = only_run(few.write(tmp_path))
    assert accused(run) == [("pipeline.bubble", ())]
    (found,) = (f for f in run.report.findings if f.id == "pipeline.bubble")
    assert found.fixes[0].suggested == "16"
    many = Pipeline([WORK_US / 4] * 4, 16)
    assert found.recoverable_us.value == pytest.approx(few.step_us - many.step_us, rel=0.15)
