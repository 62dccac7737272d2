"""Too few microbatches for the depth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured import without_peers
from labelled_runs import Labelled, Runs, abstains, candidate, fires, on_every_rank

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.traffic.statistics import CommStats
from ddprof.analyzers.replay.changes.pipeline_schedule import schedule_gain_us
from ddprof.analyzers.rules.pipeline_bubble import best_microbatches
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.sidecar import Sidecar, TimedFetches

ID = "pipeline.bubble"
NAMED = {"GPipe": "25", "InterleavedZeroBubble": "8.3", "DualPipeV": "8.3"}


def pipeline_of(measures: Measures) -> Pipeline:
    assert measures.job.pipeline is not None
    return measures.job.pipeline


def with_pipeline(measures: Measures, **changes: Any) -> Measures:
    return replace(measures, job=replace(measures.job, pipeline=replace(pipeline_of(measures), **changes)))


def scheduled(labelled: Runs, launch_us: float) -> Measures:
    """Four equal stages of 20 ms in four microbatches, without messages: the step is work, bubble, and launches."""
    work_us, bubble_us = 20_000.0, 15_000.0
    ledger = np.zeros((4, len(CAUSES)))
    ledger[:, CAUSE_CODE["pipeline_bubble"]], ledger[:, CAUSE_CODE["host_launch"]] = bubble_us, launch_us
    measures = labelled(ID).measures
    four = Pipeline(tuple((p,) for p in range(4)), 4)
    measures = replace(measures, job=replace(measures.job, pipeline=four), ledger_us=ledger)
    step_us, work = work_us + bubble_us + launch_us, np.full(4, work_us)
    return replace(measures, step_us=step_us, stage_work_us=work, comm=CommStats(()))


def test_more_microbatches_or_chunks_are_suggested_where_peers_and_records_agree(faulty: Labelled) -> None:
    """Two microbatches in two stages: four win 16 % of the step, eight 7 % more, sixteen too little."""
    said = fires(faulty, ID)
    assert (said.fixes[0].current, said.fixes[0].suggested) == ("2", "8") and said.is_bound
    said = candidate(ID, with_pipeline(faulty.measures, microbatches=3))
    assert [fix.setting for fix in said.fixes] == ["microbatches"]
    assert "name no peer" in abstains(ID, without_peers(faulty))
    unsure = "the stages recorded 5 to 8 messages in a step"
    assert "5 to 8 messages" in abstains(ID, with_pipeline(faulty.measures, unsure=unsure))


def counts(measures: Measures) -> list[int]:
    """Numbers of microbatches that are tried."""
    return [count for count, _ in best_microbatches(measures, pipeline_of(measures))]


def test_what_every_microbatch_costs_and_the_samples_end_the_sweep(labelled: Runs) -> None:
    """20 ms of work and 116 us of launches per microbatch, as simulated: 35.5, 28.4, 25.6 and 25.6 ms."""
    measures = scheduled(labelled, 464.0)
    assert counts(measures) == [8, 16]
    gained_us = best_microbatches(measures, pipeline_of(measures))[-1][1]
    assert gained_us == pytest.approx(20_000 * 3 * (1 / 4 - 1 / 16) - 12 * 116)
    cheap = scheduled(labelled, 0.0)
    assert counts(cheap) == [8, 16, 32] and counts(scheduled(labelled, 4_000.0)) == [8]
    assert counts(on_every_rank(cheap, sidecar=Sidecar(fetching=TimedFetches(workers=0, fetch_ns=1, samples=8)))) == [8]


@pytest.mark.parametrize("at", [4, 8, 16])
def test_the_formula_follows_the_simulated_sweep(faulty: Labelled, at: int) -> None:
    measures, swept = faulty.measures, faulty.fault["sweep"]["microbatches"]
    assert measures.step_us - schedule_gain_us(measures, at, 1) == pytest.approx(swept[str(at)], rel=0.05)


@pytest.mark.parametrize(
    ("name", "chunks"),
    [("few microbatches, two chunks per stage", 2), ("few microbatches, two stages of two chunks", 2), (ID, 1)],
)
def test_chunks_are_counted_said_and_never_suggested_as_they_are(labelled: Runs, name: str, chunks: int) -> None:
    run = labelled(name)
    said = fires(run, ID)
    assert pipeline_of(run.measures).interleave == chunks
    assert (f"in {chunks} chunks per stage" in said.summary) == (chunks > 1)
    assert said.lost_us == pytest.approx(run.label["ledger"]["job"]["pipeline_bubble"], rel=0.03)
    (more,) = (fix for fix in said.fixes if fix.setting == "chunks per stage")
    assert (more.current, more.suggested) == (str(chunks), str(2 * chunks))


@pytest.mark.parametrize(("name", "share"), [*NAMED.items(), ("Own", "25"), ("", "25")])
def test_a_schedule_is_named_with_the_bubble_of_its_kind(faulty: Labelled, name: str, share: str) -> None:
    """One that splits the backward pass has a third of the bubble; a V has two chunks and no more."""
    measures = with_pipeline(faulty.measures, schedule=f"Schedule{name}", interleave=2)
    words = {"InterleavedZeroBubble": "interleaved zero-bubble"}.get(name, name if name in NAMED else "")
    found = candidate(ID, measures)
    assert found.evidence[0].text.startswith(f"{words and words + ': '}2 stages, 2 microbatches, 2 chunks")
    assert f"the bubble is {share} % of a stage's work" in found.evidence[0].text
    assert schedule_gain_us(measures, 4, 2) < float(share) / 100 * float(np.mean(measures.stage_work_us)) / 2
    of_chunks = [fix.patch or "" for fix in found.fixes if fix.setting == "chunks per stage"]
    assert not of_chunks or ("V" not in name and of_chunks[0].startswith(f"Schedule{name}("))
