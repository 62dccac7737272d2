"""Ranked findings from the job's facts: rules propose, replay prices, and the larger of two explanations stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import Struct

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.charged import waited_for_ranks_us
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.scope import ONE_STEP_LEFT, out_of_scope
from ddprof.analyzers.job.traffic.kinds import ACCUMULATION
from ddprof.analyzers.replay.changes.table import doubt_of
from ddprof.analyzers.replay.price import Pricer, ToldPrice
from ddprof.analyzers.rules.evidence.late_line import with_line
from ddprof.analyzers.rules.evidence.present import OF_ANY_FRAMEWORK, is_new, of_other_framework
from ddprof.analyzers.rules.straggler_host import takes_no_longer
from ddprof.analyzers.settings.advised import out_of_reach, planned
from ddprof.analyzers.trust.believed import ledger_price, of_candidate, of_step, of_unprofiled
from ddprof.analyzers.trust.busy_machine import contradicted_by_the_run, explained_by_a_busy_machine
from ddprof.analyzers.trust.confidence import confidence, doubts_of
from ddprof.findings import (
    LINE_SHARE,
    NAMED_SHARE,
    Abstention,
    Alters,
    Candidate,
    Change,
    ContradictsItself,
    Doubt,
    Finding,
    Fix,
    Rule,
    severity_of,
    told_gain,
)
from ddprof.report.model import WhatIf
from ddprof.units import format_ranks, format_us

# Fixes that may change the trained result: unconditional where the recording shows that it stays the same, else with a
# condition for the user to check. The only place that decides this.

CONDITIONS: Mapping[Alters, str] = {
    Alters.REDUCTIONS: "Check first that nothing zeroes or reads gradients between these backward passes",
    Alters.UPDATES: "Check first that learning rate and schedule suit the larger batch",
    Alters.PRECISION: "Check first that loss and outputs stay as good: precision is lower",
    Alters.ORDER: "Check first that no file, server or other process relies on ranks waiting there",
    Alters.VALUES: "Check first that loss, schedule and early stopping do not read these values",
    Alters.BUFFERS: "Check first that only rank 0 evaluates and saves, and that training reads no buffer that changes",
    Alters.SAMPLES: "Check first that the data set gives each worker samples of its own (get_worker_info)",
    Alters.KEPT: "Check first that no random numbers are drawn in what is kept, as augmentation does",
    Alters.ZEROS: "Check first that each step gives every parameter a gradient: the optimizer skips one without",
    Alters.PARAMETERS: "Check first that no later pass leaves a parameter out, which would end the job",
    Alters.MEAN: "Check first that the script averages gradients over all ranks in every step, as DDP does",
    Alters.EQUAL: "Check first that these are parameters that DDP updates, with nothing that a rank changes by itself",
    Alters.CHORE: "Check first that training does not need what this line does",
}


def _keeps_gradients(measures: Measures) -> bool:
    """True where gradients of all passes before an update were seen to be summed and not otherwise touched."""
    accumulated = measures.needless.get(ACCUMULATION)
    return accumulated is not None and accumulated.is_proven


def _asks_by_index(measures: Measures) -> bool:
    """True where no loader leaves the choice of samples to its data set, or several workers of each draw already."""
    loaders = [facts.sidecar.loader for facts in measures.job.ranks]
    return all(loader.sampler or not loader.dataset or (loader.num_workers or 0) > 1 for loader in loaders)


def _draws_nothing(measures: Measures) -> bool:
    """True where no rank drew random numbers while it made its first batches."""
    return all(facts.sidecar.fetch_draws is False for facts in measures.job.ranks)


_PROOFS: Mapping[Alters, Callable[[Measures], bool]] = {
    Alters.REDUCTIONS: _keeps_gradients,
    Alters.SAMPLES: _asks_by_index,
    Alters.KEPT: _draws_nothing,
}


def checked(fix: Fix, measures: Measures) -> Fix:
    """The fix, with a condition where it may change the result and the recording does not show otherwise."""
    alters = fix.alters
    is_proven = alters is None or (alters in _PROOFS and _PROOFS[alters](measures))
    return replace(fix, alters=None, condition="" if is_proven or alters is None else CONDITIONS[alters])


LARGE_SHARE = 0.15  # of the step lost to a cause of the whole job
# A cause keeps its own place if at least this much of its gain is left once the larger findings are fixed.
OWN_SHARE = 0.3
CLEARLY_LARGER = 1.25  # a price that is an upper bound, against one that is none
FEW_NAMED = 8  # missing ranks that a sentence names; beyond it their number says more


class Diagnosis(Struct, frozen=True):
    """Priced findings, abstentions and what-ifs of all rules."""

    findings: tuple[Finding, ...]
    abstentions: tuple[Abstention, ...]
    checked: tuple[str, ...]
    what_if: tuple[WhatIf, ...]


def diagnose(measures: Measures, pricer: Pricer) -> Diagnosis:
    """Run every rule, price every candidate, and rank."""
    heard = _listened(measures, pricer)
    worth = _worth(heard.candidates, measures, pricer)
    findings, fixed = _explain(worth, measures, pricer)
    return Diagnosis(
        findings=in_order(findings, measures, pricer),
        abstentions=tuple(sorted(heard.abstentions, key=lambda abstention: abstention.id)),
        checked=tuple(sorted({*heard.silent, *({c.id for c in heard.candidates} - {c.id for _, c in worth})})),
        what_if=_what_if(findings, fixed, [c for _, c in worth], measures, pricer),
    )


def candidates_of(measures: Measures, pricer: Pricer) -> list[Candidate]:
    """Candidates of all rules that are not withdrawn."""
    return _listened(measures, pricer).candidates


def _listened(measures: Measures, pricer: Pricer) -> _Heard:
    """Results of every rule; rules for unexplained time run last."""
    rules = catalogue().values()
    heard = _Heard()
    for rule in rules:
        if rule.detect_rest is None:
            heard.listen(rule, measures)
    heard.withdraw(lambda candidate: out_of_reach(candidate, pricer))
    explained = tuple(candidate for _, candidate in _worth(heard.candidates, measures, pricer))
    for rule in rules:
        if rule.detect_rest is not None:
            heard.listen(rule, measures, explained)
    return heard


@dataclass
class _Heard:
    """Candidates and abstentions collected from the rules."""

    candidates: list[Candidate] = field(default_factory=list)
    abstentions: list[Abstention] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    def listen(self, rule: Rule, measures: Measures, explained: Sequence[Candidate] = ()) -> None:
        """Add a rule's results; a rule without any has not judged a job that was recorded in part. `explained`: what
        other rules have found, for a rule on the rest.
        """
        why = out_of_scope(measures.job)
        unseen = why if rule.needs_whole_run or why == ONE_STEP_LEFT else None  # else communication tells
        if not unseen and measures.job.not_compared and rule.compares_ranks:
            unseen = f"ranks are not compared: {measures.job.not_compared}"
        heard, rest = list[Candidate | Abstention](), rule.detect_rest
        try:
            if unseen:
                heard.append(Abstention(rule.id, unseen))
            else:
                heard.extend(rule.detect(measures) if rest is None else rest(measures, explained))
        except ContradictsItself as error:  # a defect of the rule, and no reason to say nothing of the job
            heard.append(Abstention(rule.id, str(error)))
        answers = [_unless_chance(c, measures) if isinstance(c, Candidate) else c for c in heard]
        answers = answers or [*left_out(rule, measures)]
        candidates = [c for c in answers if isinstance(c, Candidate)]
        self.candidates += [with_line(measures, c) for c in candidates] if rule.tells_line else candidates
        self.abstentions += [a for a in answers if isinstance(a, Abstention)]
        if not answers:
            self.silent.append(rule.id)

    def withdraw(self, why: Callable[[Candidate], str | None]) -> None:
        """Turn candidates into abstentions where `why` gives a reason, and into what they are instead."""
        reasons = [(candidate, why(candidate)) for candidate in self.candidates]
        left = [candidate if reason is None else candidate.instead for candidate, reason in reasons]
        self.candidates = [candidate for candidate in left if candidate is not None]
        self.abstentions += [Abstention(c.id, reason, is_withdrawn=True) for c, reason in reasons if reason is not None]


def _unless_chance(candidate: Candidate, measures: Measures) -> Candidate | Abstention:
    reason = explained_by_a_busy_machine(candidate, measures)
    is_busy = reason is not None
    reason = reason or contradicted_by_the_run(candidate, measures) or takes_no_longer(candidate, measures)
    if reason is None:
        return candidate
    return Abstention(candidate.id, reason, is_withdrawn=True, busy_us=candidate.lost_us if is_busy else 0.0)


def _worth(candidates: Sequence[Candidate], measures: Measures, pricer: Pricer) -> list[tuple[float, Candidate]]:
    """Candidates worth a line with their gains (us), largest first and bounds last."""
    least_us = LINE_SHARE * measures.step_us
    priced = [(pricer.gain_us(candidate), candidate) for candidate in candidates]
    ranked = sorted(priced, key=lambda one: (one[1].is_bound, -one[0], not one[1].ranks, one[1].id))
    return [(gain, c) for gain, c in ranked if gain >= least_us or not c.changes or _costs_clearly(c, measures)]


def _costs_clearly(candidate: Candidate, measures: Measures) -> bool:
    """True for a clear cost whose removal alone saves nothing because something else holds the step."""
    share = NAMED_SHARE if candidate.ranks else LARGE_SHARE
    return candidate.lost_us >= share * measures.step_us


def _explain(
    worth: Sequence[tuple[float, Candidate]], measures: Measures, pricer: Pricer
) -> tuple[list[Finding], list[tuple[Candidate, Finding]]]:
    """Findings, largest first, without those whose gain larger findings already have: the same time by another name."""
    findings: list[Finding] = []
    told: list[Candidate] = []
    fixed: list[tuple[Candidate, Finding]] = []
    for gain, candidate in worth:
        alone = of_candidate(pricer, candidate, gain)
        if candidate.changes:
            pricer.told.setdefault(candidate.changes, ToldPrice(alone, of_unprofiled(pricer, candidate, alone, True)))
        if any(_is_one_fix(candidate, other) for other in told):
            continue
        larger = _that_explain(candidate, fixed, measures)
        left = pricer.gain_us(candidate, larger) if larger and candidate.changes else gain
        is_own = not larger or left >= OWN_SHARE * gain
        finding = _finding(candidate, gain if is_own else left, is_own, measures, pricer)
        if not is_own:
            finding = replace(finding, alone_us=alone)
        is_small = finding.recoverable_us.value < LINE_SHARE * measures.step_us
        if not is_own and is_small and not _costs_clearly(candidate, measures):
            continue
        findings.append(finding)
        told.append(candidate)
        if is_own and candidate.changes and severity_of(finding, measures.step_us, pricer.bare_us) != "info":
            fixed.append((candidate, finding))
    return findings, fixed


def _is_one_fix(candidate: Candidate, other: Candidate) -> bool:
    """True for the same ranks and the same first fix: a line that one rank alone runs delays all that it does."""
    firsts = [one.fixes[0].setting if one.fixes else "" for one in (candidate, other)]
    return bool(candidate.ranks) and candidate.ranks == other.ranks and firsts[0] == firsts[1] != ""


def _that_explain(
    candidate: Candidate, fixed: Sequence[tuple[Candidate, Finding]], measures: Measures
) -> tuple[Change, ...]:
    """Changes of larger findings that may be the candidate's time by another name.

    Slower kernels on one device than on its peers are not, whatever is done to all ranks alike: fp16 may leave so
    little work that the host hides the rest, and the device is slow nevertheless.
    """
    slow_device = any(c.kind == "scale_compute" and c.target == "peers" for c in candidate.changes)
    only_ranks = slow_device and not execution_of(measures.job).computes_on_host
    return tuple(change for c, _ in fixed if c.ranks or not only_ranks for change in c.changes)


def _finding(candidate: Candidate, gain_us: float, is_own: bool, measures: Measures, pricer: Pricer) -> Finding:
    """The candidate as a finding, priced by replay and, where possible, by the ledger."""
    # What a larger fix leaves of a gain is not in the ledger, and what has no price needs no second one.
    by_ledger = ledger_price(measures, candidate.changes) if is_own and candidate.most_us != 0 else None
    interval = of_candidate(pricer, candidate, gain_us, is_own)
    doubts = (*doubts_of(measures, pricer.error), *candidate.doubts)
    if by_ledger is not None and not by_ledger.agrees(of_candidate(pricer, candidate, gain_us, False)):
        doubts = (*doubts, Doubt.PRICES_DIFFER)
    sure = confidence(candidate.id, candidate.basis, doubts)
    return Finding(
        id=candidate.id,
        summary=candidate.summary,
        ranks=candidate.ranks,
        lost_us=min(candidate.lost_us, measures.step_us),
        recoverable_us=interval,
        confidence=sure.value,
        evidence=candidate.evidence,
        fixes=_fixes(candidate, measures, pricer),
        unprofiled_us=of_unprofiled(pricer, candidate, interval, is_own),
        by_ledger_us=None if by_ledger is None else by_ledger.as_range(),
        waited_us=waited_for_ranks_us(measures.job, candidate.ranks) if candidate.ranks else None,
        basis=candidate.basis.value,
        doubts=tuple(doubt.value for doubt in doubts),
        grounds=sure.grounds,
    )


def _fixes(candidate: Candidate, measures: Measures, pricer: Pricer) -> tuple[Fix, ...]:
    of_torch = not of_other_framework(measures.job)
    fixes = tuple(fix for fix in candidate.fixes if is_new(fix) and (of_torch or fix.setting in OF_ANY_FRAMEWORK))
    return tuple(checked(fix, measures) for fix in planned(fixes, pricer))


def _what_if(
    findings: Sequence[Finding],
    fixed: Sequence[tuple[Candidate, Finding]],
    worth: Sequence[Candidate],
    measures: Measures,
    pricer: Pricer,
) -> tuple[WhatIf, ...]:
    step = measures.step_us
    rows = [
        WhatIf(
            change=f"{f.id}: {f.fixes[0].setting} -> {f.fixes[0].suggested}" if f.fixes else f.id,
            predicted_step_us=step - gain.value,
            low_us=step - gain.high,
            high_us=step - gain.low,
        )
        for f in sorted(findings, key=lambda f: -f.recoverable_us.value)
        for gain in (f.alone_us or f.recoverable_us,)
    ]
    others: list[tuple[str, tuple[Change, ...], float]] = [
        (words, (change,), candidate.band) for candidate in worth for words, change in candidate.also
    ]
    if len(fixed) > 1:
        every = tuple(change for c, _ in fixed for change in c.changes)
        others.append(("all of: " + ", ".join(f.id for _, f in fixed), every, max(c.band for c, _ in fixed)))
    for words, changes, band in others:
        predicted = pricer.step_us(changes)
        doubt_us = max(band, doubt_of(changes, measures)) * abs(step - predicted)
        rows.append(WhatIf(words, predicted, *of_step(pricer, changes, predicted, doubt_us)))
    return tuple(rows)


def in_order(findings: Sequence[Finding], measures: Measures, pricer: Pricer) -> tuple[Finding, ...]:
    """The leading finding, then by the share of a step that it saves, without the profiler where that is known (ties:
    by confidence, then identifier). Where the traced step has another order, a finding that leads there and names ranks
    leads here too, unless it surely saves less: who first, then what.
    """

    def saved(finding: Finding) -> float:
        gain, step_us = told_gain(finding, measures.step_us, pricer.bare_us)
        return gain.value / max(step_us, 1e-9)

    ranked = sorted(findings, key=lambda f: (-saved(f), -f.confidence, f.id))
    serious = [f for f in ranked if severity_of(f, measures.step_us, pricer.bare_us) != "info"]
    lead = _lead(serious, measures, saved) if serious else None
    if lead is not None and not lead.ranks:
        traced = max(serious, key=lambda f: f.recoverable_us.value)
        (most, _), (least, _) = (told_gain(f, measures.step_us, pricer.bare_us) for f in (traced, lead))
        lead = traced if traced.ranks and most.high >= least.low else lead
    return tuple(sorted(ranked, key=lambda f: f is not lead))


def _lead(serious: list[Finding], measures: Measures, saved: Callable[[Finding], float]) -> Finding:
    """The largest finding; one whose price is a bound yields to the next unless it is clearly larger.

    A single window without step marks may hold one-off work, which inflates the host's causes; these yield to any
    other.
    """
    if measures.job.ranks[0].step_source == "inferred" and measures.steps <= 1:
        serious = [f for f in serious if _bound(f) != "host"] or serious
    firm = [f for f in serious if not _is_bound(f)]
    if not firm or saved(serious[0]) > CLEARLY_LARGER * saved(firm[0]):
        return serious[0]
    return firm[0]


def _bound(finding: Finding) -> str:
    rule = catalogue().get(finding.id)
    return rule.bound if rule else ""


def _is_bound(finding: Finding) -> bool:
    """True where the price is an upper bound: that of lateness of changing ranks without a known cause is one, too."""
    rule = catalogue().get(finding.id)
    return bool(rule and (rule.upper_bound or (rule.detect_rest and not finding.ranks)))


def left_out(rule: Rule, measures: Measures) -> list[Abstention]:
    """Reasons why a rule without findings has not judged the whole job; [] where it has."""
    reason = unmatched_words(measures) if rule.reads_traffic else ""
    if rule.compares_ranks:
        reason = reason or _missing_words(measures)
    return [Abstention(rule.id, reason)] if reason else []


def unmatched_us(measures: Measures) -> float:
    """Exposed communication whose other members were not traced, us per step, where it is considerable; else 0."""
    limits = execution_of(measures.job).limits
    exposed_us = sum(t.exposed_us for t in measures.comm.traffic if t.role == "unmatched")
    return exposed_us if exposed_us > limits.min_exposed_share * measures.step_us else 0.0


def unmatched_words(measures: Measures) -> str:
    """Reason why traffic without a traced partner is not judged; "" without any."""
    lost_us = unmatched_us(measures)
    if not lost_us:
        return ""
    return (
        f"in {format_us(lost_us)} of communication per step the partner was not traced: waiting and transfer cannot be "
        "separated"
    )


def _missing_words(measures: Measures) -> str:
    job = measures.job
    if not job.missing_ranks:
        return ""
    few = len(job.missing_ranks) <= FEW_NAMED
    who = format_ranks(job.missing_ranks) if few else f"{len(job.missing_ranks)} ranks"
    return f"compared {len(job.ranks)} of {job.world_size} ranks: without {who}"
