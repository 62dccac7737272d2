"""Python beside the phases, or at one place inside most of them, is the script's; its time is shared among lines."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from cpu_loop import FORWARD, PHASE_US, Chore, cpu_loop, operators, python, sampled
from kineto_run import Script

from ddprof import intervals
from ddprof.analyzers.facts.model import PHASES, Phase
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.script.beside import own_stacks
from ddprof.analyzers.job.script.idle import held_again, script_time, script_times
from ddprof.analyzers.job.script.lines import lines_of

chore = python(("train.py(60): first", 4_000.0), ("train.py(80): second", 1_000.0))


def test_samples_of_the_whole_run_share_the_time_that_ranges_bound_and_the_loss_is_a_part(tmp_path: Path) -> None:
    facts = sampled(cpu_loop(tmp_path, after=chore), {"first": 3_000, "second": 1_000})
    first, second = lines_of(facts, script_time(facts).stack_ns)
    assert (first.function, second.function) == ("first", "second")
    assert first.time_ns == pytest.approx(3 * second.time_ns, rel=0.01)
    assert first.time_ns + second.time_ns == pytest.approx(4 * 5e6, rel=0.01)
    facts = sampled(cpu_loop(tmp_path, after=makes_the_loss), {"first": 3_000, "cross_entropy": 1_000})
    (first,) = lines_of(facts, script_time(facts).stack_ns)
    assert first.function == "first" and first.time_ns == pytest.approx(0.75 * 4 * 5e6, rel=0.01)


def test_stacks_without_frames_in_any_step_have_no_time(tmp_path: Path) -> None:
    """Such a rank is read while its job still writes: its stacks are there, their times are not."""
    facts = cpu_loop(tmp_path, after=chore)
    bare = replace(
        facts,
        script_spans=facts.script_spans.take(np.array([], int)),
        script_totals=facts.script_totals.take(np.array([], int)),
    )
    assert len(call_tree(bare)) and script_time(bare).stack_ns.tolist() == [0.0] * len(call_tree(bare))


def scored(script: Script) -> None:
    chore(script)
    with script.frame("train.py(70): score"), script.frame(FORWARD), script.frame("model.py(9): forward"):
        operators(script, "linear", count=250)


def test_a_model_called_beside_the_passes_has_its_time(tmp_path: Path) -> None:
    """A model that is scored has 5 of 10 ms beside the phases: they are not the lines' beside it."""
    facts = sampled(cpu_loop(tmp_path, after=scored), {"first": 2_000, "forward": 2_000})
    (by_frames,) = lines_of(facts, script_time(facts).stack_ns)  # which are in the forward phase, too
    assert by_frames.function == "first" and by_frames.time_ns == pytest.approx(4 * 5e6, rel=0.05)
    begun, length = np.tile(facts.steps["start_ns"], 2), int(1e3 * PHASE_US)
    phase = np.repeat([Phase.FORWARD, Phase.BACKWARD], len(facts.steps))
    start = begun + length * (phase == Phase.BACKWARD)
    rows = {"start_ns": start, "end_ns": start + length, "phase": phase, "name": np.zeros(len(start))}
    recorded = replace(facts, phases=PHASES.table(rows))
    (line,) = lines_of(recorded, script_time(recorded).stack_ns)
    assert line.function == "first" and line.time_ns == pytest.approx(4 * 5e6, rel=0.05)


def test_a_rank_sampled_seldom_has_the_share_of_its_peer_and_one_without_phases_none(tmp_path: Path) -> None:
    ranks = [cpu_loop(tmp_path, after=chore, rank=rank) for rank in range(2)]
    times = script_times([sampled(ranks[0], {"first": 3_000, "main": 0}), sampled(ranks[1], {"main": 1}, samples=2)])
    assert times[1].share == times[0].share
    script = Script()
    for _ in script.steps(3):
        with script.frame("train.py(60): first"):
            script.host("aten::mul", 4_000.0)
    assert not script_time(script.facts(tmp_path, on_cpu=True)).stack_ns.sum()


def passes(script: Script) -> None:
    with script.frame(FORWARD), script.frame("train.py(30): forward"):
        with script.frame("train.py(31): <genexpr>"):
            script.idle(2_000.0)
        with script.frame(FORWARD):
            operators(script, "linear")
    with script.frame("train.py(90): train"), script.frame("lightning/trainer.py(5): fit"):
        script.idle(500.0)
        with script.frame(FORWARD):
            script.idle(500.0)


def test_a_models_own_forward_is_the_scripts_and_a_library_around_passes_is_not(tmp_path: Path) -> None:
    facts = cpu_loop(tmp_path, before=passes)
    tree = call_tree(facts)
    own, function = own_stacks(facts, tree), tree.frames["function"][tree.frame].astype(str)
    assert own[function == "<genexpr>"].all() and "fit" in function and not own[function == "fit"].any()


def makes_the_loss(script: Script) -> None:
    with script.frame("train.py(60): first"):
        script.idle(4_000.0)
    with script.frame("train.py(80): second"), script.frame("torch/nn/functional.py(3555): cross_entropy"):
        script.idle(1_000.0)


HELD_US = 5_000.0


def thinking(steps: tuple[int, ...], us: float = HELD_US, times: int = 1) -> Chore:
    """A forward pass that runs Python between two operators in some steps."""
    numbers = count()

    def forward(script: Script) -> None:
        number = next(numbers)
        for _ in range(times):  # micro-batches of a step
            forward_once(script, number)

    def forward_once(script: Script, number: int) -> None:
        with script.frame(FORWARD), script.frame("model.py(7): forward"):
            script.host("aten::linear", 1_000.0)
            with script.frame("model.py(30): tally"):
                script.idle(us if number in steps else 20.0)
            for _ in range(4):  # called one after the other at once, as most are
                script.host("aten::relu", 250.0)
                script.idle(10.0)

    return forward


@pytest.mark.parametrize(
    ("steps", "us", "times", "held"),
    [
        *(((0, 1, 2, 3), HELD_US, 1, True), ((0, 1, 2), HELD_US, 1, True)),
        *(((1, 3), HELD_US, 1, False), ((0, 1, 2, 3), 700.0, 1, False)),
        ((0, 1, 2, 3), 700.0, 3, True),
    ],
    ids=["each step", "most", "half", "short", "short, in each micro-batch"],
)
def test_what_holds_one_place(tmp_path: Path, steps: tuple[int, ...], us: float, times: int, held: bool) -> None:
    facts = sampled(cpu_loop(tmp_path, before=thinking(steps, us, times)), {"main": 1_000})
    found = intervals.length(held_again(facts)) / 1e3
    assert found == (pytest.approx(len(steps) * us * times, rel=0.02) if held else 0.0)
    lines = lines_of(facts, script_time(facts).stack_ns)
    assert bool(lines) == held
    if held:
        assert lines[0].words == "model.py:30 tally()"
        assert lines[0].time_ns / 1e3 == pytest.approx(len(steps) * us * times, rel=0.02)
