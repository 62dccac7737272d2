"""A skewed clock is found within the stated error, and changes no wait."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from labelled_runs import Runs

from benchmarks.oracle.small_runs import HOST_OFFSET_US
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.clock import align
from ddprof.analyzers.job.matching import Matched
from ddprof.tables import NULL


def shifted(facts: RankFacts, by_ns: int) -> RankFacts:
    names = ("steps", "device_ops", "comms", "exposed", "gaps", "host_spans", "phases", "stream_waits", "host_work")
    tables = {}
    for name in names:
        table = getattr(facts, name)
        times = [c.name for c in table.schema.columns if c.name.endswith("_ns")]
        tables[name] = table.replace(**{t: np.where(table[t] == NULL, NULL, table[t] + by_ns) for t in times})
    return replace(facts, **tables)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra_us=st.floats(-2e6, 2e6))
def test_a_skewed_host_is_found_within_the_stated_error(labelled: Runs, extra_us: float) -> None:
    job = labelled("clean.tpdp").job
    by_ns = round(extra_us * 1e3)
    moved = [shifted(f, by_ns) if f.identity.host == "node01" else f for f in job.ranks]
    clock = job_facts(moved).clock.domains["node01"]
    assert clock.error_ns is not None and clock.error_ns < 100_000
    assert abs(clock.offset_ns - (HOST_OFFSET_US * 1e3 + by_ns)) <= clock.error_ns + 1


def test_a_skewed_clock_changes_no_wait(labelled: Runs) -> None:
    job = labelled("clean.tpdp").job
    moved = job_facts([shifted(f, 10**9) if f.identity.host == "node01" else f for f in job.ranks])
    assert moved.ledger["dur_ns"].tolist() == job.ledger["dur_ns"].tolist()


def test_a_host_is_reached_through_as_few_others_as_can_be(labelled: Runs) -> None:
    """Hosts 0 and 3 meet, and 1, 2 and 3 do: both 1 and 2 are one host away from 3, so their errors are alike."""
    offsets_ns, groups = (0, 7_000_000, -3_000_000, 11_000_000), ((0, 3), (1, 2, 3))
    first = labelled("clean.tpdp").job.ranks[0]
    comms, ranks = first.comms.take(np.zeros(len(groups), np.int64)), []
    for rank, offset_ns in enumerate(offsets_ns):
        start_ns = np.arange(len(groups)) * 1_000_000 + offset_ns
        own = comms.replace(start_ns=start_ns, end_ns=start_ns + 50_000)
        ranks.append(replace(first, identity=replace(first.identity, host=f"node{rank}", rank=rank), comms=own))
    instance = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    each = np.zeros(len(groups), np.int64)
    members = {"rank": np.concatenate(groups), "comm": instance, "side": np.zeros(len(instance), np.int64)}
    instances = {"op": each + OP_CODE["all_reduce"], "group": np.arange(len(groups)), "size_bytes": each}
    domains = align(ranks, Matched(instance=instance, is_message=each.astype(bool), **members, **instances))[0].domains
    assert tuple(domains[f"node{rank}"].offset_ns for rank in range(4)) == offsets_ns
    errors_ns = [domains[f"node{rank}"].error_ns for rank in range(4)]
    assert errors_ns == [0, 1_000, 1_000, 500]  # 500 ns is the least that one comparison is trusted to
