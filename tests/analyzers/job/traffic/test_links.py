"""Groups that are slow for the same message cost what they take in the steps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from labelled_runs import Runs, run_of, sample_run

from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.job.model import JobFacts, Pipeline
from ddprof.analyzers.job.traffic.links import slow_groups
from ddprof.tables import NULL


@pytest.mark.parametrize("kept", [0, 1])
def test_transfers_of_a_step_that_is_left_out_cost_no_step_time(kept: int) -> None:
    whole = sample_run("slow_link").job
    cut = run_of([with_steps(facts, np.array([kept])) for facts in whole.ranks]).job
    excess_us = {slow.role: slow.excess_us for slow in slow_groups(cut)}
    assert excess_us == pytest.approx({slow.role: slow.excess_us for slow in slow_groups(whole)}, rel=0.02)


def without_sizes(job: JobFacts, **changes: Any) -> JobFacts:
    return replace(job, instances=job.instances.replace(size_bytes=np.full(len(job.instances), NULL)), **changes)


def test_without_sizes_groups_that_call_more_often_send_other_messages(labelled: Runs) -> None:
    job = labelled("clean.tpdp").job  # without names, groups of one size may serve anything
    nameless = job.groups.replace(role=np.full(len(job.groups), "", dtype=object))
    assert not slow_groups(without_sizes(job, groups=nameless))


def test_without_sizes_groups_of_other_stages_send_other_messages() -> None:
    job = sample_run("slow_link").job  # groups of ranks (0, 1), (2, 3) and of (0, 2), (1, 3)
    assert {slow.role for slow in slow_groups(without_sizes(job))} == {"dp", "tp"}
    across = without_sizes(job, pipeline=Pipeline(((0, 2), (1, 3)), microbatches=8))
    assert {slow.role for slow in slow_groups(across)} == {"tp"}
