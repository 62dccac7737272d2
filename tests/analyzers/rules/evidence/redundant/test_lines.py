"""The line that calls a pass, by the samples of the whole run."""

from dataclasses import replace

import pytest
from labelled_runs import Runs
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.rules.evidence.redundant.lines import line_of_pass


@pytest.mark.parametrize(
    ("phase", "samples", "said"),
    [
        *(("backward", 9, ["train.py:39 main()"]), ("forward", 9, ["train.py:37 main()"])),
        ("backward", 2, []),  # chance
        ("", 9, []),
    ],
)
def test_the_line_of_the_loop_calls_the_pass(labelled: Runs, phase: str, samples: int, said: list[str]) -> None:
    module = ("torch/nn/modules/module.py", 1, "_call_impl", 0)
    forward = ("train.py", 37, "main", None), module, ("model.py", 5, "forward", 1)
    backward = ("train.py", 39, "main", None), ("torch/_tensor.py", 2, "backward", 3)
    facts = with_stacks(labelled("clean.ddp").job.ranks[0], *forward, *backward)
    seen = totals(("forward", 2, samples), ("backward", 4, samples))
    assert line_of_pass(replace(facts, script_totals=seen), phase) == said
