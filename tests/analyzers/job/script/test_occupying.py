"""The call of the script behind a cause that occupies the host."""

from dataclasses import replace

from labelled_runs import Runs
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.script.occupying import calls_beside, seen_evaluating
from ddprof.model import SCRIPT_TOTALS
from ddprof.tables import concat


def looped(labelled: Runs, samples: int) -> RankFacts:
    """A rank whose loop trains a model, and calls `score`, which calls the model as well, so often beside the steps."""
    module = "torch/nn/modules/module.py"
    calls = (module, 2, "_call_impl", 0), ("train.py", 30, "score", 0), (module, 2, "_call_impl", 2)
    facts = with_stacks(labelled("clean.ddp").job.ranks[0], ("train.py", 1, "main", None), *calls)
    return replace(facts, script_totals=totals(("forward", 1, 50), ("rest", 3, samples), ("rest", 0, 2)))


def test_a_function_that_calls_the_model_beside_the_steps_evaluates(labelled: Runs) -> None:
    facts = looped(labelled, 20)
    seen = seen_evaluating(facts)
    assert seen is not None and (seen.line, seen.samples, seen.of) == ("train.py:30 score()", 20, 72)
    training = facts.script_totals.take(facts.script_totals["stack"] != 3)
    assert seen_evaluating(replace(facts, script_totals=training)) is None


def test_collectives_of_a_sharded_model_are_beside_the_passes_where_its_call_is(labelled: Runs) -> None:
    facts = looped(labelled, 20)
    met = totals(("collective", 1, 7), ("collective", 3, 40))
    facts = replace(facts, script_totals=concat(SCRIPT_TOTALS, [facts.script_totals, met]))
    assert calls_beside(facts) == (20 + 40, 72 + 47)
    trained = facts.script_totals.take(facts.script_totals["phase"] != "rest")
    assert calls_beside(replace(facts, script_totals=trained)) == (0, 50 + 47)
