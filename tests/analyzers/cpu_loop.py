"""A training loop on a CPU rank, with frames: what its script does beside the phases is given by the test."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from kineto_run import Script
from sampled_stacks import totals

from ddprof.analyzers.facts.model import RankFacts

FORWARD = "torch/nn/modules/module.py(1773): _wrapped_call_impl"
BACKWARD = "torch/_tensor.py(570): backward"
OPTIMIZER = "torch/optim/sgd.py(200): step"
PHASE_US = 10_000.0

Chore = Callable[[Script], None]


def operators(script: Script, *names: str, count: int = 1, dur_us: float = 10.0) -> None:
    """Operators one after another, `count` times, with 10 us of Python after each."""
    for _ in range(count):
        for name in names:
            script.host(f"aten::{name}", dur_us)
            script.idle(10.0)


def python(*functions: tuple[str, float]) -> Chore:
    """Functions of the script, by their frames, that run Python for so many us, one after another."""

    def chore(script: Script) -> None:
        for frame, us in functions:
            with script.frame(frame):
                script.idle(us)

    return chore


def cpu_loop(
    folder: Path,
    before: Chore | None = None,
    after: Chore | None = None,
    optimizer: Chore | None = None,
    rank: int = 0,
    update: str = OPTIMIZER,
) -> RankFacts:
    """Four steps: what comes `before` the forward pass, forward, backward, what comes `after` it, and an `update` of
    the parameters, by a frame of PyTorch's optimizer or of the script's."""
    script = Script()
    begun = script.now_us
    for _ in script.steps(4):
        for chore in (before, FORWARD, BACKWARD, after):
            if isinstance(chore, str):
                with script.frame(chore):
                    script.host("aten::linear", PHASE_US)
            elif chore is not None:
                chore(script)
        with script.frame(update):
            script.host("aten::_foreach_add_", 500.0)
            if optimizer is not None:
                optimizer(script)
    script.add("train.py(120): main", "python_function", begun - 1.0, script.now_us - begun + 2.0, 1, {})
    return script.facts(folder, rank, on_cpu=True)


def sampled(facts: RankFacts, times_ns: dict[str, int], samples: int = 50) -> RankFacts:
    """The rank as if its stacks had been sampled: the whole run beside the phases found it in these functions."""
    function = facts.script_frames["function"].astype(str)
    stack = [int(np.flatnonzero(function[facts.script_stacks["frame"]] == name)[0]) for name in times_ns]
    seen = totals(*(("rest", at, samples // len(stack)) for at in stack), time_ns=list(times_ns.values()))
    spans = facts.script_spans.replace(resolution_ns=np.full(len(facts.script_spans), 5_000_000))
    return replace(facts, script_spans=spans, script_totals=seen)
