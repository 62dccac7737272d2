"""Candidates for a trial: the applicable fixes of a report, and other values of their settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.settings.knobs import Setting
from ddprof.analyzers.settings.predict import predict
from ddprof.analyzers.settings.present import present
from ddprof.errors import DdprofError
from ddprof.findings import Finding
from ddprof.report.fixes import applicable
from ddprof.report.model import Report
from ddprof.settings.catalogue import Value
from ddprof.settings.wanted import WantedFix, changes_numbers
from ddprof.trials.document import Predicted, TrialCandidate

# Settings of which a finding gives a direction rather than a value: half and twice of what it suggests.
_LADDERS = ("num_workers", "bucket_cap_mb", "reduce_bucket_size", "allgather_bucket_size")
_PREDICTED = ("num_workers", "bucket_cap_mb", "reshard_after_forward")  # each value has a prediction of its own
_BESIDE = ("reshard_after_forward",)  # that of a finding may be of another of its fixes


@dataclass(frozen=True)
class FoundCandidates:
    """Candidates by predicted gain, and untried fixes with why; `is_doubtful`: also findings that were withdrawn."""

    candidates: tuple[TrialCandidate, ...]
    left_out: tuple[tuple[str, str], ...]
    is_doubtful: bool


def candidates(run: LoadedRun, only: Collection[str], allow_numerics: bool) -> FoundCandidates:
    """Candidates of one analyzed run. `only`: names of settings (() for all)."""
    proposed: list[TrialCandidate] = []
    left_out: list[tuple[str, str]] = []
    for number, (fix, finding, _) in enumerate(applicable(run.report, is_proven=True)):
        if only and not set(fix.values) & set(only):
            left_out.append((fix.words, "not among --only"))
        elif changes_numbers(fix) and not allow_numerics:
            left_out.append((fix.words, "changes the precision of the training (--allow-numerics)"))
        else:
            proposed += [_candidate(variant, fix, finding, number, run) for variant in _variants(fix, run)]
    ranked = sorted(proposed, key=lambda c: -c.predicted.share)
    withdrawn = [abstention for abstention in run.report.abstentions if abstention.is_withdrawn]
    left_out += [(f"what {abstention.id} would ask for", abstention.reason) for abstention in withdrawn]
    return FoundCandidates(tuple(ranked), tuple(left_out), bool(withdrawn))


def _variants(fix: WantedFix, run: LoadedRun) -> Iterator[WantedFix]:
    """The fix itself, and with half and twice its value."""
    yield fix
    name = next((name for name in _LADDERS if name in fix.values), None)
    if name is None:
        return
    suggested, had = fix.values[name], _had(name, run)
    assert isinstance(suggested, (int, float))
    for factor in (2.0, 0.5):
        value: Value = suggested * factor if isinstance(suggested, float) else int(suggested * factor)
        if not value or value in (suggested, had):
            continue
        try:
            yield WantedFix({**fix.values, name: value}, fix.at, fix.finding)
        except ValueError:
            continue  # outside of what the setting takes


def _had(name: str, run: LoadedRun) -> Value | None:
    settings = run.measures.settings
    if name == "num_workers":
        return settings.loader.num_workers
    return settings.ddp.bucket_cap_mb if name == "bucket_cap_mb" else None


def _candidate(fix: WantedFix, suggested: WantedFix, finding: Finding, number: int, run: LoadedRun) -> TrialCandidate:
    name = next((name for name in _PREDICTED if name in fix.values), None)
    of_finding = _of_finding(run.report, finding)
    is_own = fix == suggested and name not in _BESIDE
    replayed = None if name is None or is_own else _replayed(run, name, fix.values[name])
    return TrialCandidate(
        name=fix.words,
        group=f"{number}",
        values=dict(fix.values),
        at=fix.at,
        finding=finding.id,
        predicted=replayed or of_finding,
        is_variant=fix != suggested,
        changes_numbers=changes_numbers(fix),
    )


def _of_finding(report: Report, finding: Finding) -> Predicted:
    """The finding's price, in a step without the profiler (as in the trials) where it has one."""
    step_us, price = report.steps.wall_us, finding.recoverable_us
    if finding.unprofiled_us is not None and report.steps.unprofiled_us is not None:
        step_us, price = report.steps.unprofiled_us, finding.unprofiled_us
    return Predicted(price.value / step_us, price.low / step_us, price.high / step_us, "finding")


def _replayed(run: LoadedRun, name: str, value: Value) -> Predicted | None:
    try:
        prediction = predict(run.pricer, [Setting(name, str(value))], present(run.measures, {}))
    except DdprofError:
        return None  # this run cannot tell: the finding's price stands
    before_us = prediction.before_us
    return Predicted(
        prediction.gain_us / before_us,
        (before_us - prediction.high_us) / before_us,
        (before_us - prediction.low_us) / before_us,
        "replay",
    )
