"""Input & host: does the device starve for data, or for launches?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.loader import fetch_costs
from ddprof.analyzers.settings.present import present
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.dashboard.exhibits.parts import numbers
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, following, matrix, sheet
from ddprof.dashboard.exhibits.parts.numbers import (
    causes_by_step_us,
    condensed,
    decade_words,
    gap_histogram,
    launch_delays,
    readable_times,
)
from ddprof.dashboard.figures.charts import Heat, Part, Stacked, cause_parts
from ddprof.dashboard.runs.view import View
from ddprof.report.phrases import LEAST_SHARE
from ddprof.units import format_share, format_us

LOADER_SETTINGS = "loader-settings"
_HARDLY = "The device was idle for less than 0.05 % of the step."  # LEAST_SHARE
_GOES_TO = {
    "collate": "most of it collating samples",
    "cpu": "most of it computing",
    "wait": "most of it waiting for storage or the network",
    "mixed": "partly computing, partly waiting for storage",
}


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    yield following(_loader(view), "ranks", "steps")
    yield from (following(exhibit, "ranks") for exhibit in (_host_spans(view), _gaps(view), _launches(view)))
    loader = view.opened.measures.settings.dataloader
    if loader is not None:
        table = sheet(("setting", "value"), [(name, str(value)) for name, value in loader.known().items()])
        reading = "As captured from the running job, lowest rank."
        yield Exhibit(LOADER_SETTINGS, "How is the data loader set?", reading, table)


def _loader(view: View) -> Exhibit:
    positions, steps = numbers.positions(view), numbers.steps(view)
    waits = causes_by_step_us(view.opened.job)[np.ix_(positions, steps)][..., CAUSE_CODE["dataloader"]] / 1e3
    names = numbers.rank_names(view, positions)
    table = matrix(("rank", *(f"step {s} (ms)" for s in steps)), names, waits)
    question = "Does the device wait for data?"
    if not np.nansum(waits):
        words = "No rank's device waited for the data loader."
        return Exhibit("loader", question, words, sheet(table.columns, []))
    by_rank = np.nansum(waits, axis=1) / np.maximum(np.isfinite(waits).sum(axis=1), 1)
    worst = int(by_rank.argmax())
    mean, most = (format_us(ms * 1e3) for ms in (by_rank.mean(), by_rank[worst]))
    whose = "on every rank" if mean == most else f"on average; most on {names[worst]}, {most}"
    reading = f"{mean} per step {whose}. {loading_words(view.opened.measures)}"
    lines, lines_names = condensed(waits, names)
    times, unit, critical = readable_times(lines, view.opened.measures.step_us / 1e3)
    chart = Heat(times, [str(s) for s in steps], lines_names, unit, critical, axis="step")
    return Exhibit("loader", question, reading, table, chart)


def _host_spans(view: View) -> Exhibit:
    measures, positions = view.opened.measures, numbers.positions(view)
    names = numbers.rank_names(view, positions)
    parts = {c: (v[positions] / 1e3).tolist() for c, v in measures.host_spans_us.items()}
    counts = {c: v[positions].tolist() for c, v in measures.host_counts.items()}
    heads = [(c, "ms/step") for c in parts] + [(c, "calls/step") for c in counts]
    columns = ("rank", *(f"{CAUSES[c].label} ({unit})" for c, unit in heads))
    shown = (*parts.values(), *counts.values())
    rows = [(name, *(float(values[i]) for values in shown)) for i, name in enumerate(names)]
    question = "What occupies the host beside launching work?"
    total = {c: sum(v) for c, v in parts.items()}
    if not any(total.values()):
        reading = "No loading, blocking, allocating, collecting or saving was seen on any host thread."
        return Exhibit("host-spans", question, reading, sheet(columns, []))
    most = max(total, key=lambda c: total[c])
    reading = (
        f"{CAUSES[most].label.capitalize()} takes most: {format_us(total[most] / len(names) * 1e3)} per step and "
        "rank, whether or not the device was idle."
    )
    lines, lines_names = condensed(np.array(list(parts.values())).T, names)
    chart = Stacked(lines_names, cause_parts(dict(zip(parts, lines.T.tolist(), strict=True))), "ms per step")
    return Exhibit("host-spans", question, reading, sheet(columns, rows), chart)


def _gaps(view: View) -> Exhibit:
    job = view.opened.job
    by_cause = gap_histogram([job.ranks[p] for p in numbers.positions(view)])
    by_cause = {c: v for c, v in by_cause.items() if v.any()}
    words = decade_words()
    columns = ("gap length", *(f"{CAUSES[c].label} (ms/step)" for c in by_cause))
    table = sheet(columns, [(w, *(float(v[i]) / 1e3 for v in by_cause.values())) for i, w in enumerate(words)])
    question = "How is the device's idle time made up: many small gaps or a few long ones?"
    total = np.sum(list(by_cause.values()), axis=0)
    if not np.sum(total) >= LEAST_SHARE * view.opened.measures.step_us:
        return Exhibit("gaps", question, "The device was never idle." if not by_cause else _HARDLY, table)
    reading = (
        f"Most idle time lies in gaps of {words[int(total.argmax())]}: {format_us(total.max())} of "
        f"{format_us(total.sum())} per step and rank."
    )
    parts = cause_parts({c: (v / 1e3).tolist() for c, v in by_cause.items()})
    chart = Stacked(words, parts, "ms per step", horizontal=False, axis="length of the gap")
    return Exhibit("gaps", question, reading, table, chart)


def _launches(view: View) -> Exhibit:
    job = view.opened.job
    counts, words = launch_delays([job.ranks[p] for p in numbers.positions(view)]), decade_words()
    question, columns = "Does the host keep ahead of the device?", ("from launch to start", "operations")
    if not counts.any():
        reading = "The traces link no device operation to its launch."
        return Exhibit("launches", question, reading, sheet(columns, []))
    table = sheet(columns, zip(words, counts.tolist(), strict=True))
    behind = float(counts[:2].sum() / counts.sum())
    starved = "the device has drained its queue and waits for the host"
    what = starved if behind > 0.5 else "work mostly waits in the launch queue"
    reading = f"{format_share(behind)} of the operations start within 10 µs of their launch: {what}."
    parts = [Part("operations", "", "accent", counts.tolist())]
    chart = Stacked(words, parts, "operations", horizontal=False, axis=columns[0])
    return Exhibit("launches", question, reading, table, chart)


def loading_words(measures: Measures) -> str:
    """One or two sentences: "4 workers per rank make a batch each 9 ms, and each batch takes one 36 ms."."""
    workers = present(measures, {}).num_workers
    costs = [cost for facts in measures.job.ranks if (cost := fetch_costs(facts, workers)) is not None]
    if not costs:
        if workers is None:
            return "Not recorded: how many workers make the batches; ddprof run records it."
        return f"The run had {workers} worker{'' if workers == 1 else 's'} per rank; what a batch costs was not timed."
    cost_us = float(np.mean([cost.mean_ns for cost in costs])) / 1e3
    kinds = [cost.kind for cost in costs if cost.kind]
    goes = f" ({_GOES_TO[max(set(kinds), key=kinds.count)]})" if kinds else ""
    if not workers:
        return f"The training process makes each batch itself, in {format_us(cost_us)}{goes}: no worker does it beside."
    every = f", so that one is ready each {format_us(cost_us / workers)}" if workers > 1 else ""
    plural = "s make" if workers > 1 else " makes"
    return f"{workers} worker{plural} a rank's batches, each in {format_us(cost_us)}{goes}{every}."
