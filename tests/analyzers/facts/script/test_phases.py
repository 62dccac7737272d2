"""An optimizer that is given a closure calls the passes, which are none of its own time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from kineto_run import Script
from sampled_stacks import totals

from ddprof.analyzers.facts.host import phase_ranges
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.script.phases import certain, host_phases, with_closures_beside
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.script.lines import training_spans
from ddprof.intervals import Intervals
from ddprof.model import SCRIPT_SPANS

MS = 1_000.0  # microseconds


def closure_loop(folder: Path) -> RankFacts:
    """Three steps that an optimizer runs: 5 ms of forward, 3 ms of loss, 7 ms of backward, 2 ms of its own."""
    script = Script()

    def run_pass(name: str, frame: str, took_ms: float) -> None:
        with script.frame(f"ddprof::{name}", "user_annotation"), script.frame(frame):
            script.host("aten::mm", took_ms * MS)

    def closure() -> None:
        with script.frame("train.py(30): closure"):
            run_pass("forward", "torch/nn/modules/module.py(1): _call_impl", 5)
            with script.frame("train.py(40): loss_of"):
                script.idle(3 * MS)
            run_pass("backward", "torch/_tensor.py(3): backward", 7)

    for _ in script.steps(3):
        step = script.frame("torch/optim/lbfgs.py(333): step")
        with script.frame("Optimizer.step#LBFGS.step", "user_annotation"), step:
            closure()
            script.host("aten::add_", 2 * MS)
        script.idle(MS)
    return script.facts(folder, on_cpu=True)


def lengths_ms(spans: Intervals) -> list[float]:
    return sorted({round(ns / 1e6, 1) for ns in (spans[1] - spans[0]).tolist()})


def test_a_closure_is_no_part_of_the_optimizer(tmp_path: Path) -> None:
    facts = closure_loop(tmp_path)
    assert lengths_ms(facts.phase_time(Phase.OPTIMIZER)) == [2.0, 3.0]  # timers, too, leave out the passes alone
    phases = host_phases(training_spans(facts), call_tree(facts), phase_ranges(facts.phases))
    assert lengths_ms(phases.optimizer) == [2.0] and lengths_ms(phases.loss) == [3.0]
    assert call_tree(facts).in_closure.sum() == 4  # closure, loss, and a frame of each pass
    facts, tree = closure_loop(tmp_path), call_tree(closure_loop(tmp_path))
    at = {tree.written[frame][2]: stack for stack, frame in enumerate(tree.frame.tolist())}
    sampled = replace(facts, script_totals=totals(("optimizer", at["loss_of"], 9), ("optimizer", at["step"], 4)))
    assert with_closures_beside(sampled).script_totals["phase"].tolist() == ["rest", "optimizer"]


def test_a_call_is_certain_from_its_first_sample_to_its_last() -> None:
    """Samples at 1000, 1100 and 1290 of one call, 100 apart as planned, then one at 1480: each stands for time beyond
    its moment, to the middle between two."""
    start, end = [950, 1195, 1385], [1195, 1385, 1530]
    spans = SCRIPT_SPANS.table(
        {"start_ns": start, "end_ns": end, "stack": [0, 1, 2], "resolution_ns": [100] * 3, "track": [0] * 3}
    )
    begun, ended = certain(spans, np.array([4, 4, 5]))
    assert begun.tolist() == [1050] and ended.tolist() == [1285]
