"""Runs as if ddprof's capture had recorded more about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labelled_runs import Labelled

from ddprof.analyzers.job.measures import Measures


def with_sidecars(run: Labelled, *sidecars: dict[str, Any]) -> Measures:
    """The run with the given sidecar on each rank; the last one for all that follow."""
    ranks = tuple(
        replace(facts, sidecar=sidecars[min(position, len(sidecars) - 1)])
        for position, facts in enumerate(run.job.ranks)
    )
    return replace(run.measures, job=replace(run.job, ranks=ranks), settings=ranks[0].sidecar)


def steps(count: int, length_ns: int) -> list[dict[str, int]]:
    """Steps one after another from time 0."""
    return [{"index": i, "start_ns": i * length_ns, "end_ns": (i + 1) * length_ns} for i in range(count)]
