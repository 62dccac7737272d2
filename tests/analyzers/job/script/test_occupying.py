"""The script's function behind a cause, and whether the other ranks run it too."""

from dataclasses import replace

import pytest
from labelled_runs import Runs

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.script.occupying import calls_beside, function_of, seen_evaluating, share_within
from ddprof.model import SCRIPT_FRAMES, SCRIPT_STACKS, SCRIPT_TOTALS
from ddprof.tables import NULL, concat


@pytest.fixture
def sampled(labelled: Runs) -> RankFacts:
    """A rank seen 4 times in `main`, 3 times in `prepare`, which it calls, and 9 times in what that calls."""
    frames = {"file": ["train.py"] * 3, "line": [1, 13, 7], "function": ["main", "prepare", "crop"]}
    totals = {"thread": [""] * 3, "phase": ["rest"] * 3, "stack": [0, 1, 2], "samples": [4, 3, 9]}
    return replace(
        labelled("clean.ddp").job.ranks[0],
        script_frames=SCRIPT_FRAMES.table({**frames, "is_user": [True] * 3}),
        script_stacks=SCRIPT_STACKS.table({"frame": [0, 1, 2], "outer": [NULL, 0, 1]}),
        script_totals=SCRIPT_TOTALS.table({**totals, "time_ns": [1] * 3, "late_ns": [0] * 3}),
    )


def test_the_share_of_the_run_inside_a_function_counts_what_it_calls(sampled: RankFacts) -> None:
    function = function_of(sampled, "train.py:13 prepare()")
    assert function == ("train.py", "prepare") and share_within(sampled, function) == pytest.approx(12 / 16)
    assert share_within(sampled, ("train.py", "evaluate")) == 0.0
    few = replace(sampled, script_totals=sampled.script_totals.take(slice(0, 2)))
    assert share_within(few, ("train.py", "prepare")) is None
    assert function_of(sampled, "train.py:14 prepare()") is None  # no frame of this line


def looped(labelled: Runs, samples: int) -> RankFacts:
    """A rank whose loop trains a model, and calls `score`, which calls the model as well, so often beside the steps."""
    module = "torch/nn/modules/module.py"
    names = [("main", "train.py"), ("_call_impl", module), ("score", "train.py"), ("_call_impl", module)]
    frames = {"file": [file for _, file in names], "line": [1, 2, 30, 2], "function": [name for name, _ in names]}
    totals = {"thread": [""] * 3, "phase": ["forward", "rest", "rest"], "stack": [1, 3, 0], "samples": [50, samples, 2]}
    return replace(
        labelled("clean.ddp").job.ranks[0],
        script_frames=SCRIPT_FRAMES.table({**frames, "is_user": [True, False, True, False]}),
        script_stacks=SCRIPT_STACKS.table({"frame": [0, 1, 2, 3], "outer": [NULL, 0, 0, 2]}),
        script_totals=SCRIPT_TOTALS.table({**totals, "time_ns": [1] * 3, "late_ns": [0] * 3}),
    )


def test_a_function_that_calls_the_model_beside_the_steps_evaluates(labelled: Runs) -> None:
    seen = seen_evaluating(looped(labelled, 20))
    assert seen is not None and (seen.line, seen.samples, seen.of) == ("train.py:30 score()", 20, 72)
    facts = looped(labelled, 20)
    training = facts.script_totals.take(facts.script_totals["stack"] != 3)
    assert seen_evaluating(replace(facts, script_totals=training)) is None


def test_collectives_of_a_sharded_model_are_beside_the_passes_where_its_call_is(labelled: Runs) -> None:
    facts = looped(labelled, 20)
    met = {"thread": [""] * 2, "phase": ["collective"] * 2, "stack": [1, 3], "samples": [7, 40], "time_ns": [1] * 2}
    more = SCRIPT_TOTALS.table({**met, "late_ns": [0] * 2})
    facts = replace(facts, script_totals=concat(SCRIPT_TOTALS, [facts.script_totals, more]))
    assert calls_beside(facts) == (20 + 40, 72 + 47)
    trained = facts.script_totals.take(facts.script_totals["phase"] != "rest")
    assert calls_beside(replace(facts, script_totals=trained)) == (0, 50 + 47)
