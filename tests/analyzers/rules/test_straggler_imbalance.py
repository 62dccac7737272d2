"""Unequal work whose victim changes from step to step: the data and not a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captured import with_sidecars
from labelled_runs import Labelled, Runs, abstains, fires

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Candidate

ID = "straggler.imbalance"


def test_blames_no_rank_where_the_slowest_changes(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert said.changes[0].kind == "balance_compute"


def test_a_steady_straggler_is_not_imbalance(labelled: Runs) -> None:
    assert labelled("straggler.compute").said(ID) == []


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_with_one_rank(labelled: Runs) -> None:
    assert "no two ranks" in abstains(ID, labelled(ID).only(0))


def fed(run: Labelled, elements: list[list[int]]) -> Measures:
    """The run with these elements fed to each rank in its traced steps."""
    numbers = run.job.ranks[0].steps["index"].tolist()
    return with_sidecars(
        run,
        *({"batches": [{"step": s, "elements": e} for s, e in zip(numbers, row, strict=False)]} for row in elements),
    )


def test_says_who_was_fed_more(labelled: Runs) -> None:
    run = labelled(ID)
    steps = len(run.job.ranks[0].steps)
    rows = [[300 if step % 4 == rank else 100 for step in range(steps)] for rank in range(len(run.job.ranks))]
    (said,) = catalogue()[ID].detect(fed(run, rows))
    assert isinstance(said, Candidate)
    assert "3.00 x the elements" in said.evidence[0].text
    assert "moves between ranks" in said.evidence[0].text


def test_equal_batches_are_said_to_be_equal(labelled: Runs) -> None:
    run = labelled(ID)
    rows = [[100] * len(run.job.ranks[0].steps)] * len(run.job.ranks)
    (said,) = catalogue()[ID].detect(fed(run, rows))
    assert isinstance(said, Candidate)
    assert "equally many elements" in said.evidence[0].text


def test_batches_speak_where_kernels_cannot_be_compared(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    steps = len(run.job.ranks[0].steps)
    rows = [[300 if rank == 1 else 100] * steps for rank in range(len(run.job.ranks))]
    measures = fed(run, rows)
    blind = replace(measures, compute=replace(measures.compute, factor=np.full(len(run.job.ranks), np.nan)))
    (said,) = catalogue()[ID].detect(blind)
    assert isinstance(said, Candidate)
    assert said.ranks == (1,)
