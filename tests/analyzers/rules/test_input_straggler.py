"""One late loader: its rank, and what the others wait for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captured import with_sidecars
from labelled_runs import Runs, abstains, fires

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.rules.input_starved import late_loaders, workers_fix

ID = "input.straggler"


def test_names_the_rank_of_the_late_loader(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == (3,)
    assert said.changes[0].kind == "instant_loader"


def test_loaders_that_are_all_slow_name_nobody(labelled: Runs) -> None:
    assert labelled("input.starved").said(ID) == []


@pytest.mark.parametrize(("fetch_ms", "late"), [(1, [3]), (10_000, [])])
def test_workers_of_the_others_that_are_as_slow_clear_a_rank(labelled: Runs, fetch_ms: int, late: list[int]) -> None:
    """Its peers' queues are a batch ahead: they never wait in the recording, and deliver no batch per step either."""
    fetching = {"workers": 2, "fetch_ns": fetch_ms * 1_000_000, "samples": 32}
    measures = with_sidecars(labelled(ID), {"fetching": fetching})
    assert late_loaders(measures).tolist() == late
    assert bool(list(catalogue()[ID].detect(measures))) is bool(late)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_with_one_rank(labelled: Runs) -> None:
    assert "only one rank" in abstains(ID, labelled(ID).only(0))


def test_memory_is_pinned_only_for_a_device(labelled: Runs) -> None:
    measures = labelled(ID).measures
    assert "pin_memory=True" in str(workers_fix(measures, 1_000.0).patch)
    on_cpu = replace(measures.job, ranks=tuple(replace(f, is_device_rank=False) for f in measures.job.ranks))
    assert "pin_memory" not in str(workers_fix(replace(measures, job=on_cpu), 1_000.0).patch)
