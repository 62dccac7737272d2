"""Memory allocated and freed inside steps."""

from dataclasses import replace

import numpy as np
import pytest
from captured import with_sidecars
from labelled_runs import Labelled, candidate, candidates, fires, on_every_rank

from ddprof.analyzers.facts.model import HOST_SPANS
from ddprof.analyzers.job.measures import Measures
from ddprof.causes import CAUSE_CODE
from ddprof.tables import concat

ID = "host.allocator"


def test_suggests_expandable_segments_and_says_retries_outside_the_trace(faulty: Labelled, healthy: Labelled) -> None:
    said = fires(faulty, ID)
    assert "expandable_segments" in str(said.fixes[0].patch)
    assert said.fixes[0].applies == (("expandable_segments", True),)
    assert said.lost_us == pytest.approx(faulty.label["ledger"]["job"]["allocator"], rel=0.02)
    measures = faulty.measures
    worst = int(np.argmax(measures.host_spans_us["allocator"]))
    counts = np.where(np.arange(4) == worst, 2.0, 500.0)
    said = candidate(ID, replace(measures, host_counts={**measures.host_counts, "allocator": counts}))
    assert said.evidence[0].text.startswith("2 alloc") and said.evidence[0].rank == measures.job.rank_ids[worst]
    said = candidate(ID, with_sidecars(healthy, {}, {"allocator": {"retries": 7}}, {}))
    assert said.ranks == (1,) and "7 times" in said.evidence[0].text


def test_a_job_without_the_caching_allocator_is_told_so(faulty: Labelled) -> None:
    measures = faulty.measures
    spans = measures.job.ranks[0].host_spans
    strings = (*measures.job.ranks[0].strings, "cudaMalloc", "cudaFree")
    given = spans.take(np.resize(np.flatnonzero(spans["cause"] == CAUSE_CODE["allocator"]), 400))
    calls = [given.replace(name=np.full(400, len(strings) - which)) for which in (1, 2)]
    both = on_every_rank(measures, host_spans=concat(HOST_SPANS, calls), strings=strings)
    assert fixes(both) == ["PyTorch's caching allocator"]
    grows = on_every_rank(measures, host_spans=concat(HOST_SPANS, calls[1:]), strings=strings)
    assert fixes(grows) == ["PYTORCH_CUDA_ALLOC_CONF"]


def fixes(measures: Measures) -> list[str]:
    (said,) = candidates(ID, measures)
    return [fix.setting for fix in said.fixes]
