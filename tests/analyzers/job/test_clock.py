"""A skewed clock is found within the stated error, and changes no wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from labelled_runs import Runs

from benchmarks.oracle.small_runs import HOST_OFFSET_US
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.tables import NULL


def shifted(facts: RankFacts, by_ns: int) -> RankFacts:
    """The same rank on a clock that is ahead by `by_ns`."""
    names = ("steps", "device_ops", "comms", "exposed", "gaps", "host_spans", "phases", "stream_waits", "host_work")
    tables = {}
    for name in names:
        table = getattr(facts, name)
        times = [c.name for c in table.schema.columns if c.name.endswith("_ns")]
        tables[name] = table.replace(**{t: np.where(table[t] == NULL, NULL, table[t] + by_ns) for t in times})
    return replace(facts, **tables)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra_us=st.floats(-2e6, 2e6))
def test_a_skewed_host_is_found_within_the_stated_error(labelled: Runs, extra_us: float) -> None:
    job = labelled("clean.tpdp").job
    by_ns = round(extra_us * 1e3)
    moved = [shifted(f, by_ns) if f.identity.host == "node01" else f for f in job.ranks]
    clock = job_facts(moved).clock.domains["node01"]
    assert clock.error_ns is not None and clock.error_ns < 100_000
    assert abs(clock.offset_ns - (HOST_OFFSET_US * 1e3 + by_ns)) <= clock.error_ns + 1


def test_a_skewed_clock_changes_no_wait(labelled: Runs) -> None:
    """Waits of collectives need no clock at all: a host a second ahead books the same ledger."""
    job = labelled("clean.tpdp").job
    moved = job_facts([shifted(f, 10**9) if f.identity.host == "node01" else f for f in job.ranks])
    assert moved.ledger["dur_ns"].tolist() == job.ledger["dur_ns"].tolist()
