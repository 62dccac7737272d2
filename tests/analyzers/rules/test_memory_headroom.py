"""Nearly full memory; without memory events nothing is said."""

from __future__ import annotations

from labelled_runs import Runs, abstains, fires

ID = "memory.headroom"


def test_says_how_full_and_what_it_costs(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert "98" in said.summary or "99" in said.summary
    assert said.changes[0].target == "allocator"


def test_abstains_without_memory_events(labelled: Runs) -> None:
    assert abstains(ID, labelled("clean.ddp").measures) == "no memory events in the trace"
