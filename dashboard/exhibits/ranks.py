"""Ranks & steps: who is the straggler, always or sometimes? Are the steps stable?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ddprof.analyzers.job.charged import waited_for_us
from ddprof.analyzers.job.slowdown import typical_us as typical_host_us
from ddprof.causes import CAUSE_IDS, CAUSES
from ddprof.dashboard.exhibits.overview import LEAST_OUTLIER_SHARE, rank_causes
from ddprof.dashboard.exhibits.parts import numbers
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Sheet, following, matrix, sheet
from ddprof.dashboard.exhibits.parts.numbers import (
    causes_by_step_us,
    condensed,
    lateness_us,
    readable_times,
    typical_us,
)
from ddprof.dashboard.exhibits.places import by_host
from ddprof.dashboard.figures.charts import Heat, Stacked, all_cause_parts
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.finding_ids import STRAGGLER_UNEXPLAINED
from ddprof.findings import CRITICAL_SHARE, WARNING_SHARE, Change
from ddprof.report import phrases
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_times, format_us

MAX_BLAMED = 16  # ranks in one chart


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    if view.opened.has_traces:
        yield following(_lateness(view), "ranks", "steps")
        yield following(_blame(view), "ranks")
        yield from filter(None, [by_host(view)])
        yield _critical(view)
        yield following(_steps(view), "ranks", "steps")
        yield following(_slowdown(view), "ranks")
    yield from filter(None, [rank_causes(view)])


def _lateness(view: View) -> Exhibit:
    positions, steps = numbers.positions(view), numbers.steps(view)
    late = lateness_us(view.opened.job)[np.ix_(positions, steps)] / 1e3
    names = numbers.rank_names(view, positions)
    question = "Which rank comes late, always or sometimes?"
    table = matrix(("rank", *(f"step {s} (ms)" for s in steps)), names, late)
    if not np.isfinite(late).any():
        reading = "No collective was seen on two ranks: who comes late cannot be judged."
        return Exhibit("lateness", question, reading, sheet(table.columns, []))
    median = typical_us(late)
    worst = int(np.nanargmax(median))
    behind = int(np.sum(late[worst] > 0))
    often = f" (median over steps), late in {behind} of {len(steps)} steps" if len(steps) > 1 else ""
    reading = (
        f"{names[worst].capitalize()} enters a collective {format_us(median[worst] * 1e3)} after the others on "
        f"average{often}."
        f"{_beside(view, positions[worst], 'lateness')}"
    )
    lines, lines_names = condensed(late, names)
    times, unit, critical = readable_times(lines, view.opened.measures.step_us / 1e3)
    chart = Heat(times, [str(s) for s in steps], lines_names, unit, critical, True, "step")
    return Exhibit("lateness", question, reading, table, chart)


def _blame(view: View) -> Exhibit:
    positions = numbers.positions(view)
    charged = waited_for_us(view.opened.job)[positions] / 1e3
    names = numbers.rank_names(view, positions)
    table = _by_cause(names, charged, "ms")
    question = "Who makes the others wait, and with what?"
    if not charged.any():
        reading = "None of these ranks makes others wait."
        return Exhibit("blame", question, reading, sheet(table.columns, []))
    most = int(charged.sum(axis=1).argmax())
    cause = CAUSE_IDS[int(charged[most].argmax())]
    reading = (
        f"{names[most].capitalize()} costs each other rank {format_us(charged[most].sum() * 1e3)} of waiting per step, "
        f"mostly {CAUSES[cause].label}. {_told_of(view.opened, positions[most])}"
        f"{_beside(view, positions[most], 'waiting')}"
    )
    beyond = _told_beyond(view.opened)
    reading += f" {beyond}" if beyond else ""
    chart = _largest(names, charged, "ms of waiting per step and other rank")
    if len(chart.labels) < len(names):
        reading += f" Drawn: {len(chart.labels)} of {len(names)} ranks; the others cost less or nothing."
    return Exhibit("blame", question, reading, table, chart)


def _critical(view: View) -> Exhibit:
    job, path = view.opened.job, view.opened.critical
    total = np.zeros((len(job.ranks), len(CAUSES)))
    # What the host launched ahead of the first step is in no step.
    first = min(int(f.steps["start_ns"][0]) - job.clock.offset_ns(p) for p, f in enumerate(job.ranks))
    length = np.maximum(0, path["end_ns"] - np.maximum(path["start_ns"], first))
    np.add.at(total, (path["rank"], path["cause"]), length / 1e6)
    total /= max(len(facts.steps) for facts in job.ranks)  # the path runs through all that was recorded
    names = numbers.rank_names(view, range(len(job.ranks)))
    table = _by_cause(names, total, "ms/step")
    question = "Whose work makes the step as long as it is?"
    if not total.any():
        return Exhibit("critical", question, "This run could not be replayed: its critical path is not known.", table)
    by_rank = total.sum(axis=1)
    most, cause = int(by_rank.argmax()), CAUSE_IDS[int(total.sum(axis=0).argmax())]
    reading = (
        f"The critical path runs {format_share(by_rank[most] / by_rank.sum())} of the time on {names[most]}; most of "
        f"it is {CAUSES[cause].label}. Work off the critical path does not shorten the step."
    )
    reading += _off_the_path(view.opened, job.rank_ids[most], by_rank)
    return Exhibit("critical", question, reading, table, _largest(names, total, "ms per step"))


def _by_cause(names: Sequence[str], values: Array, unit: str) -> Sheet:
    """Amounts by rank and cause, shape (ranks, causes), and their sum."""
    columns = ("rank", *(f"{row.label} ({unit})" for row in CAUSES.values()), f"all ({unit})")
    return matrix(columns, names, np.column_stack((values, values.sum(axis=1))))


def _largest(names: Sequence[str], values: Array, unit: str) -> Stacked:
    """The ranks with the largest sums, shape (ranks, causes); none whose sum is zero."""
    total = values.sum(axis=1)
    drawn = [i for i in np.argsort(-total, kind="stable").tolist() if total[i] > 0][:MAX_BLAMED]
    return Stacked([names[i] for i in drawn], all_cause_parts(values[drawn]), unit)


def _steps(view: View) -> Exhibit:
    job, steps = view.opened.job, numbers.steps(view)
    by_rank_us = causes_by_step_us(job)[np.ix_(numbers.positions(view), steps)]
    held = np.maximum(np.isfinite(by_rank_us).sum(axis=0), 1)
    causes = np.nansum(by_rank_us, axis=0) / held / 1e3  # 0 where none of them has the step
    total = causes.sum(axis=1)
    question = "Are the steps stable, and what makes a slow one slow?"
    columns = ("step", "all (ms)", *(f"{row.label} (ms)" for row in CAUSES.values()))
    table = matrix(columns, steps, np.column_stack((total, causes)))
    if len(steps) < 2:
        was = "recorded" if view.steps is None else "chosen"
        reading = f"{'Only one' if steps else 'No'} step was {was}, so the spread is unknown."
        return Exhibit("step-causes", question, reading, table)
    slow = int(total.argmax())
    extra = CAUSE_IDS[int((causes[slow] - np.median(causes, axis=0)).argmax())]
    longest = f"{numbers.step_name(job, steps[slow])} is the longest, mostly by {CAUSES[extra].label}"
    stands_out = total[slow] >= (1 + LEAST_OUTLIER_SHARE) * np.median(total)
    reading = (
        f"Median {format_us(np.median(total) * 1e3)}, 95th percentile {format_us(np.percentile(total, 95) * 1e3)}; "
        f"{longest if stands_out else 'no step is clearly longer'}."
    )
    chart = Stacked([str(s) for s in steps], all_cause_parts(causes), "ms", horizontal=False, axis="step")
    return Exhibit("step-causes", question, reading, table, chart)


def _slowdown(view: View) -> Exhibit:
    measures, positions = view.opened.measures, numbers.positions(view)
    names = numbers.rank_names(view, positions)
    typical = typical_host_us(measures.host, view.opened.job.pipeline)
    host = np.where(typical > 0, measures.host.time_us / np.maximum(typical, 1e-9), np.nan)
    values = (np.column_stack((measures.compute.factor, host))[positions] - 1) * 100
    table = matrix(("rank", "compute (% longer)", "host (% longer)"), names, values)
    question = "Is a rank slower for the same work?"
    if not np.isfinite(values).any():
        return Exhibit("pace", question, "There is nothing to compare: no two ranks run the same work.", table)
    worst, what = np.unravel_index(int(np.nanargmax(values)), values.shape)
    noun = ("kernels", "host work")[int(what)]
    reading = "No: all ranks take equally long for the same work, within 1 %."
    if values[worst, what] >= 1.0:
        more = values[worst, what]
        longer = f"{more:.0f} % longer than" if more < 100 else f"{format_times(1 + more / 100)} as long as"
        reading = (
            f"{names[int(worst)].capitalize()} takes {longer} its typical peer for the same {noun}."
            f"{_beside(view, positions[int(worst)], 'pace')}"
        )
    lines, lines_names = condensed(values, names)
    chart = Heat(lines, ["compute", "host"], lines_names, "% longer", 100 * CRITICAL_SHARE, True)
    return Exhibit("pace", question, reading, table, chart)


def _beside(view: View, position: int, order: str) -> str:
    named = view.opened.report.culprit()
    return phrases.beside_words(named, view.opened.job.rank_ids[position], order)


def _told_of(opened: OpenRun, position: int) -> str:
    """The finding that names the costliest rank, in words; else the effect of its lateness."""
    rank = opened.job.rank_ids[position]
    for number, finding in enumerate(opened.report.ranked_findings(), 1):
        if rank in finding.ranks:
            return f"Finding {number} ({finding.id}) names it."
    lead = phrases.leading(opened.report)
    whole_job = f" Finding 1 ({lead.id}) is of the whole job." if lead and not lead.ranks else ""
    return f"No finding names it{_on_time(opened, rank)}.{whole_job}"


def _on_time(opened: OpenRun, rank: int) -> str:
    """The step's loss to the rank's lateness by replay, in words, as waiting is not step time."""
    if opened.pricer.error is None:
        return ""
    step_us = opened.measures.step_us
    gain_us = max(0.0, step_us - opened.pricer.step_us((Change("on_time", (rank,)),)))
    if gain_us < phrases.LEAST_SHARE * step_us:
        return ": the step would be as long if it came on time"
    why = ", as others are late too" if gain_us < WARNING_SHARE * step_us else ""
    if not why and STRAGGLER_UNEXPLAINED in opened.report.checked:
        why = ", but it is not late beyond chance"
    return f": on time it would save {format_us(gain_us)} ({format_share(gain_us / step_us)}){why}"


def _told_beyond(opened: OpenRun) -> str:
    """Sentence on findings that save more than the waiting for their ranks, as they shorten more than waiting."""
    job = opened.job
    cost_us = dict(zip(job.rank_ids, waited_for_us(job).sum(axis=1).tolist(), strict=True))
    sentences = []
    for number, finding in enumerate(opened.report.ranked_findings(), 1):
        waits_us, gain = sum(cost_us.get(rank, 0.0) for rank in finding.ranks), finding.recoverable_us
        if finding.ranks and opened.report.severity_of(finding) != "info" and waits_us < gain.low:
            sentences.append(
                f"Finding {number} ({finding.id}) saves {format_us(gain.value)}, more than the {format_us(waits_us)} "
                f"that others wait for {format_ranks(finding.ranks)}: its fix also shortens what is not waiting."
            )
    return " ".join(sentences)


def _off_the_path(opened: OpenRun, most: int, length_ms: Array) -> str:
    """Reason why the critical path runs mostly on another rank than the culprit; "" where it does not."""
    named = opened.report.culprit()
    if named is None or most in named[1].ranks or not length_ms.any():
        return ""
    number, lead = named
    late_ms = [length_ms[position] for position, rank in enumerate(opened.job.rank_ids) if rank in lead.ranks]
    return (
        f" Finding {number} ({lead.id}) names {format_ranks(lead.ranks)}, with "
        f"{format_share(sum(late_ms) / length_ms.sum())} of the path, which may run on any rank where all work alike."
    )
