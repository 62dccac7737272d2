"""Pipelines of CPU ranks: their messages find one another, and what schedule and slow stage cost is told apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_pipeline import CALL_US, TRANSFER_US, Pipeline

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.facts.cpu.messages import cpu_messages, holding
from ddprof.analyzers.facts.model import COMMS
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.model import MESSAGE_CALLS, ProcessGroup
from ddprof.readers import discover, read
from ddprof.tables import NULL, Table

WORK_US = 30_000.0


def loaded(pipeline: Pipeline, folder: Path) -> LoadedRun:
    (run,) = load_runs([str(pipeline.write(folder))], Options(cache=False, workers=1))
    return run


def accused(run: LoadedRun) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.id, f.ranks) for f in run.report.ranked_findings() if run.report.severity_of(f) != "info"]


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 16), (4, 32)])
def test_a_healthy_pipeline_is_seen_and_not_accused(tmp_path: Path, stages: int, microbatches: int) -> None:
    run = loaded(Pipeline([WORK_US] * stages, microbatches), tmp_path)
    assert run.job.pipeline is not None
    assert run.job.pipeline.stages == tuple((rank,) for rank in range(stages))
    assert (run.job.pipeline.microbatches, run.job.pipeline.interleave) == (microbatches, 1)
    messages = run.job.instances["is_message"]
    assert messages.sum() == 4 * 2 * microbatches * (stages - 1)  # of 4 steps, there and back
    assert (run.job.instances["members"][messages] == 2).all()
    assert run.pricer.error < 0.002
    assert [found for found in accused(run) if found[0] != "pipeline.bubble"] == []
    assert accused(run) == [] or stages == 4  # 3 of 35 slots is a bubble worth a word


def test_the_bubble_is_what_the_schedule_leaves_idle(tmp_path: Path) -> None:
    run = loaded(Pipeline([WORK_US] * 2, 8), tmp_path)
    bubble, late = run.measures.cause_us("pipeline_bubble"), run.measures.cause_us("comm_wait")
    # The last stage waits for the drain of a step at the beginning of the next: in the first it did not.
    assert bubble.tolist() == pytest.approx([WORK_US, (3 + 1 / 3) / 4 * WORK_US], rel=0.03)
    assert late.max() < 0.03 * WORK_US
    moved = run.measures.cause_us("comm_transfer")
    assert moved.max() < 2 * 8 * 2 * TRANSFER_US


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_slow_stage_is_named_and_priced(tmp_path: Path, slow: int) -> None:
    work = [WORK_US] * 3
    work[slow] *= 1.8
    pipeline = Pipeline(work, 12)
    even = Pipeline([sum(work) / 3] * 3, 12)
    run = loaded(pipeline, tmp_path)
    assert accused(run)[0] == ("pipeline.imbalance", (slow,))
    (found,) = (f for f in run.report.findings if f.id == "pipeline.imbalance")
    assert run.report.steps.wall_us == pytest.approx(pipeline.step_us, rel=0.02)
    assert found.recoverable_us.value == pytest.approx(pipeline.step_us - even.step_us, rel=0.1)


def test_few_microbatches_are_named_and_priced(tmp_path: Path) -> None:
    few, twice = Pipeline([WORK_US] * 4, 4), Pipeline([WORK_US / 2] * 4, 8)
    run = loaded(few, tmp_path)
    assert accused(run) == [("pipeline.bubble", ())]
    (found,) = (f for f in run.report.findings if f.id == "pipeline.bubble")
    assert found.recoverable_us.value == pytest.approx(few.step_us - twice.step_us, rel=0.15)


def test_without_inputs_nobody_is_accused(tmp_path: Path) -> None:
    run = loaded(Pipeline([WORK_US, 1.8 * WORK_US], 2, inputs=False), tmp_path)
    assert run.job.pipeline is None
    silent = {told.id for told in run.report.abstentions}
    assert {"pipeline.bubble", "pipeline.imbalance"} <= silent
    assert accused(run) == []


def table(rows: Sequence[tuple[str, int, int, int]]) -> Table:
    """COMMS of (operation, call, return of the call, end)."""
    missing = {c.name: np.full(len(rows), NULL if c.dtype == "int64" else 0) for c in COMMS.columns}
    op, call, returned, end = zip(*rows, strict=True)
    codes = [OP_CODE[name] for name in op]
    times = {"start_ns": call, "launch_ns": call, "launch_end_ns": returned, "end_ns": end}
    return COMMS.table({**missing, **times, "op": codes})


def test_a_message_holds_its_rank_only_while_it_is_waited_for() -> None:
    """Sent early and waited for after the next operator; then a batch; a collective as it is."""
    comms = table([("send", 0, 10, 130), ("send", 200, 210, 280), ("recv", 220, 230, 300), ("all_reduce", 0, 10, 500)])
    work = (np.array([20, 140]), np.array([120, 190]))
    held, of = holding(comms, work)
    spans = sorted(zip(of.tolist(), held["start_ns"].tolist(), held["end_ns"].tolist(), strict=True))
    assert spans == [(0, 0, 10), (0, 120, 130), (1, 200, 210), (1, 220, 280), (2, 220, 230), (2, 220, 300), (3, 0, 500)]


@pytest.mark.parametrize(
    ("groups", "peer"),
    [
        ([("0", "default_pg", (0, 1, 2, 3))], 0),
        ([("0", "default_pg", (0, 1, 2, 3)), ("1", "mesh_pp", (1, 3)), ("2", "mesh_dp", (2, 3))], 1),
        ([("5", "undefined", (1, 3))], 1),
        ([("1", "undefined", (1, 3)), ("2", "undefined", (2, 3))], 0),
    ],
)
def test_peers_are_places_in_the_group_of_the_pipeline(
    tmp_path: Path, groups: list[tuple[str, str, tuple[int, ...]]], peer: int
) -> None:
    folder = Pipeline([WORK_US] * 4, 4, steps=1).write(tmp_path)
    (found,) = discover([str(folder)]).runs
    trace = next(read(source) for source in found[1] if "rank3" in source.path)
    calls = MESSAGE_CALLS.table({"row": [7], "peer": [0], "tag": [2]})
    told = tuple(ProcessGroup(name, description, ranks) for name, description, ranks in groups)
    trace = replace(trace, message_calls=calls, process_groups=told)
    comms, messages = cpu_messages(trace, table([("all_reduce", 0, 1, 2), ("recv", 3, 4, 5)]), np.array([-1, 7]))
    assert next(iter(messages.rows())) | {"group": 0} == {
        "comm": 1, "is_send": False, "peer": peer, "group": 0, "size_bytes": None, "tag": 2
    }  # fmt: skip
    assert comms["group"][1] == messages["group"][0]


def test_the_trace_says_how_long_a_call_takes(tmp_path: Path) -> None:
    folder = Pipeline([WORK_US] * 2, 2, steps=1).write(tmp_path)
    events = json.loads((folder / "rank0.pt.trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {e["dur"] for e in events if e["name"] == "c10d::send"} == {CALL_US}
