"""A step of a pipeline over time is what the ledger books: filled is compute, of the waiting it books the bubble."""

import itertools

import numpy as np
import pytest
from labelled_runs import sample_run

from ddprof import intervals
from ddprof.analyzers.job.model import JobFacts, Pipeline
from ddprof.analyzers.job.pipelines.bubble import bubble_allowance
from ddprof.causes import CAUSE_CODE
from ddprof.dashboard.exhibits.pipeline import StageStep, stage_steps


@pytest.fixture(scope="module", params=["bubble", "slow_stage"])
def job(request: pytest.FixtureRequest) -> JobFacts:
    return sample_run(request.param).job


def pipeline_of(job: JobFacts) -> Pipeline:
    assert job.pipeline is not None
    return job.pipeline


def pictures(job: JobFacts) -> list[tuple[int, StageStep]]:
    chains = zip(*pipeline_of(job).stages, strict=True)
    steps = range(min(len(facts.steps) for facts in job.ranks))
    return [(step, one) for chain in chains for step in steps for one in stage_steps(job, chain, step)]


def booked_ns(job: JobFacts, position: int, step: int, cause: str) -> int:
    ledger = job.ledger
    mine = (ledger["rank"] == position) & (ledger["step"] == step) & (ledger["cause"] == CAUSE_CODE[cause])
    return int(ledger["dur_ns"][mine].sum())


def test_what_is_filled_is_the_ledgers_compute_and_the_bubble_is_the_ledgers(job: JobFacts) -> None:
    allowance = bubble_allowance(job.ranks, pipeline_of(job))
    for step, stage in pictures(job):
        filled = intervals.merge(stage.other, *(one.busy for one in stage.passes))
        assert intervals.length(filled) == booked_ns(job, stage.position, step, "compute")
        assert not len(intervals.intersect(filled, stage.waiting)[0])
        bubble = booked_ns(job, stage.position, step, "pipeline_bubble")
        assert bubble == min(intervals.length(stage.waiting), allowance[stage.position])


def test_stages_run_every_microbatch_one_after_the_other_and_pass_it_on_in_their_order(job: JobFacts) -> None:
    pipeline = pipeline_of(job)
    wanted = list(range(1, pipeline.microbatches * pipeline.interleave + 1))
    for _, stage in pictures(job):
        for is_forward in (True, False):
            mine = [one for one in stage.passes if one.is_forward is is_forward]
            assert [one.number for one in mine] == wanted
            assert all(a.busy[1][-1] <= b.busy[0][0] for a, b in itertools.pairwise(mine))
    for chain in zip(*pipeline.stages, strict=True):
        stages = stage_steps(job, chain, 0)
        for place in range(pipeline.microbatches):
            starts = [stage.passes and [p for p in stage.passes if p.is_forward][place].busy[0][0] for stage in stages]
            assert np.all(np.diff(starts) > 0)
