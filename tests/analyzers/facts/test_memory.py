"""Forward kernels in the backward pass, told from the backward pass's own."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs, sample_run

from ddprof.analyzers.facts.memory import peak_parts, recomputed
from ddprof.analyzers.facts.model import PHASES, Phase, RankFacts
from ddprof.analyzers.facts.work import step_of_launch

LAYERS, OPERATORS = 4, 10  # of the model in corpus.py, and of the forward pass of one of its layers
MIB = 2**20


@pytest.mark.parametrize(
    ("name", "layers"),
    [("needless recomputation", LAYERS), ("recomputation of unknown use", LAYERS // 2), ("clean.ddp", 0)],
)
def test_what_runs_again(labelled: Runs, name: str, layers: int) -> None:
    """Every operator of the layers that are not kept, and no operator of backward."""
    facts = labelled(name).job.ranks[0]
    marked = recomputed(facts.device_ops, facts.strings)
    assert int((marked & (step_of_launch(facts) >= 0)).sum()) == layers * OPERATORS * len(facts.steps)
    operators = {facts.strings[int(code)] for code in np.unique(facts.device_ops["operator"][marked])}
    assert not any("backward" in operator for operator in operators)


def test_a_pass_without_operators_says_nothing_and_keeping_takes_what_tensors_grow(labelled: Runs) -> None:
    facts = labelled("needless recomputation").job.ranks[0]
    unnamed = facts.device_ops.replace(operator=np.full(len(facts.device_ops), -(2**31), np.int32))
    assert not recomputed(unnamed, facts.strings).any()
    assert facts.memory["kept_bytes"] == pytest.approx(0.4 * facts.memory["total_bytes"], rel=0.01)


def test_the_parts_sum_to_the_peak_and_each_phase_has_what_it_added() -> None:
    facts = sample_run("full_memory").job.ranks[0]
    found = peak_parts(facts)
    assert found is not None and found.before + sum(found.grown) == found.peak == facts.memory["peak_allocated_bytes"]
    found = peak_parts(_with_totals(facts, 100, 160, 150, 190, 100))
    assert found is not None and found.phase == "optimizer" and found.step == 0 and found.before == 100 * MIB
    assert [part // MIB for part in found.grown] == [60, -10, 40, 0]  # forward, backward, optimizer, elsewhere
    assert peak_parts(replace(facts, phases=PHASES.empty(), engine_passes=facts.engine_passes.take([]))) is None
    assert peak_parts(replace(facts, memory={})) is None


def _with_totals(facts: RankFacts, *totals_mib: int) -> RankFacts:
    """The rank with a phase each quarter of its first step, and totals before it and in the middle of each."""
    start, end = int(facts.steps["mark_ns"][0]), int(facts.steps["mark_end_ns"][0])
    quarter = (end - start) // 4
    begin = [start, start + quarter, start + 2 * quarter]
    phases = {"start_ns": begin, "end_ns": [at + quarter for at in begin], "name": [0, 0, 0]}
    phases = PHASES.table({**phases, "phase": [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]})
    at = [start - 1, *(at + quarter // 2 for at in (*begin, start + 3 * quarter))]
    curve = {"at_ns": at[: len(totals_mib)], "allocated_bytes": [value * MIB for value in totals_mib]}
    return replace(facts, phases=phases, memory={"curve": curve})
