"""A pipeline of two stages whose sequences are unequal, and a wait that left no record, which a rank of the first stage
shares: what balancing them saves."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from labelled_runs import only_run

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
