"""Runs as if ddprof's capture had recorded more about them, or less."""

import itertools
import json
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from labelled_runs import Labelled, on_every_rank, run_of

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.model import PHASES, TABLES, Phase, RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.price import Pricer
from ddprof.readers.side_files.lenient import parse
from ddprof.sidecar import Sidecar
from ddprof.tables import NULL


def sidecar_of(content: dict[str, Any]) -> Sidecar:
    """A sidecar file of this content, read; none where there is no content."""
    return parse(json.dumps({"schema": "ddprof.run/1", **content}).encode(), Sidecar)[0] if content else Sidecar()


def with_sidecars(run: Labelled | LoadedRun, *sidecars: dict[str, Any]) -> Measures:
    """The run with the given sidecar on each rank; the last one for all that follow."""
    given = [sidecar_of(sidecars[min(position, len(sidecars) - 1)]) for position in range(len(run.job.ranks))]
    ranks = tuple(replace(facts, sidecar=own) for facts, own in zip(run.job.ranks, given, strict=True))
    return replace(run.measures, job=replace(run.job, ranks=ranks), settings=ranks[0].sidecar)


def prices_with(run: LoadedRun, *sidecars: dict[str, Any]) -> Pricer:
    """The prices of the run with these sidecars."""
    return replace(run, job=with_sidecars(run, *sidecars).job).pricer


def on_cpu(run: Labelled, *sidecars: dict[str, Any]) -> Measures:
    """The run with these sidecars, as if its ranks had no device."""
    return on_every_rank(with_sidecars(run, *sidecars), is_device_rank=False)


def meeting_in_backward(run: Labelled, *sidecars: dict[str, Any]) -> Measures:
    """The run with these sidecars, as if its ranks had no device and met in their backward passes alone."""
    measures = on_cpu(run, *sidecars)
    steps = measures.job.ranks[0].steps
    rows = {name: steps[name] for name in ("start_ns", "end_ns")} | {"phase": [Phase.BACKWARD] * len(steps)}
    return on_every_rank(measures, phases=PHASES.table(rows | {"name": np.zeros(len(steps))}))


def fed(run: Labelled, elements: Callable[[int, int], int]) -> Measures:
    """The run with so many elements fed to each rank (position, step from 0) in its traced steps."""
    steps = run.job.ranks[0].steps["index"].tolist()
    rows = [[{"step": s, "elements": elements(p, at)} for at, s in enumerate(steps)] for p in range(len(run.job.ranks))]
    return with_sidecars(run, *({"batches": row} for row in rows))


def counted(facts: RankFacts, samples: int, elements: int) -> RankFacts:
    """The rank fed with a batch of so many samples and elements in each of its traced steps."""
    steps = facts.steps["index"].tolist()
    fed = [{"step": step, "elements": elements, "batches": 1, "samples": samples} for step in steps]
    return replace(facts, sidecar=sidecar_of({"batches": fed}))


def timed_steps(lengths_ns: Iterable[float], traced: Container[int] = range(5, 10)) -> list[dict[str, Any]]:
    """Records of steps of these lengths, one after another, with some in a trace window."""
    bounds_ns = enumerate(itertools.pairwise(itertools.accumulate(map(int, lengths_ns), initial=0)))
    return [{"index": i, "start_ns": start, "end_ns": end, "profiled": i in traced} for i, (start, end) in bounds_ns]


def steps(count: int, length_ns: int) -> list[dict[str, int]]:
    return [{"index": i, "start_ns": i * length_ns, "end_ns": (i + 1) * length_ns} for i in range(count)]


def steps_alone(run: Labelled) -> Measures:
    """The run as if its traces held the marks of the steps and no other event."""
    empty = {name: schema.empty() for name, schema in TABLES.items() if name != "steps"}
    return run_of([replace(facts, **empty, sidecar=Sidecar(), memory={}) for facts in run.job.ranks]).measures


def without_peers(run: Labelled) -> Measures:
    """The run of a pipeline as if its sends and receipts named no peer, as those of traces without shapes do not."""
    told = [facts.messages.replace(peer=np.full(len(facts.messages), NULL)) for facts in run.job.ranks]
    return run_of([replace(facts, messages=own) for facts, own in zip(run.job.ranks, told, strict=True)]).measures


def with_traffic(measures: Measures, **changes: Any) -> Measures:
    """The measures with these fields in each kind of traffic."""
    traffic = tuple(replace(each, **changes) for each in measures.comm.traffic)
    return replace(measures, comm=replace(measures.comm, traffic=traffic))


def on_hosts(measures: Measures, count: int) -> Measures:
    """The measures with the ranks spread over so many hosts."""
    ranks = measures.job.ranks
    at = {facts.path: replace(facts.identity, host=f"node{n * count // len(ranks)}") for n, facts in enumerate(ranks)}
    return replace(measures, job=replace(measures.job, ranks=tuple(replace(f, identity=at[f.path]) for f in ranks)))
