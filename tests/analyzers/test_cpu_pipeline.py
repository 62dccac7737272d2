"""Pipelines of CPU ranks: what schedule and slow stage cost is told apart; what balancing unequal sequences saves."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
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
    seen = run.job.pipeline
    assert (seen.microbatches, seen.interleave, seen.schedule) == (microbatches, 1, "Schedule1F1B")
    messages = run.job.instances["is_message"]
    assert messages.sum() == 4 * 2 * microbatches * (stages - 1)  # of 4 steps, there and back
    assert (run.job.instances["members"][messages] == 2).all() and run.pricer.error < 0.002
    assert [found for found in accused(run) if found[0] != "pipeline.bubble"] == []
    assert accused(run) == [] or stages == 4  # 3 of 35 slots is a bubble worth a word


@pytest.mark.parametrize("sends_last", [False, True])
def test_the_bubble_is_what_the_schedule_leaves_idle(tmp_path: Path, sends_last: bool) -> None:
    run = only_run(Pipeline([WORK_US] * 2, 8, sends_last=sends_last).write(tmp_path))
    bubble, late = run.measures.cause_us("pipeline_bubble"), run.measures.cause_us("comm_wait")
    # The last stage waits for the drain of a step at the beginning of the next: in the first it did not.
    assert bubble.tolist() == pytest.approx([WORK_US, (3 + 1 / 3) / 4 * WORK_US], rel=0.03)
    assert late.max() < 0.03 * WORK_US and run.measures.cause_us("comm_transfer").max() < 2 * 8 * 2 * TRANSFER_US


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
def test_a_stage_that_alone_runs_a_line_is_later_than_scheduled(tmp_path: Path, logs_us: float, in_line: bool) -> None:
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
    assert found.recoverable_us.value == pytest.approx(few.step_us - Pipeline([WORK_US / 4] * 4, 16).step_us, rel=0.15)


Lengths = npt.NDArray[np.float64]  # (steps, replicas, microbatches), s of a forward pass on the first stage
REPLICAS, MICROBATCHES, STEPS = 6, 6, 12
BACKWARD, SECOND, MESSAGE_S = 2.0, 1.1, 0.004  # times the forward pass; the second stage's work; of every message


def play(lengths: Lengths) -> tuple[float, list[dict[str, Any]]]:
    """The mean step (s), and the timeline as published ones are: of calls their transfer, once both sides are there."""
    events: list[dict[str, Any]] = []
    now = 0.0

    def span(name: str, dp: int, stage: int, begin: float, dur: float, step: int, mb: int = 0) -> float:
        lane = 1 if name.endswith(("send", "recv")) else 3 if "all" in name or "reduce" in name or "clip" in name else 0
        args = {"step": step, "mb_id": mb, "model_chunk": 0, "seq_id": mb}
        where = {"pid": dp, "tid": 10 * stage + lane, "ts": begin * 1e6, "dur": dur * 1e6}
        events.append({"ph": "X", "name": name, "cat": name, **where, "args": args})
        return begin + dur

    for step, of_step in enumerate(lengths):
        ends = np.zeros((2, len(of_step)))
        for dp, passes in enumerate(of_step):
            first, second = (span("params-all-gather", dp, stage, now, 0.003, step) for stage in (0, 1))
            first = span("forward-compute", dp, 0, first, passes[0], step, 0)
            span("forward-send", dp, 0, first, MESSAGE_S, step, 0)
            second = span("forward-recv", dp, 1, first, MESSAGE_S, step, 0)
            first = span("forward-compute", dp, 0, first + MESSAGE_S, passes[1], step, 1)
            for mb, length in enumerate(passes):
                second = span("forward-compute", dp, 1, second, SECOND * length, step, mb)
                second = span("backward-compute", dp, 1, second, BACKWARD * SECOND * length, step, mb)
                begin = max(first, second)  # both exchange at once what they have
                first = span("backward-recv", dp, 0, begin, MESSAGE_S, step, mb)
                second = span("backward-send", dp, 1, begin, MESSAGE_S, step, mb)
                if mb + 1 < MICROBATCHES:
                    span("forward-send", dp, 0, begin, MESSAGE_S, step, mb + 1)
                    span("forward-recv", dp, 1, begin, MESSAGE_S, step, mb + 1)
                first = span("backward-compute", dp, 0, first, BACKWARD * length, step, mb)
                if mb + 2 < MICROBATCHES:
                    first = span("forward-compute", dp, 0, first, passes[mb + 2], step, mb + 2)
            ends[:, dp] = first, second
        met = ends[1].max()  # of the second stage without a record; rank 0 waits for what it computed
        ends[1], ends[0, 0] = met, max(met, ends[0, 0])
        pairs = list(itertools.product(range(len(of_step)), (0, 1)))
        for dp, stage in pairs:
            ends[stage, dp] = span("layernorm-grads-all-reduce", dp, stage, ends[stage, dp], 5e-5, step)
        paired = ends.max(axis=0)
        scattered = (paired + 0.01).max() + 0.01
        for dp, stage in pairs:
            span("embedding-grads-all-reduce", dp, stage, paired[dp], 0.01, step)
            span("grads-reduce-scatter", dp, stage, scattered - 0.01, 0.01, step)
            span("optimizer-clip-main-grad", dp, stage, scattered, 0.001, step)
            now = span("optimizer", dp, stage, scattered + 0.001, 0.002, step)
    for dp, stage, lane in itertools.product(range(lengths.shape[1]), (0, 1), (0, 1, 3)):
        names = {"name": f"PP rank {stage}, TP rank 0, {lane}"}
        events.append({"ph": "M", "name": "thread_name", "pid": dp, "tid": 10 * stage + lane, "args": names})
    return now / len(lengths), events


def test_balancing_unequal_sequences_is_followed_through_a_wait_without_a_record(tmp_path: Path) -> None:
    lengths = 0.1 * np.random.default_rng(11).lognormal(0.0, 0.5, (STEPS, REPLICAS, MICROBATCHES))
    step_s, events = play(lengths)
    balanced_s, _ = play(np.broadcast_to(lengths.mean(axis=(1, 2), keepdims=True), lengths.shape))
    (tmp_path / "timeline.json").write_text(json.dumps(events))
    report = only_run(tmp_path).report
    (found,) = [f for f in report.findings if f.id == "straggler.imbalance"]
    assert report.steps.wall_us == pytest.approx(step_s * 1e6, rel=0.02) and step_s > 1.25 * balanced_s
    assert found.recoverable_us.value == pytest.approx((step_s - balanced_s) * 1e6, rel=0.05)
    assert any(f"{STEPS} times ranks stopped" in note.issue for note in report.health)
    assert report.replay.error is not None and report.replay.error < 0.01
