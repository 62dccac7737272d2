"""Ranks & steps: who is the straggler, always or sometimes? Are the steps stable?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.causes import CAUSE_IDS, CAUSES
from ddprof.dashboard.exhibits.overview import rank_causes
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.parts.numbers import (
    charged_us,
    lateness_us,
    most_different,
    readable_times,
    shown_words,
    step_causes_us,
    step_count,
)
from ddprof.dashboard.figures.charts import Heat, Stacked, cause_parts
from ddprof.dashboard.runs.view import View
from ddprof.units import format_us

MAX_STEPS_SHOWN = 200
MAX_BLAMED = 16


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    if view.opened.has_traces:
        yield from (_lateness(view), _blame(view), _critical(view), _steps(view), _pace(view))
    causes = rank_causes(view)
    if causes:
        yield causes


def _positions(view: View) -> list[int]:
    return [p for p, rank in enumerate(view.opened.job.rank_ids) if view.shows(rank)]


def _shown_steps(view: View) -> list[int]:
    return [s for s in range(step_count(view.opened.job)) if view.shows_step(s)][:MAX_STEPS_SHOWN]


def _lateness(view: View) -> Exhibit:
    job, positions, steps = view.opened.job, _positions(view), _shown_steps(view)
    late = lateness_us(job)[np.ix_(positions, steps)] / 1e3
    names = [f"rank {job.rank_ids[p]}" for p in positions]
    question = "Which rank comes late, always or sometimes?"
    table = sheet(
        ("rank", *(f"step {s} (ms)" for s in steps)), [(n, *_plain(row)) for n, row in zip(names, late, strict=True)]
    )
    if not np.isfinite(late).any():
        reading = "No collective was seen on two ranks: who comes late cannot be judged."
        return Exhibit("lateness", question, reading, sheet(table.columns, []))
    # nanmedian warns on rows without any value; those are ranks that took part in nothing.
    median = np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else -np.inf for row in late])
    worst = int(median.argmax())
    behind = int(np.sum(late[worst] > 0))
    reading = (
        f"{names[worst].capitalize()} arrives {format_us(median[worst] * 1e3)} after the average member (median "
        f"over steps), late in {behind} of {len(steps)} steps."
    )
    drawn = most_different(late)
    shown, unit = readable_times(late[drawn])
    chart = Heat(shown, [str(s) for s in steps], [names[i] for i in drawn], unit, diverging=True, axis="step")
    return Exhibit("lateness", question, reading + shown_words(len(drawn), len(names)), table, chart)


def _plain(row: np.ndarray) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in row]


def _blame(view: View) -> Exhibit:
    job, positions = view.opened.job, _positions(view)
    charged = charged_us(job)[positions] / 1e3
    names = [f"rank {job.rank_ids[p]}" for p in positions]
    columns = ("rank", *(f"{CAUSES[c].label} (ms)" for c in CAUSES), "all (ms)")
    rows = [(n, *map(float, line), float(line.sum())) for n, line in zip(names, charged, strict=True)]
    question = "Who makes the others wait, and with what?"
    if not charged.any():
        return Exhibit("blame", question, "No exposed waiting is charged to any of these ranks.", sheet(columns, []))
    most = int(charged.sum(axis=1).argmax())
    cause = CAUSE_IDS[int(charged[most].argmax())]
    reading = (
        f"{names[most].capitalize()} costs every rank {format_us(charged[most].sum() * 1e3)} of waiting per step "
        f"on average; most of it: {CAUSES[cause].label}."
    )
    total = charged.sum(axis=1)
    drawn = [i for i in np.argsort(-total, kind="stable").tolist() if total[i] > 0][:MAX_BLAMED]
    if len(drawn) < len(names):
        reading += f" Drawn: {len(drawn)} of {len(names)} ranks; the others cost less or nothing."
    parts = cause_parts({c: charged[drawn, i].tolist() for i, c in enumerate(CAUSES)})
    chart = Stacked([names[i] for i in drawn], parts, "ms of waiting per step and rank")
    return Exhibit("blame", question, reading, sheet(columns, rows), chart)


def _critical(view: View) -> Exhibit:
    job, path = view.opened.job, view.opened.critical
    total = np.zeros((len(job.ranks), len(CAUSES)))
    np.add.at(total, (path["rank"], path["cause"]), (path["end_ns"] - path["start_ns"]) / 1e6)
    total /= max(1, step_count(job))
    names = [f"rank {rank}" for rank in job.rank_ids]
    columns = ("rank", *(f"{CAUSES[c].label} (ms/step)" for c in CAUSES), "all (ms/step)")
    table = sheet(columns, [(n, *map(float, line), float(line.sum())) for n, line in zip(names, total, strict=True)])
    question = "Whose work makes the step as long as it is?"
    if not total.any():
        return Exhibit("critical", question, "This run could not be replayed: its critical path is not known.", table)
    by_rank = total.sum(axis=1)
    most, cause = int(by_rank.argmax()), CAUSE_IDS[int(total.sum(axis=0).argmax())]
    reading = (
        f"The critical path, the longest chain of work that waits for nothing but itself, runs "
        f"{by_rank[most] / by_rank.sum():.0%} of the time on {names[most]}; most of it is {CAUSES[cause].label}. "
        "What is not on it can be removed without shortening the step. All ranks and steps, whatever the filter."
    )
    drawn = [i for i in np.argsort(-by_rank, kind="stable").tolist() if by_rank[i] > 0][:MAX_BLAMED]
    parts = cause_parts({c: total[drawn, i].tolist() for i, c in enumerate(CAUSES)})
    return Exhibit("critical", question, reading, table, Stacked([names[i] for i in drawn], parts, "ms per step"))


def _steps(view: View) -> Exhibit:
    job, steps = view.opened.job, _shown_steps(view)
    wanted = np.isin(np.arange(len(job.ranks)), _positions(view))
    causes = step_causes_us(job, wanted)[steps] / 1e3
    total = causes.sum(axis=1)
    question = "Are the steps stable, and what makes a slow one slow?"
    rows = [(s, float(t), *map(float, line)) for s, t, line in zip(steps, total, causes, strict=True)]
    table = sheet(("step", "all (ms)", *(f"{CAUSES[c].label} (ms)" for c in CAUSES)), rows)
    if len(steps) < 2:
        reading = "Only one step was seen: nothing can be said of their spread."
        return Exhibit("step-causes", question, reading, table)
    slow = int(total.argmax())
    extra = CAUSE_IDS[int((causes[slow] - np.median(causes, axis=0)).argmax())]
    reading = (
        f"Median {format_us(np.median(total) * 1e3)}, 95th percentile "
        f"{format_us(np.percentile(total, 95) * 1e3)}; step {steps[slow]} is the longest, mostly by "
        f"{CAUSES[extra].label}."
    )
    parts = cause_parts({c: causes[:, i].tolist() for i, c in enumerate(CAUSES)})
    chart = Stacked([str(s) for s in steps], parts, "ms", horizontal=False, axis="step")
    return Exhibit("step-causes", question, reading, table, chart)


def _pace(view: View) -> Exhibit:
    measures, positions = view.opened.measures, _positions(view)
    names = [f"rank {measures.job.rank_ids[p]}" for p in positions]
    values = np.array([[pace.factor[p] - 1 for pace in (measures.compute, measures.host)] for p in positions]) * 100
    table = sheet(
        ("rank", "compute (% longer)", "host (% longer)"), [(n, *_plain(v)) for n, v in zip(names, values, strict=True)]
    )
    question = "Is a rank slower for the same work?"
    if not np.isfinite(values).any():
        return Exhibit("pace", question, "There is nothing to compare: no two ranks run the same work.", table)
    worst, what = np.unravel_index(int(np.nanargmax(values)), values.shape)
    noun = ("kernels", "host work")[int(what)]
    reading = (
        f"{names[int(worst)].capitalize()} needs {values[worst, what]:.0f} % longer than its typical peer for the "
        f"same {noun}."
    )
    drawn = most_different(values)
    chart = Heat(values[drawn], ["compute", "host"], [names[i] for i in drawn], "% longer", diverging=True)
    return Exhibit("pace", question, reading + shown_words(len(drawn), len(names)), table, chart)
