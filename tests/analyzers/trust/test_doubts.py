"""What about a recording is doubtful, and that it lowers the confidence of what is said of it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from labelled_runs import Labelled, Runs

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import HostClock, JobFacts
from ddprof.analyzers.trust.doubts import WORDS, doubts_of
from ddprof.findings import Doubt
from ddprof.model import HealthNote


def changed(measures: Measures, change: Callable[[JobFacts], JobFacts]) -> Measures:
    """The measures with another job."""
    return replace(measures, job=change(measures.job))


def first_rank(job: JobFacts, **values: object) -> JobFacts:
    """The job with its first rank recorded otherwise."""
    return replace(job, ranks=(replace(job.ranks[0], **values), *job.ranks[1:]))  # type: ignore[arg-type]


def unconnected(job: JobFacts) -> JobFacts:
    """No operation connects the clock of the host."""
    domains = dict.fromkeys(job.clock.domains, HostClock(0, 0.0, None))
    return replace(job, clock=replace(job.clock, domains=domains))


@pytest.fixture
def run(labelled: Runs) -> Labelled:
    """A recording of which nothing is doubtful."""
    return labelled("host.gc")


def test_every_doubt_is_told_from_what_was_recorded(run: Labelled) -> None:
    assert doubts_of(run.measures, 0.01) == ()
    measures = run.measures
    broken = HealthNote("file: ends early", "events after that point are missing", "error")
    seen = {
        Doubt.ONE_STEP: doubts_of(replace(measures, steps=1), None),
        Doubt.TWO_STEPS: doubts_of(replace(measures, steps=2), None),
        Doubt.INFERRED_STEPS: doubts_of(changed(measures, lambda j: first_rank(j, step_source="inferred")), None),
        Doubt.MISSING_RANKS: doubts_of(changed(measures, lambda j: replace(j, missing_ranks=(9,))), None),
        Doubt.ASSUMED_CLOCK: doubts_of(changed(measures, unconnected), None),
        Doubt.DAMAGED_FILES: doubts_of(changed(measures, lambda j: first_rank(j, health=(broken,))), None),
        Doubt.REPLAY_ERROR: doubts_of(measures, 0.2),
    }
    of_findings = {Doubt.PRICES_DIFFER, Doubt.ONE_EVENT}  # test_prices.py, rules/evidence/test_occurrences.py
    assert seen == {doubt: (doubt,) for doubt in set(Doubt) - of_findings}
    assert set(WORDS) == set(Doubt)
