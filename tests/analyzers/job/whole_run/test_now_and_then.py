"""Occasional time of ranks is found by the timers of all steps, whatever the traced ones hold."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captured import meeting_in_backward, with_sidecars
from cpu_loop import FORWARD, Chore, cpu_loop
from kineto_run import Script
from labelled_runs import Runs
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.job.whole_run.now_and_then import now_and_then
from ddprof.analyzers.rules.evidence.script import script_now_and_then, seen_in_passes

MS, STEP_MS, MORE_MS = 1_000_000, 20.0, 8.0


def timed(is_long: Callable[[int], bool], part: str = "rest", count: int = 50) -> dict[str, Any]:
    """Steps of 20 ms, some 8 ms longer by what a rank takes beside its passes or in forward, or for a collection."""
    steps, pauses = [], []
    for index in range(count):
        more_ms = MORE_MS if is_long(index) else 0.0
        start = int(index * 40 * MS)
        took_ms = {"data": 0.5, "forward": 5.0 + 0.2 * (index % 5), "backward": 10.0, "optimizer": 2.0}
        took_ms["forward"] += more_ms if part == "forward" else 0.0
        if part == "within":  # passes so short that their time fits into the step twice
            took_ms |= {"forward": 2.0, "backward": 4.0}
        if part == "beside":  # the optimizer's own time varies more than what comes beside it
            took_ms |= {"forward": 2.0, "backward": 4.0, "optimizer": 2.0 + 3.0 * (index % 4)}
        if part == "within":
            took_ms["optimizer"] += more_ms
        if part == "gc" and more_ms:
            pauses.append({"start_ns": start + 1, "dur_ns": int(more_ms * MS)})
        more_ms += 2 * MORE_MS * (index % 2) if part == "noisy" and index < 10 else 0.0  # traced, on a busy machine
        end = start + int((STEP_MS + 0.2 * (index % 5) + more_ms) * MS)
        parts = {f"{name}_ns": int(ms * MS) for name, ms in took_ms.items()}
        if part == "lacked":
            parts |= {"waited_ns": int((more_ms + 1.0) * MS), "forward_waited_ns": MS}
        steps.append({"index": index, "start_ns": start, "end_ns": end, "profiled": 5 <= index < 10} | parts)
    return {"steps": steps, "gc": pauses}


@pytest.mark.parametrize(
    ("part", "is_long", "often", "in_forward"),
    [
        ("rest", lambda rank, step: step % 3 == rank, 1 / 3, False),  # ranks 0, 1 and 2 in turn
        ("rest", lambda rank, step: step >= 15, 35 / 39, False),
        ("noisy", lambda rank, step: step >= 15, 35 / 39, False),
        ("rest", lambda rank, step: step % 5 == 0, 1 / 5, False),
        ("forward", lambda rank, step: step % 5 == 0, 0.0, False),
        ("forward", lambda rank, step: step % 5 == 0, 1 / 5, True),
        ("gc", lambda rank, step: step % 5 == 0, 0.0, False),  # has a rule of its own
        ("lacked", lambda rank, step: step % 5 == 0, 0.0, False),  # a CPU, for all of it
        ("rest", lambda rank, step: True, 0.0, False),  # is in the traced steps as well
    ],
)
def test_time_beyond(labelled: Runs, part: str, is_long: Callable[..., bool], often: float, in_forward: bool) -> None:
    run = labelled("clean.ddp")
    sidecars = [timed(lambda step, rank=rank: is_long(rank, step), part) for rank in range(len(run.job.ranks))]  # type: ignore[misc]
    found = now_and_then(with_sidecars(run, *sidecars).job.ranks, in_forward)
    in_turn = is_long(0, 0) and not is_long(0, 1) and is_long(1, 1)
    assert found is not None and (found.steps, found.in_turn) == (39, in_turn)
    assert found.since == (15 if is_long(0, 16) and is_long(0, 17) and not is_long(0, 1) else None)
    share = (3 if in_turn else 1) * often
    assert found.often == pytest.approx(share * 39, abs=1)
    mean_ms = STEP_MS + 0.4 + MORE_MS * often * (part in ("rest", "forward", "noisy"))
    assert found.cost == pytest.approx(share * MORE_MS / mean_ms, abs=0.012)


def test_what_one_rank_has_beyond_the_others_is_not_of_all(labelled: Runs) -> None:
    run = labelled("clean.ddp")  # all have 8 ms more in every fifth step, rank 0 in every second of the others, too
    every = [lambda step: step % 5 == 0 or step % 2 == 0, *[lambda step: step % 5 == 0] * (len(run.job.ranks) - 1)]
    timed_run = now_and_then(with_sidecars(run, *map(timed, every)).job.ranks, in_forward=False)
    assert timed_run is not None and not timed_run.in_turn
    assert timed_run.cost == pytest.approx(timed_run.times[1], abs=0.001)
    assert timed_run.times[0] > 2 * timed_run.times[1]


def called(script: Script) -> None:
    """A closure that the optimizer calls, with a function beside the passes."""
    with script.frame("train.py(30): closure"):
        with script.frame(FORWARD):
            script.host("aten::linear", 500.0)
        with script.frame("train.py(40): log_values"):
            script.idle(2_000.0)


@pytest.mark.parametrize("chore, part, often", [(called, "within", 0.2), (None, "within", 0), (called, "beside", 0.2)])
def test_time_in_a_closure(labelled: Runs, tmp_path: Path, chore: Chore | None, part: str, often: float) -> None:
    """Within an optimizer it is the script's where that calls functions of the script."""
    run, sampled = labelled("clean.ddp"), cpu_loop(tmp_path, optimizer=chore)
    timed_run = with_sidecars(run, timed(lambda step: step % 5 == 0, part))
    tables = {"script_stacks": sampled.script_stacks, "script_frames": sampled.script_frames}
    found = now_and_then([replace(facts, **tables) for facts in timed_run.job.ranks], in_forward=False)
    assert found is not None and found.cost == pytest.approx(often * MORE_MS / 22.0, abs=0.012)


def test_a_step_without_a_timer_costs_that_step_alone(labelled: Runs) -> None:
    sidecars = [timed(lambda step, rank=rank: rank == 1 and step % 5 == 0) for rank in range(4)]
    sidecars[1]["steps"][31]["forward_ns"] = None
    told = now_and_then(with_sidecars(labelled("clean.ddp"), *sidecars).job.ranks, False)
    assert told is not None and told.often >= 7 and told.times.argmax() == 1
    few = [timed(lambda step: step % 3 == 0, count=14)] * 4  # which say nothing
    assert now_and_then(with_sidecars(labelled("clean.ddp"), *few).job.ranks, in_forward=False) is None


@pytest.mark.parametrize(
    "samples, waited, is_told", [(14, 0.3, True), (14, 0.6, True), (1, 0.3, False), (3, 0.3, False)]
)
def test_what_samples_see_in_a_line_is_no_wait_for_a_cpu(
    labelled: Runs, samples: int, waited: float, is_told: bool
) -> None:
    """Ranks have 8 ms more in turn, and wait for a CPU for as long in all, or longer, which comes to no rank in turn;
    samples of the run say where they were."""
    waits = {"cpu_waits": {"run": {"dur_ns": 10**9, "cpu_ns": 10**8, "waited_ns": int(waited * 10**9)}}}
    records = [timed(lambda step, rank=rank: step % 4 == rank) | waits for rank in range(4)]
    measures = meeting_in_backward(labelled("clean.ddp"), *records)
    stacks = ("train.py", 30, "main", None), ("train.py", 12, "tidy", 0), ("torch/nn/modules/module.py", 9, "_call", 0)
    seen = totals(("forward", 2, 100 - samples), ("rest", 1, samples))
    ranks = tuple(replace(with_stacks(facts, *stacks), script_totals=seen) for facts in measures.job.ranks)
    of = replace(measures, job=replace(measures.job, ranks=ranks))
    told, beside = (
        script_now_and_then(of, us * measures.step_us) for us in (0.0, 0.4)
    )  # 0.1 in all steps, which does not come to one rank at a time
    assert (told is not None, beside is not None) == (is_told, is_told), (told, now_and_then(ranks, False))
    assert told is None or ("train.py:12 tidy()" in told.summary and told.lost_us > 0.2 * measures.step_us)


@pytest.mark.parametrize("beyond, is_told", [(0.0, True), (3.0, False)])
def test_what_takes_longer_in_every_step_is_not_told_by_what_a_few_have_more(
    labelled: Runs, beyond: float, is_told: bool
) -> None:
    """Traced steps hold three times a step of it, with what they waited for a CPU; the timers of quiet ones some."""
    measures = meeting_in_backward(labelled("clean.ddp"), timed(lambda step: step % 5 == 0))
    stacks = ("train.py", 30, "main", None), ("train.py", 12, "tidy", 0)
    ranks = (
        replace(with_stacks(facts, *stacks), script_totals=totals(("forward", 0, 60), ("rest", 1, 40)))
        for facts in measures.job.ranks
    )
    of = replace(measures, job=replace(measures.job, ranks=tuple(ranks)))
    assert (script_now_and_then(of, beyond * measures.step_us) is not None) == is_told


@pytest.mark.parametrize("phase", ["backward", "forward"])
@pytest.mark.parametrize("samples, is_told", [((30, 30, 30, 30), True), ((30, 0, 0, 0), False), ((2, 1, 2, 1), False)])
def test_python_of_hooks_is_seen_in_passes(labelled: Runs, samples: tuple[int, ...], is_told: bool, phase: str) -> None:
    records = [timed(lambda step: False) for _ in samples]
    measures = meeting_in_backward(labelled("clean.ddp"), *records)
    caller = {"backward": "torch/autograd/graph.py", "forward": "torch/nn/modules/module.py"}[phase]
    function = {"backward": "_engine_run_backward", "forward": "_call_impl"}[phase]
    stacks = (("train.py", 30, "main", None), (caller, 9, function, 0))
    stacks += (("train.py", 12, "tidy", 1), ("json/encoder.py", 5, "encode", 2))
    rates = (10, 1, 1, 1) if is_told else (1, 1, 1, 1)  # the first rank is sampled more often than the others
    seen = [
        totals((phase, 3, at * rate), (phase, 1, (100 - at) * rate)) for at, rate in zip(samples, rates, strict=True)
    ]
    ranks = zip(measures.job.ranks, seen, strict=True)
    told_of = tuple(replace(with_stacks(facts, *stacks), script_totals=totals) for facts, totals in ranks)
    told = seen_in_passes(replace(measures, job=replace(measures.job, ranks=told_of)))
    assert (told is not None) == is_told
    least = 0.3 if phase == "backward" else 0.299  # in turn or at once, and at once
    assert told is None or f"{phase} passes, in train.py:12 tidy()" in told.summary
    assert told is None or told.lost_us > least * measures.step_us
