"""Runs of the trace generator, runs with other facts than were recorded, views of them, and the text of a view."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dash.development.base_component import Component

from benchmarks.oracle.kinds import scenario
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.write import write
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View

SEED = 17
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
TRUTHS = {file.parent.name: json.loads(file.read_text("utf-8")) for file in sorted(SAMPLES.glob("*/truth.json"))}


def generate(folder: Path, kind: str) -> Path:
    """A labelled run of some kind; returns the folder of its traces."""
    write(simulate(scenario(SEED, kind)), folder)
    return folder / "traces"


def alone(opened: OpenRun, **query: str) -> View:
    """View of the run by the address of a query, where no other run is served."""
    return View(opened, query, (opened,))


def lanes_of(opened: OpenRun, kind: str) -> list[int]:
    """Numbers of the timeline's lanes of a kind."""
    return [n for n, lane in enumerate(opened.timeline.lanes) if lane.kind == kind]


def with_run(opened: OpenRun, **changes: Any) -> OpenRun:
    """The run with other facts in the report's own section of it."""
    return replace(opened, report=replace(opened.report, run=replace(opened.report.run, **changes)))


def with_job(opened: OpenRun, **changes: Any) -> OpenRun:
    """The run with a job of other facts."""
    assert opened.loaded is not None
    return OpenRun(opened.report, replace(opened.loaded, job=replace(opened.loaded.job, **changes)))


def on_hosts(opened: OpenRun, per_host: int) -> OpenRun:
    """The run as one of hosts with so many ranks each."""
    return with_run(opened, hosts={rank: f"node{rank // per_host}" for rank in opened.report.run.ranks})


def named(opened: OpenRun, name: str) -> OpenRun:
    """The run and its first finding called `name`, as every kernel, range and operator is."""
    finding = replace(opened.report.ranked_findings()[0], summary=name)
    ranks = tuple(replace(facts, strings=(name,) * len(facts.strings)) for facts in opened.job.ranks)
    run = with_run(with_job(opened, ranks=ranks), name=name)
    return replace(run, report=replace(run.report, findings=(finding,)))


def texts(component: object) -> Iterator[str]:
    """All text of a tree of components, in order, tables that are drawn later among it."""
    if isinstance(component, str):
        yield component
    elif isinstance(component, list | tuple):
        for child in component:
            yield from texts(child)
    elif isinstance(component, Component):
        if (table := getattr(component, "data-sheet", None)) is not None:
            yield table
        yield from texts(getattr(component, "children", None))


def serialised(content: list[Component]) -> str:
    return json.dumps([c.to_plotly_json() for c in content], default=lambda c: c.to_plotly_json())
