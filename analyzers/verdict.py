"""The verdict in one sentence: the bound of the step, the ranks, and the gain."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.diagnose import Diagnosis
from ddprof.analyzers.facts.work import lost_device
from ddprof.analyzers.job.efficiency import longest_operator
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.scope import (
    COMMUNICATION_ONLY,
    MOST,
    computes_after_start_up,
    mean_step_ns,
    none_is_steady,
    out_of_scope,
)
from ddprof.analyzers.job.steps.steady import MOSTLY
from ddprof.analyzers.job.whole_run.cpu_waits import lacked_when_traced, others_share, takes_its_own_cpus
from ddprof.analyzers.job.whole_run.missing_ranks import late_missing_rank
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.findings import WARNING_SHARE, Abstention, Finding, culprit, severity, severity_of, told_gain
from ddprof.report.model import Steps, Verdict
from ddprof.units import format_range, format_ranks, format_share, format_us, names_ranks

_QUIET = "run the job on a quiet machine, or give it cores of its own (taskset, a cgroup)"
_MORE_CORES = "its own threads and workers compete for them: give it more cores, or fewer workers"
CLEAR_SHARE = 0.03  # of the step: what a headline need not mention
TELLING_STEPS = 12  # what comes in every third step is in just one of so many once in 20 recordings
MOSTLY_COMPUTE = 0.9  # of the step: what an upper bound might still save does not bound it
MAINLY_COMPUTE = (
    0.5  # of the step: nor does an upper bound that is less than critical beside more compute than the rest
)


def verdict(measures: Measures, diagnosis: Diagnosis, steps: Steps) -> Verdict:
    """The headline: the first finding above info, else the largest cause of the ledger.

    `steps`: of the report; where unprofiled steps differ, the gain is said of one of them.
    """
    serious = [f for f in diagnosis.findings if severity_of(f, measures.step_us, steps.unprofiled_us) != "info"]
    if serious:
        top = serious[0]
        rule = catalogue().get(top.id)
        others = _culprits(diagnosis.findings, measures, steps, top)
        sentence = _sentence(top, measures, steps) + others
        modest = severity_of(top, measures.step_us, steps.unprofiled_us) != "critical"
        least = MAINLY_COMPUTE if modest else MOSTLY_COMPUTE
        is_compute = rule is None or (rule.upper_bound and _compute_share(measures) >= least)
        if rule is None or is_compute:
            return Verdict("compute", _capital(sentence))
        return Verdict(rule.bound_of(measures) if rule.bound_of else rule.bound, _capital(sentence))
    plain = _too_busy(diagnosis.abstentions, measures) or _healthy(
        measures, _unsure(diagnosis.findings, measures, steps)
    )
    spent = max(diagnosis.abstentions, key=lambda a: a.spent_us, default=None)
    if spent is not None and spent.spent_us and plain.bound == "compute":
        plain = Verdict("compute", _capital(spent.reason))
    return Verdict(
        plain.bound, plain.headline + _other_reading(measures) + _culprits(diagnosis.findings, measures, steps, None)
    )


def _capital(sentence: str) -> str:
    """The sentence with a capital letter, unless it begins with a name from code: all_reduce, torch.compile."""
    return sentence if re.match(r"\w+[_.]\w", sentence) else sentence[0].upper() + sentence[1:]


def _sentence(finding: Finding, measures: Measures, steps: Steps) -> str:
    """The finding with its gain."""
    gain, step_us = told_gain(finding, measures.step_us, steps.unprofiled_us)
    of_step = steps.noun if gain is finding.recoverable_us else "step without the profiler"
    named = not finding.ranks or names_ranks(finding.summary, finding.ranks)
    who = "" if named else f" ({format_ranks(finding.ranks)})"
    saved, share = format_range(gain.value, gain.low, gain.high), format_share(gain.value / step_us)
    return f"{finding.summary}{who}; fixing it saves {saved} of each {format_us(step_us)} {of_step}, {share}"


def _culprits(findings: tuple[Finding, ...], measures: Measures, steps: Steps, top: Finding | None) -> str:
    """Pointer to a further costly finding that names ranks, where the headline names none."""
    named = culprit(findings, measures.step_us, steps.unprofiled_us)
    return "" if named is None or named[1] is top else f"; finding {named[0]} names {format_ranks(named[1].ranks)}"


def _compute_share(measures: Measures) -> float:
    ledger = measures.ledger_us.mean(axis=0)
    return float(ledger[CAUSE_CODE["compute"]] / ledger.sum()) if ledger.any() else 0.0


def _too_busy(abstentions: Sequence[Abstention], measures: Measures) -> Verdict | None:
    """Verdict of a run in which the busy machine left nothing to judge; None for any other run."""
    withheld = [a for a in abstentions if a.busy_us >= WARNING_SHARE * measures.step_us]
    if not withheld:
        return None
    largest = _largest(withheld, measures)
    what = f"a finding of {largest} of the step"
    if len(withheld) > 1:
        what = f"{len(withheld)} findings, up to {largest} of the step,"
    words = f"Not judged: the machine is busy, and {what} may be chance"
    return Verdict("none", f"{words}; {_remedy(measures)}")


def _remedy(measures: Measures) -> str:
    """The remedy for ranks that lack CPUs, by whose threads take them."""
    return _MORE_CORES if takes_its_own_cpus(measures.job.ranks) else _QUIET


def _other_reading(measures: Measures) -> str:
    """The mean step of the whole run, or what it is if a long one recurs, where few traced steps cannot tell whether it
    does; "" where that is little more."""
    left_out, step_us = measures.job.left_out, measures.step_us
    if measures.steps + len(left_out) >= TELLING_STEPS:
        return ""
    long = max((s for s in left_out if s.why.startswith(MOSTLY)), key=lambda s: s.wall_ns, default=None)
    if long is None or none_is_steady(measures.job.ranks, left_out):
        return ""
    mean_ns, is_timed = mean_step_ns(measures.job.ranks, left_out, 1e3 * step_us, measures.steps)
    mean_us = mean_ns / 1e3
    if mean_us - step_us < WARNING_SHARE * step_us:
        return ""
    why = long.why.removeprefix(MOSTLY).strip()
    if is_timed:
        return f"; the mean step of the whole run takes {format_us(mean_us)}: a longer one, mostly {why}, was left out"
    return f"; a step takes {format_us(mean_us)}, with {why}, if step {long.number} recurs: record more steps to tell"


def _largest(withheld: Sequence[Abstention], measures: Measures) -> str:
    return format_share(max(a.busy_us for a in withheld) / measures.step_us)


def _unsure(findings: Sequence[Finding], measures: Measures, steps: Steps) -> str:
    """The saving of the first finding worth a warning but for its range, which begins at 0, in words."""
    for number, finding in enumerate(findings, 1):
        gain, step_us = told_gain(finding, measures.step_us, steps.unprofiled_us)
        if severity(gain.value, step_us) != "info" and gain.low <= 0:
            return f"finding {number} may save {format_share(gain.value / step_us)}, or nothing"
    if any(severity(finding.recoverable_us.value, measures.step_us) != "info" for finding in findings):
        return "no fix above 3 % of the step without the profiler found"  # what is shown beside it is of traced steps
    return "no fix above 3 % found"


def _healthy(measures: Measures, rest: str) -> Verdict:
    unseen = out_of_scope(measures.job)
    if unseen:
        is_lost = all(lost_device(facts, measures.job.ranks) for facts in measures.job.ranks)
        more = _longest(measures, "on the host ") if is_lost else ""
        if unseen == COMMUNICATION_ONLY and measures.steps > 1:
            more = _communicating(measures)
        return Verdict("none", f"Not judged: {unseen}{more}")
    late = late_missing_rank(measures.job)
    if late is not None:
        return Verdict("none", f"Not judged: {late.words}")
    ledger = measures.ledger_us.mean(axis=0)
    shares = dict(zip(CAUSES, ledger / ledger.sum() if ledger.any() else ledger, strict=True))
    first, second = sorted(shares, key=lambda cause: shares[cause], reverse=True)[:2]
    largest = first if ledger.any() else "unknown"
    step = format_us(measures.step_us)
    if largest == "compute" and shares[second] < CLEAR_SHARE:
        return Verdict("compute", f"No cause of lost time takes more than 3 % of the {step} step{_longest(measures)}")
    named = second if largest == "compute" else largest
    started = computes_after_start_up(measures.job) if named == "other" else ""
    if started:
        return Verdict("compute", f"{_capital(started)}; {rest}")
    rest = _lacking_cpus(measures, shares.get(named, 0.0)) + rest
    text = f"{format_share(shares.get(named, 0.0))} of each {step} step is {_words(named, measures)}; {rest}"
    return Verdict(CAUSES[largest].bound, text + (_longest(measures) if largest == "compute" else ""))


def _communicating(measures: Measures) -> str:
    """The shares of a step that are transfers and, where it can be seen, waiting for late ranks, in words."""
    ledger = measures.ledger_us.mean(axis=0)
    shares = [float(ledger[CAUSE_CODE[cause]] / ledger.sum()) for cause in ("comm_transfer", "comm_wait")]
    waiting = f", and {format_share(shares[1])} is waiting for late ranks" if shares[1] >= CLEAR_SHARE else ""
    return f", {format_share(shares[0])} of each {format_us(measures.step_us)} step{waiting}"


def _lacking_cpus(measures: Measures, share: float) -> str:
    """Words where want of a CPU may make up half of a cause's share, as a thread that waits for one stands still in
    whatever it does, and so do ranks that wait for threads that move their data; else "".
    """
    lacked, others = lacked_when_traced(measures.job.ranks), others_share(measures.job.ranks)
    if not lacked or max(lacked, others) < max(share / 2, WARNING_SHARE):
        return ""
    taken = f", others took {format_share(others)} of all" if lacked < share / 2 else ""
    return f"ranks had no CPU for {format_share(lacked)} of the time{taken}: {_remedy(measures)}; "


def _longest(measures: Measures, where: str = "") -> str:
    """The longest operator of a step that is mostly compute, or of its host alone (`where`), in words, or the host's
    loading where that is longer; "" where neither is recorded.
    """
    longest = longest_operator(measures)
    loading = float(measures.host_spans_us["dataloader"].mean()) / measures.step_us if where else 0.0
    if loading > (longest[1] if longest else 0.0):
        return f"; {where}loading takes {format_share(loading)}"
    if longest is None:
        return ""
    name, share, first = longest
    once = f", mostly its first call ({format_share(first)})" if first > MOST else ""
    return f"; {where}the longest operator, {name}, takes {format_share(share)}{once}"


def _words(cause: str, measures: Measures) -> str:
    """A cause in a sentence; communication mostly of groups that lack a rank may include waiting for it."""
    lacking = measures.comm.traffic if cause == "comm_transfer" and measures.job.missing_ranks else ()
    lacking_us = sum(t.exposed_us for t in lacking if t.role == "unmatched" or not t.is_whole)
    if lacking_us <= float(measures.cause_us(cause).mean()) / 2:
        return CAUSES[cause].words
    return "exposed communication with ranks that this report lacks, or waiting for them"
