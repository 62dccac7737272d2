"""The report in words: phrases that the terminal, Markdown and HTML share."""

from __future__ import annotations

import math
import statistics

from ddprof.causes import CAUSES
from ddprof.finding_ids import INPUT_PAGEABLE_COPY
from ddprof.findings import (
    CRITICAL_SHARE,
    HIGH,
    WARNING_SHARE,
    Basis,
    Doubt,
    Evidence,
    Finding,
    Fix,
    Remark,
    told_gain,
)
from ddprof.report.model import AppliedSetting, Calibration, Report
from ddprof.units import (
    format_between,
    format_count,
    format_name,
    format_range,
    format_ranks,
    format_share,
    format_us,
    names_ranks,
)
from ddprof.untrusted.plain_text import clean as clean

TRAINING_TITLE = "The training itself (costs no step time, may spoil the result)"
MAX_FINDINGS = 5  # what a person reads; JSON carries all of them
ALIKE = 0.1  # relative: a cost and a saving that differ by less need no words
LEAST_SHARE = 0.0005  # of the step: a smaller one prints as 0.0 %
NOT_RECORDED_DEVICE = "device not recorded"
NO_GAIN = "no measurable gain on its own"
_MEDIUM = 0.5  # confidence: more likely right than wrong


def confidence_word(finding: Finding) -> str:
    """The confidence as a word, "high", "medium" or "low"; never "high" for a recording that shows little."""
    if finding.confidence >= HIGH and not set(finding.doubts) - {Doubt.PRICES_DIFFER.value}:
        return "high"
    return "medium" if finding.confidence >= _MEDIUM else "low"


def confidence_words(finding: Finding) -> str:
    """A finding's confidence: how often such findings were right, and what this recording lacks."""
    word = confidence_word(finding)
    return f"{word}: {clean(finding.grounds)}" if finding.grounds else word


def bound_word(report: Report) -> str:
    """The label in front of the headline: what most of the step consists of, e.g. "Compute-bound (93 %)"."""
    if report.failure is not None:
        return "Failed"
    job = report.ledger.job
    largest = max(CAUSES, key=lambda cause: job.get(cause, 0.0))
    if report.verdict.bound == "none" or not job.get(largest, 0.0) > 0:
        return "No verdict"
    if CAUSES[largest].bound == "none" and report.verdict.bound == "compute":
        largest = "compute"  # start-up may take longer than what is judged
    share = format_share(job[largest] / job["wall_us"])
    bound = CAUSES[largest].bound
    leading = next((finding.id for finding in report.findings), "")
    if largest == "memcpy" and leading == INPUT_PAGEABLE_COPY and report.verdict.bound == "host":
        bound = "copy"  # of something else than batches
    # A log of communication alone says nothing of the rest, which is not idle for that.
    word = "Unexplained" if largest == "unknown" else "Idle" if bound == "none" else f"{bound.capitalize()}-bound"
    return f"{word} ({share})"


def headline(report: Report) -> str:
    """The label, then the failure, the largest saving, or the rest of the step in one sentence."""
    if report.failure is not None:
        return f"{bound_word(report)}: {clean(report.failure.sentence)}"
    saving = "Largest saving: " if _leads_by_time(report) else "Fix first: "
    return f"{bound_word(report)}. {saving if leading(report) else ''}{clean(report.verdict.headline)}"


def order_words(report: Report) -> str:
    """The order of the findings: by the time saved, but for a first one that is surer than a larger one."""
    return "largest gain first" if _leads_by_time(report) else "surest first, then by gain"


def _leads_by_time(report: Report) -> bool:
    """True where no finding saves more than the first, in the step whose gain is told."""
    steps, ranked = report.steps, report.ranked_findings()
    told = [told_gain(finding, steps.wall_us, steps.unprofiled_us) for finding in ranked]
    shares = [gain.value / max(step_us, 1e-9) for gain, step_us in told]
    return not shares or shares[0] >= max(shares)


def check_first_words(report: Report) -> str:
    """The worst doubt about the training's result, shown above the verdict; "" without one."""
    remarks = report.training.remarks
    doubts = [r for severity in ("critical", "warning") for r in remarks if r.severity == severity]
    more = f"; and {len(doubts) - 1} more below" if len(doubts) > 1 else ""
    return f"Check the result first: {remark_words(doubts[0])}{more}" if doubts else ""


def before_words(report: Report) -> str:
    """The verdict on the steps before a job failed; "" for a job that did not."""
    return "" if report.failure is None else f"Before that: {clean(report.verdict.headline)}"


def applied_words(report: Report) -> str:
    """The settings that `ddprof run` applied and those it did not; "" where none were asked for."""
    done = {}
    for setting in (setting for setting in report.applied if setting.applied):
        was = "so already" if setting.before == setting.value else f"was {setting.before}"
        done[_place(setting) if setting.before is None else f"{_place(setting)} ({was})"] = True
    failed = dict.fromkeys(f"{_place(setting)} ({setting.why})" for setting in report.applied if not setting.applied)
    parts = [f"Applied by ddprof run: {', '.join(done) if done else 'nothing'}"]
    parts += [f"not applied: {', '.join(failed)}"] if failed else []
    return clean("; ".join(parts)) if report.applied else ""


def _place(setting: AppliedSetting) -> str:
    return f"{setting.setting}={setting.value}" + (f" at {setting.at}" if setting.at else "")


def leading(report: Report) -> Finding | None:
    """The finding that the verdict rests on: the largest above "info"; None without one."""
    return next((f for f in report.ranked_findings() if report.severity_of(f) != "info"), None)


def time_words(value_us: float) -> str:
    """A time for people; "unknown" for NaN."""
    return format_us(value_us) if math.isfinite(value_us) else "unknown"


def run_words(report: Report) -> str:
    """The run in one line: name, ranks, hosts, device, framework, steps."""
    run, steps = report.run, report.steps
    hosts = len(set(run.hosts.values()))
    is_whole = len(run.ranks) == run.world_size
    ranks = format_count(run.world_size, "rank") if is_whole else f"{len(run.ranks)} of {run.world_size} ranks"
    parts = [
        run.name,
        ranks + (f" on {hosts} hosts" if hosts > 1 else ""),
        run.device_name or (NOT_RECORDED_DEVICE if run.device == "unknown" else run.device),
        " over ".join(filter(None, (" + ".join(run.framework), run.backend))),
        f"{format_count(steps.count, 'step')} of {time_words(steps.wall_us)}" if steps.count else "no steps",
    ]
    return clean(" · ".join(part for part in parts if part.strip()))


def trust_words(report: Report) -> str:
    """Trust in the verdict: confidence of the leading finding, spread of steps, replay error."""
    facts, finding = [], leading(report)
    spread = spread_words(report)
    if spread:
        facts.append(f"{report.steps.count} steps, {spread}")
    elif report.steps.count == 1 and not (finding and finding.grounds):
        facts.append("only one step")
    if report.replay.error is not None:
        facts.append(f"replay within {format_share(report.replay.error)} of the measured step")
    if report.run.missing_ranks:
        facts.append(f"without {format_ranks(report.run.missing_ranks)}")
    return "; ".join(facts if finding is None else [confidence_words(finding), *facts])


def step_spread(report: Report) -> float | None:
    """Half the interquartile range of the steps over their median; None below three steps."""
    values = [v for v in report.steps.per_step_us if math.isfinite(v)]
    if len(values) < 3 or statistics.median(values) <= 0:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / statistics.median(values)


def spread_words(report: Report) -> str:
    """ "spread" of the steps, and the one that pulls their mean out of it by what is worth a finding; "" below three
    steps."""
    spread, values = step_spread(report), [v for v in report.steps.per_step_us if math.isfinite(v)]
    if spread is None:
        return ""
    median, mean = statistics.median(values), statistics.fmean(values)
    words = f"spread ±{format_share(spread)}"
    if abs(mean - median) <= max(spread, WARNING_SHARE) * median:
        return words
    return f"{words}; one took {format_us(max(values, key=lambda value: abs(value - median)))}"


def who_words(finding: Finding) -> str:
    """The ranks of a finding: "rank 3", "ranks 0-3", or "the whole job"."""
    return format_ranks(finding.ranks) if finding.ranks else "the whole job"


def gain_words(report: Report, finding: Finding) -> str:
    """The gain of a fix with range and share, and the step time after it."""
    gain, step_us = report.shown_gain(finding)
    traced = traced_words(report, finding)
    if not gain.value >= LEAST_SHARE * step_us:
        if traced:
            return f"no measurable gain without the profiler{traced}"
        if alone := finding.alone_us:
            share = f" ({format_share(alone.value / report.steps.wall_us)} of the step)" if step_us > 0 else ""
            return f"{format_us(alone.value)}{share} if fixed alone; nothing extra after the larger findings"
        return NO_GAIN + (": other ranks are just as late" if finding.waited_us and _is_judged(report) else "")
    noun = report.steps.noun if gain is finding.recoverable_us else "step without the profiler"
    words = f"{format_range(gain.value, gain.low, gain.high)} per {noun}"
    if not step_us > 0:
        return words
    after_us = max(0.0, step_us - gain.value)
    speedup = f", {step_us / after_us:.2f}x" if after_us > 0 else ""
    share = format_share(gain.value / step_us)
    past = calibration_words(report.calibration.get(finding.id))
    return f"{words}: {share}, {format_us(step_us)} -> {format_us(after_us)}{speedup}{traced}{past}"


def _is_judged(report: Report) -> bool:
    """True where the replay priced the findings: without a bound, nobody knows who else would be late."""
    return report.verdict.bound != "none"


def cost_words(report: Report, finding: Finding) -> str:
    """Time lost to a cause, or waited for its ranks, against the time saved; "" where they are alike."""
    gain_us = (finding.alone_us or finding.recoverable_us).value
    cost_us = finding.waited_us or finding.lost_us
    if not cost_us > 0:
        return ""
    cost = f"{format_us(cost_us)} per {report.steps.noun}"
    mean = ", mean over ranks" if len(report.run.ranks) > 1 else ""
    cost = f"the others wait {cost} for {who_words(finding)}" if finding.waited_us else cost + mean
    if not gain_us >= LEAST_SHARE * report.steps.wall_us:
        others = "other ranks are" if finding.waited_us else "other work is"
        return f"{cost}; the fix saves nothing" + (f": {others} just as late" if _is_judged(report) else "")
    if gain_us > (1 + ALIKE) * cost_us:
        if finding.basis == Basis.TIMED:
            return f"{cost}; it costs more outside the trace"
        if finding.waited_us and finding.lost_us > gain_us:
            return f"{cost}; the fix saves more: waits are only part of what this costs"
        if finding.waited_us and report.steps.unprofiled_us is not None:
            return f"{cost}; the fix saves more: they wait longer outside the trace"
        return f"{cost}; the fix saves more: the delays that it causes elsewhere shrink too"
    if gain_us < (1 - ALIKE) * cost_us:
        if finding.basis == Basis.TIMED and finding.waited_us:  # in traced steps, which need not hold any of it
            return f"{cost}, in part for other reasons"
        return f"{cost}; the fix saves less: part of it remains, or other work takes its place"
    return ""


def beside_words(culprit: tuple[int, Finding] | None, rank: int, order: str) -> str:
    """A sentence, behind a blank, on the culprits where a page shows another rank first, by `order`; else ""."""
    if culprit is None or rank in culprit[1].ranks:
        return ""
    number, finding = culprit
    return f" Finding {number} ({finding.id}) names {format_ranks(finding.ranks)}: by the time saved, not by {order}."


def prices_differ(finding: Finding) -> bool:
    """True where the second price of a finding is far enough off to be shown beside the gain."""
    return Doubt.PRICES_DIFFER.value in finding.doubts


def ledger_words(finding: Finding) -> str:
    """The second price of a finding, made without the replay; "" where there is none."""
    price = finding.by_ledger_us
    if price is None:
        return ""
    if not price.value > 0:
        return f"the time breakdown alone predicts a gain of at most {format_us(price.high)}"
    return f"the time breakdown alone predicts a gain of {format_between(price.value, price.high)}"


def traced_words(report: Report, finding: Finding) -> str:
    """The gain in a traced step, as the end of a sentence; "" where the gain told is that one, or traced steps may hold
    none of the cause."""
    gain, step_us = finding.recoverable_us, report.steps.wall_us
    is_told = report.shown_gain(finding)[0] is gain or finding.basis == Basis.TIMED
    if is_told or not gain.value >= LEAST_SHARE * step_us:
        return ""
    return f"; traced {format_us(step_us)} -> {format_us(max(0.0, step_us - gain.value))}"


def calibration_words(calibration: Calibration | None) -> str:
    """Outcomes of earlier predictions of this kind, as the end of a sentence; "" where none was verified."""
    if calibration is None or not calibration.total:
        return ""
    were = "prediction was" if calibration.total == 1 else "predictions were"
    return f"; {calibration.inside} of {calibration.total} similar {were} within range"


def on_page(words: str) -> str:
    """A sentence for a browser, with an arrow that no line break splits."""
    return words.replace("->", "→")


def fix_words(fix: Fix) -> str:
    """One change: setting, old and new value, reason, and what to check before it is made."""
    was = f": {fix.current} -> " if fix.current else " -> " if fix.applies else ": "
    change = f"{fix.setting}{was}{fix.suggested}"
    reasoned = f"{change} ({fix.why})" if fix.why else change
    return clean(f"{reasoned}. {fix.condition}" if fix.condition else reasoned)


def remark_words(remark: Remark) -> str:
    """A remark with its ranks and its identifier."""
    is_named = not remark.ranks or names_ranks(remark.summary, remark.ranks)
    return clean(f"{remark.summary}{'' if is_named else f' ({format_ranks(remark.ranks)})'} ({remark.id})")


def evidence_words(evidence: Evidence) -> str:
    """One observation with its rank and times."""
    where = []
    if evidence.rank is not None and not names_ranks(evidence.text, [evidence.rank]):
        where.append(f"rank {evidence.rank}")
    if evidence.start_us is not None:
        start, end = format_us(evidence.start_us), format_us(evidence.end_us or evidence.start_us)
        since = f"at {start}" + (f" to {end}" if end != start else "")
        where.append(since if evidence.start_us >= 0 else f"begun before the recording, until {end}")
    if evidence.event and format_name(evidence.event).rstrip("…") not in evidence.text:
        where.append(format_name(evidence.event))
    return clean(f"{evidence.text} [{', '.join(where)}]" if where else evidence.text)


def abstention_words(report: Report) -> list[tuple[str, str]]:
    """(finding ids that share a reason, reason) for causes that could not be judged, in the report's order."""
    ids = abstentions_by_reason(report)
    every = not report.checked and not report.findings and len(ids) == 1
    few = {reason: ", ".join(of) if len(of) <= MAX_FINDINGS else f"{len(of)} causes" for reason, of in ids.items()}
    return [("every cause" if every else clean(words), reason) for reason, words in few.items()]


def abstentions_by_reason(report: Report) -> dict[str, list[str]]:
    """Reason -> identifiers of the causes that could not be judged."""
    ids: dict[str, list[str]] = {}
    for abstention in report.abstentions:
        ids.setdefault(clean(abstention.reason), []).append(clean(abstention.id))
    return ids


def nothing_found_words(report: Report) -> str:
    """The sentence in place of findings; without a verdict, no finding does not mean that all is well."""
    if not report.checked:
        return "No cause could be checked."
    if report.failure is not None:
        return "No cause of lost time was found in the steps before the job failed."
    if report.verdict.bound == "none":
        return "No cause was found, but the job could not be judged."
    lost = _lost_words(report)
    if lost:
        also = f" {not_judged_count(report)} could not be judged." if report.abstentions else ""
        return f"No specific fix found; {lost}.{also}"
    return "No cause that was checked has a fix that would save time."


def _lost_words(report: Report) -> str:
    """Share of the step that is not compute, and its largest causes; "" where that is CRITICAL_SHARE or less."""
    job = report.ledger.job
    wall_us = job.get("wall_us", 0.0)
    lost_us = wall_us - job.get("compute", 0.0)
    if not wall_us or lost_us <= CRITICAL_SHARE * wall_us:
        return ""
    others = sorted((cause for cause in CAUSES if cause != "compute"), key=lambda cause: -job.get(cause, 0.0))
    most = ", ".join(
        f"{CAUSES[cause].label} {format_share(job.get(cause, 0.0) / wall_us)}"
        for cause in others[:3]
        if job.get(cause, 0.0) >= WARNING_SHARE * wall_us
    )
    return f"{format_share(lost_us / wall_us)} of the step is not compute" + (f" ({most})" if most else "")


def limits_words(report: Report, full: bool = False) -> list[tuple[str, str]]:
    """(label, words) of the causes not found and of those not judged: their number; with `full` each of them. Where
    nothing could be judged, the reasons too.
    """
    lines = []
    if report.checked:
        count = format_count(len(report.checked), "other cause" if report.findings else "cause")
        line = ("Checked, not found", ", ".join(report.checked)) if full else ("Checked", f"{count}, none found")
        lines.append(line)
    if full or report.verdict.bound == "none":
        return lines + [("Not judged", f"{ids} ({reason})") for ids, reason in abstention_words(report)]
    return lines + ([("Not judged", f"{not_judged_count(report)}, see --all")] if report.abstentions else [])


def checked_count(report: Report) -> str:
    """Causes that were checked and not found, counted: "17 causes"."""
    return format_count(len(report.checked), "cause")


def not_judged_count(report: Report) -> str:
    """Causes that could not be judged, counted: "3 causes"."""
    return format_count(len(report.abstentions), "cause")
