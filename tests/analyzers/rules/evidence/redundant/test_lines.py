"""The line that calls a pass, by the samples of the whole run."""

from dataclasses import replace

import pytest
from labelled_runs import Runs

from ddprof.analyzers.rules.evidence.redundant.lines import line_of_pass
from ddprof.model import SCRIPT_FRAMES, SCRIPT_STACKS, SCRIPT_TOTALS
from ddprof.tables import NULL


@pytest.mark.parametrize(
    ("phase", "samples", "said"),
    [
        *(("backward", 9, ["train.py:39 main()"]), ("forward", 9, ["train.py:37 main()"])),
        ("backward", 2, []),  # chance
        ("", 9, []),
    ],
)
def test_the_line_of_the_loop_calls_the_pass(labelled: Runs, phase: str, samples: int, said: list[str]) -> None:
    module, tensor = "torch/nn/modules/module.py", "torch/_tensor.py"
    frames = {
        "file": ["train.py", module, "model.py", "train.py", tensor],
        "line": [37, 1, 5, 39, 2],
        "function": ["main", "_call_impl", "forward", "main", "backward"],
        "is_user": [True, False, True, True, False],
    }
    totals = {"thread": [""] * 2, "phase": ["forward", "backward"], "stack": [2, 4], "samples": [samples] * 2}
    facts = replace(
        labelled("clean.ddp").job.ranks[0],
        script_frames=SCRIPT_FRAMES.table(frames),
        script_stacks=SCRIPT_STACKS.table({"frame": [0, 1, 2, 3, 4], "outer": [NULL, 0, 1, NULL, 3]}),
        script_totals=SCRIPT_TOTALS.table({**totals, "time_ns": [1] * 2, "late_ns": [0] * 2}),
    )
    assert line_of_pass(facts, phase) == said
