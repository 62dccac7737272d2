"""One slow host: the rank that launches late, whatever its device does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs, abstains, fires

from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import measure
from ddprof.tables import NULL

ID = "straggler.host"


def test_names_the_slow_host(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == (1,)
    assert said.lost_us > 0


def test_a_slow_device_is_not_a_slow_host(labelled: Runs) -> None:
    assert labelled("straggler.compute").said(ID) == []


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.tpdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_with_one_rank(labelled: Runs) -> None:
    assert "only one rank" in abstains(ID, labelled(ID).only(0))


def test_abstains_where_no_launch_was_recorded(labelled: Runs) -> None:
    measures = labelled("clean.ddp").measures
    unlaunched = [
        replace(facts, device_ops=facts.device_ops.replace(launch_ns=np.full(len(facts.device_ops), NULL)))
        for facts in measures.job.ranks
    ]
    assert "launch calls" in abstains(ID, measure(job_facts(unlaunched)))


def test_abstains_where_cpu_ranks_do_not_communicate(labelled: Runs) -> None:
    measures = labelled("clean.ddp").measures
    silent = tuple(replace(facts, is_device_rank=False) for facts in measures.job.ranks)
    job = replace(measures.job, ranks=silent, instances=measures.job.instances.take(np.empty(0, np.int64)))
    assert "no communication" in abstains(ID, replace(measures, job=job))
