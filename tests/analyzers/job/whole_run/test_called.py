"""Collectives that begin after the traced steps are told by the step timers and the log of the last calls."""

from typing import Any

import pytest
from captured import on_cpu, timed_steps
from labelled_runs import Runs

from ddprof.analyzers.rules import comm_barrier, comm_latency_bound

MS = 1_000_000


def called(op: str, ms: float, since: int, every: int = 1, noted: bool = False) -> dict[str, Any]:
    """50 steps of 20 ms, of which 5 to 9 are traced; some are longer by a collective of the script."""
    calls_ns = [int(ms * MS) * (at >= since and (at - since) % every == 0) for at in range(50)]
    timed = zip(timed_steps(20 * MS + ns for ns in calls_ns), calls_ns, strict=True)
    steps = [step | {"forward_ns": 5 * MS, "backward_ns": 10 * MS, "collective_ns": ns} for step, ns in timed]
    place = {"op": op, "file": "/a/train.py", "line": 70, "function": "fit"}
    line = {**place, "size": [16, 512], "dtype": "torch.float32", "calls": 13 * len(range(since, 50, every))}
    line |= {"from_ns": steps[since]["start_ns"] + 1, "to_ns": steps[-1]["end_ns"]}
    windows = [{"start_ns": steps[5]["start_ns"], "end_ns": steps[9]["end_ns"]}]
    calls = [{**place, "entered_ns": steps[6]["start_ns"]}] if noted else []
    return {"steps": steps, "windows": windows, "last_calls": [line], "window_calls": calls}


@pytest.mark.parametrize(("op", "rule"), [("all_reduce", comm_latency_bound), ("all_gather_object", comm_barrier)])
def test_the_rule_of_its_kind_names_line_count_and_share(labelled: Runs, op: str, rule: Any) -> None:
    measures = on_cpu(labelled("clean.ddp"), called(op, 10.0, since=15))
    (found,) = [one for one in rule.detect(measures) if "outside the trace" in getattr(one, "summary", "")]
    assert f"13 {op} calls per step" in found.summary and "train.py:70 fit()" in found.summary
    # 35 of the 40 steps after the traced ones hold it, and the one after the window does not count.
    assert found.lost_us / measures.step_us == pytest.approx(35 * 10 / (39 * 20 + 35 * 10), abs=0.01)
    assert found.ranks == ()


@pytest.mark.parametrize(
    "sidecars",
    [
        (called("barrier", 10.0, since=15, noted=True),),  # the traced steps tell it
        (called("barrier", 10.0, since=15, every=9),),  # goes with saving or evaluating
        (called("barrier", 0.5, since=15),),
        (called("barrier", 0.0, since=15), called("barrier", 10.0, since=15)),  # the others wait for rank 0
    ],
)
def test_what_is_traced_rare_short_or_waiting_is_none(labelled: Runs, sidecars: tuple[dict[str, Any], ...]) -> None:
    measures = on_cpu(labelled("clean.ddp"), *sidecars)
    assert not any("outside the trace" in getattr(one, "summary", "") for one in comm_barrier.detect(measures))


@pytest.mark.parametrize(("ms", "steps", "is_found"), [(4.0, 35, True), (0.5, 35, False), (4.0, 9, False)])
def test_the_log_has_the_time_of_calls_among_many(labelled: Runs, ms: float, steps: int, is_found: bool) -> None:
    """They drown in those of a sharded model."""
    sidecar = called("all_reduce", 0.0, since=15)
    for step in sidecar["steps"]:  # more in the traced ones, by the profiler
        step["collective_ns"] = (5 + 7 * step["profiled"]) * MS
    (line,) = sidecar["last_calls"]
    others = {**line, "op": "all_gather", "line": 44, "from_ns": 11 * 20 * MS, "calls": 100}
    sidecar["window_calls"] = [{**others, "entered_ns": 0}]
    sidecar["last_calls"] = [{**line, "taken_ns": int(35 * ms * MS), "steps": steps}, others]
    measures = on_cpu(labelled("clean.ddp"), sidecar)
    found = [one for one in comm_latency_bound.detect(measures) if "outside the trace" in getattr(one, "summary", "")]
    assert bool(found) == is_found
    if found:
        assert found[0].lost_us / measures.step_us == pytest.approx(35 * ms / (40 * 20), rel=0.05)
