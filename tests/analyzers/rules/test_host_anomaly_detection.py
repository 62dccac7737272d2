"""Autograd's anomaly mode that was left on: searches for NaN after the nodes of backward passes, stacks in forward."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cpu_loop import operators
from kineto_run import Script, in_step, loaded
from labelled_runs import candidate, candidates, run_of, serious

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.model import RankFacts

ID = "host.anomaly_detection"
NODES = 20
STACK_US = 100.0
CHECK = {"torch 2": ("isnan", "_is_any_true", "item"), "torch 1": ("isnan", "any", "is_nonzero")}
Plays = Callable[[Script, int], None]


def nothing(script: Script, number: int) -> None:
    """Twin without the mode."""


def mode(script: Script, number: int, names: tuple[str, ...] = CHECK["torch 2"]) -> None:
    """The engine's checks after each node."""
    for name in names:
        script.host(f"aten::{name}", 10.0)


def few(script: Script, number: int) -> None:
    """A script's hooks after some nodes."""
    if number % 4 == 0:
        mode(script, number)


def backward(script: Script, inside: Plays = nothing, after: Plays = nothing, before: Plays = nothing) -> None:
    """A backward pass of as many nodes as the forward pass has operators, and the gradients that it stores."""
    for number in range(NODES):
        with script.frame("autograd::engine::evaluate_function: MulBackward0", "cpu_op"):
            before(script, number)
            with script.frame("MulBackward0", "cpu_op"):
                script.host("aten::view", 1.0)
                script.host("aten::mul", 50.0)
                inside(script, number)
            after(script, number)
        script.host("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 5.0)


def on_cpu(folder: Path, plays: Plays, where: str = "after", stack_us: float = 0.0, view: str = "aten::t") -> LoadedRun:
    """Two CPU ranks of four steps."""
    ranks: list[RankFacts] = []
    for rank in range(2):
        script = Script()
        for _ in script.steps(4):
            with script.frame("DistributedDataParallel.forward", "user_annotation"):
                for _ in range(NODES // 2):
                    script.host(view, 1.0 + stack_us)
                    script.host("aten::mul", 50.0 + stack_us)
            backward(script, **{where: plays})
            with script.frame("Optimizer.step#SGD.step", "user_annotation"):
                operators(script, "_foreach_add_", count=20, dur_us=STACK_US)
        ranks.append(script.facts(folder, rank, 2, on_cpu=True))
    return run_of(ranks)


@pytest.mark.parametrize("version", CHECK)
def test_the_mode_is_told_by_checks_after_most_nodes(tmp_path: Path, version: str) -> None:
    run = on_cpu(tmp_path, lambda script, number: mode(script, number, CHECK[version]), stack_us=STACK_US)
    said, twin = candidate(ID, run.measures), on_cpu(tmp_path, nothing)
    assert said.ranks == () and said.fixes[0].suggested.startswith("False") and "at least" not in said.summary
    assert said.lost_us == pytest.approx(NODES * (STACK_US + 30.0), rel=0.01)
    gain_us = run.measures.step_us - twin.measures.step_us
    assert run.pricer.gain_us(said) == pytest.approx(gain_us, rel=0.02)
    (first, *_) = run.report.findings
    assert first.id == ID and first.by_ledger_us is not None
    assert first.recoverable_us.low < gain_us < first.recoverable_us.high and candidates(ID, twin.measures) == []


# Inside: a function of the script's own, or a composed operator. Before: hooks of tensors.
@pytest.mark.parametrize(("plays", "where"), [(mode, "inside"), (mode, "before"), (few, "after")])
def test_searches_of_the_script_are_not_the_mode(tmp_path: Path, plays: Plays, where: str) -> None:
    assert candidates(ID, on_cpu(tmp_path, plays, where).measures) == []


def test_nodes_of_a_backward_pass_inside_a_node_are_checked(tmp_path: Path) -> None:
    """A checkpoint with reentrant autograd runs a backward pass in the function of a node."""
    script = Script()
    for _ in script.steps(4):
        operators(script, "linear", count=NODES)
        with script.frame("autograd::engine::evaluate_function: CheckpointFunctionBackward", "cpu_op"):
            with script.frame("CheckpointFunctionBackward", "cpu_op"):
                operators(script, "linear", count=NODES)
                backward(script, after=mode)
            mode(script, 0)
    assert candidate(ID, run_of([script.facts(tmp_path, on_cpu=True)]).measures).lost_us == pytest.approx(NODES * 30.0)


def test_a_script_that_looks_at_its_loss_does_not_match(tmp_path: Path) -> None:
    script = Script()
    for _ in script.steps(4):
        operators(script, "linear", count=NODES)
        mode(script, 0)
        backward(script)
        for number in range(2 * NODES):
            mode(script, number)
    assert candidates(ID, run_of([script.facts(tmp_path, on_cpu=True)]).measures) == []


def test_without_views_the_gain_is_at_least_that_of_the_searches(tmp_path: Path) -> None:
    said = candidate(ID, on_cpu(tmp_path, mode, stack_us=STACK_US, view="aten::addmm").measures)
    assert "takes at least" in said.summary and said.lost_us == pytest.approx(NODES * 30.0)
    assert any("not counted" in each.text for each in said.evidence)


def searched(script: Script, number: int) -> None:
    """Checks on a device: kernels, and a value that the host waits for."""
    script.launch("isnan_kernel", op="aten::isnan")
    script.launch("any_kernel", op="aten::_is_any_true")
    with script.frame("aten::item", "cpu_op"):
        script.synchronise("cudaStreamSynchronize")


def on_devices(folder: Path, checks: Plays, ranks: tuple[int, ...] = (0, 1), stack_us: float = STACK_US) -> LoadedRun:
    """Ranks of which some (`ranks`) have the mode on, step by step."""

    def step(script: Script, rank: int, _: int) -> None:
        is_on = rank in ranks
        for _ in range(NODES):
            script.host("aten::t", 3.0 + stack_us * is_on)
            script.launch(dur_us=60.0)
        for number in range(NODES):
            with script.frame("autograd::engine::evaluate_function: MulBackward0", "cpu_op"):
                with script.frame("MulBackward0", "cpu_op"):
                    script.host("aten::t", 3.0)
                    script.launch(dur_us=60.0)
                if is_on:
                    checks(script, number)

    return loaded(in_step(2, 4, step), folder)


def test_on_devices_the_mode_explains_its_synchronizing_calls(tmp_path: Path) -> None:
    run, twin = on_devices(tmp_path, searched), on_devices(tmp_path, nothing, stack_us=0.0)
    said = candidate(ID, run.measures)
    gain_us = run.measures.step_us - twin.measures.step_us
    assert gain_us > 0.2 * run.measures.step_us and run.pricer.gain_us(said) == pytest.approx(gain_us, rel=0.2)
    assert serious(run.report) == {ID: ()} and candidates(ID, twin.measures) == []


def test_one_rank_that_has_it_on_is_named(tmp_path: Path) -> None:
    run = on_devices(tmp_path, searched, ranks=(1,))
    assert serious(run.report) == {ID: (1,)} and "on rank 1" in candidate(ID, run.measures).summary
