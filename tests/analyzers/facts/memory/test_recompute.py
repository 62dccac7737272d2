"""Forward kernels in the backward pass, told from the backward pass's own."""

from __future__ import annotations

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.facts.memory.recompute import recomputed
from ddprof.analyzers.facts.work import step_of_launch

LAYERS, OPERATORS = 4, 10  # of the model in corpus.py, and of the forward pass of one of its layers


@pytest.mark.parametrize(
    ("name", "layers"),
    [("needless recomputation", LAYERS), ("recomputation of unknown use", LAYERS // 2), ("clean.ddp", 0)],
)
def test_what_runs_again(labelled: Runs, name: str, layers: int) -> None:
    """Every operator of the layers that are not kept, and no operator of backward."""
    facts = labelled(name).job.ranks[0]
    marked = recomputed(facts.device_ops, facts.strings)
    inside = step_of_launch(facts) >= 0
    assert int((marked & inside).sum()) == layers * OPERATORS * len(facts.steps)
    operators = {facts.strings[int(code)] for code in np.unique(facts.device_ops["operator"][marked])}
    assert not any("backward" in operator for operator in operators)


def test_a_pass_without_operators_says_nothing(labelled: Runs) -> None:
    facts = labelled("needless recomputation").job.ranks[0]
    unnamed = facts.device_ops.replace(operator=np.full(len(facts.device_ops), -(2**31), np.int32))
    assert not recomputed(unnamed, facts.strings).any()


def test_what_keeping_takes_is_how_much_tensors_grow_meanwhile(labelled: Runs) -> None:
    run = labelled("needless recomputation")
    memory = run.job.ranks[0].memory
    assert memory["kept_bytes"] == pytest.approx(0.4 * memory["total_bytes"], rel=0.01)
