"""Nearly full memory; without memory events nothing is said."""

from __future__ import annotations

from dataclasses import replace

from labelled_runs import Runs, abstains, fires

from ddprof.analyzers.catalogue import catalogue

ID = "memory.headroom"


def test_says_how_full_and_what_it_costs(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == (), "every rank is as full"
    assert "98" in said.summary or "99" in said.summary
    assert said.changes[0].target == "allocator"


def test_abstains_without_memory_events(labelled: Runs) -> None:
    assert abstains(ID, labelled("clean.ddp").measures) == "no memory events in the trace"


def test_is_silent_where_a_fifth_is_free(labelled: Runs) -> None:
    measures = labelled("clean.ddp").measures
    roomy = {"peak_reserved_bytes": 64 * 10**9, "total_bytes": 80 * 10**9}
    ranks = tuple(replace(facts, memory=roomy) for facts in measures.job.ranks)
    assert list(catalogue()[ID].detect(replace(measures, job=replace(measures.job, ranks=ranks)))) == []
