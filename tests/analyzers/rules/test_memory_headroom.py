"""Nearly full memory, and recomputing with memory free; without memory events nothing is said."""

import pytest
from labelled_runs import Labelled, Runs, abstains, candidate, fires, on_every_rank

from ddprof.analyzers.catalogue import catalogue

ID = "memory.headroom"


def test_says_how_full_and_what_it_costs_where_less_than_a_fifth_is_free(faulty: Labelled, healthy: Labelled) -> None:
    said = fires(faulty, ID)
    assert "98" in said.summary or "99" in said.summary
    assert said.changes[0].target == "allocator" and abstains(ID, healthy.measures) == "no memory events in the trace"
    roomy = {"peak_reserved_bytes": 64 * 10**9, "total_bytes": 80 * 10**9}
    assert list(catalogue()[ID].detect(on_every_rank(healthy.measures, memory=roomy))) == []


def test_recomputing_with_memory_free_is_needless_in_whole_or_in_part(labelled: Runs) -> None:
    """Priced by the kernels that are not repeated, with what keeping activations takes."""
    run = labelled("needless recomputation")
    said = fires(run, ID)
    assert said.fixes[0].suggested == "off" and "which fits" in said.evidence[0].text
    assert run.pricer.step_us(said.changes) == pytest.approx(run.label["counterfactual_step_us"], rel=0.02)
    assert run.score.right
    measures = run.measures
    total = measures.job.ranks[0].memory["total_bytes"]
    half = {"peak_allocated_bytes": int(0.5 * total), "total_bytes": total, "kept_bytes": int(0.8 * total)}
    said = candidate(ID, on_every_rank(measures, memory=half))
    assert said.changes[0].values[0] == pytest.approx(0.5)
    whole = run.pricer.step_us(fires(run, ID).changes)
    assert run.pricer.step_us(said.changes) == pytest.approx((measures.step_us + whole) / 2, rel=0.02)
    reason = abstains(ID, labelled("recomputation of unknown use").measures)
    assert "activation checkpointing" in reason and "not known" in reason
    assert "Activation checkpointing" in labelled("recomputation of unknown use").report.verdict.headline
