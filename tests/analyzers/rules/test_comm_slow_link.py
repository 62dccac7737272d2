"""Slow groups have these ranks in common; with one group nothing can be compared."""

from __future__ import annotations

from labelled_runs import Runs, abstains

ID = "comm.slow_link"


def test_names_the_ranks_on_the_slow_link(labelled: Runs) -> None:
    said = [c.ranks for c in labelled(ID).said(ID)]  # type: ignore[union-attr]
    accepted = [tuple(sorted(c)) for c in labelled(ID).label["faults"][0]["acceptable_culprits"]]
    assert any(ranks in accepted for ranks in said)


def test_abstains_with_one_group(labelled: Runs) -> None:
    assert "one process group" in abstains(ID, labelled("clean.ddp").measures)


def test_is_silent_where_all_links_are_alike(labelled: Runs) -> None:
    assert labelled("clean.tpdp").said(ID) == []
