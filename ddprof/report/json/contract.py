"""Report <-> the JSON document of the report contract (schema "ddprof.report/1").

The only place that knows the JSON names. Missing and NaN become null; times are rounded to 0.001 us, shares to 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import msgspec

from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.findings import Abstention, Evidence, Finding, Fix, Recoverable, Remark
from ddprof.report import phrases
from ddprof.report.json.schema import (
    FailureDocument,
    FindingDocument,
    FixDocument,
    GainDocument,
    LedgerRow,
    RemarkDocument,
    ReportDocument,
    TrainingDocument,
)
from ddprof.report.model import (
    FAILURE_SCHEMA,
    SCHEMA,
    AppliedSetting,
    Calibration,
    ClockInfo,
    Failure,
    HealthItem,
    HostClockInfo,
    Ledger,
    LeftOutStep,
    Replay,
    Report,
    RunInfo,
    Steps,
    Training,
    Verdict,
    WhatIf,
)
from ddprof.report.step_causes import step_causes
from ddprof.untrusted.secrets import masked_data

REPORTS_SCHEMA = "ddprof.reports/1"
T = TypeVar("T")


def to_contract(report: Report) -> dict[str, Any]:
    """The JSON-ready document of one run, without secrets: plain dicts, lists, strings, finite numbers and None."""
    return masked_data(_contract(report))


def _contract(report: Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "run": _run(report.run),
        "health": [
            {"rank": h.rank, "issue": h.issue, "effect": h.effect, "severity": h.severity} for h in report.health
        ],
        "clock": {
            "hosts": {host: _clock_to_json(clock) for host, clock in report.clock.hosts.items()},
            "method": report.clock.method,
        },
        "steps": {
            "count": report.steps.count,
            "source": report.steps.source,
            "wall_us": _us(report.steps.wall_us),
            "per_step_us": [_us(v) for v in report.steps.per_step_us],
            "untraced_us": _finite(report.steps.unprofiled_us, 3),
            "timed_us": [_us(v) for v in report.steps.timed_us],
            "timed": report.steps.timed,
            "waited_share": _finite(report.steps.waited_share, 6),
            "left_out": [{**asdict(step), "wall_us": _us(step.wall_us)} for step in report.steps.left_out],
        },
        "ledger": {
            "per_rank": {str(rank): _ledger_row(row) for rank, row in report.ledger.per_rank.items()},
            "job": _ledger_row(report.ledger.job),
            "per_step": {cause: [_us(v) for v in values] for cause, values in step_causes(report).items()},
        },
        "efficiency": _plain(report.efficiency),
        "findings": [_finding_to_json(report, f) for f in report.ranked_findings()],
        "what_if": [
            {
                "change": w.change,
                "predicted_step_us": _us(w.predicted_step_us),
                "low_us": _us(w.low_us),
                "high_us": _us(w.high_us),
            }
            for w in report.what_if
        ],
        "replay": {"error": _finite(report.replay.error, 6)},
        "verdict": {
            "bound": report.verdict.bound,
            "headline": report.verdict.headline,
            "check_first": phrases.check_first_words(report) or None,
        },
        "abstentions": [{"id": a.id, "reason": a.reason} for a in report.abstentions],
        "checked": list(report.checked),
        "training": _training_to_json(report.training),
        "applied": [{**asdict(setting), "ranks": list(setting.ranks)} for setting in report.applied],
        "failure": None if report.failure is None else dict(report.failure.document),
    }


def to_document(reports: Sequence[Report]) -> dict[str, Any]:
    """One run is the contract document itself; several become {"schema": "ddprof.reports/1", "reports": [...]}."""
    if len(reports) == 1:
        return to_contract(reports[0])
    return {"schema": REPORTS_SCHEMA, "reports": [to_contract(r) for r in reports]}


def from_document(document: Mapping[str, Any]) -> list[Report]:
    """The reports in a document made by `to_document`. Raises NoUsableInput where it is not one."""
    if document.get("schema") != REPORTS_SCHEMA:
        return [from_contract(document)]
    reports = document.get("reports")
    if not isinstance(reports, list) or not all(isinstance(item, dict) for item in reports):
        raise NoUsableInput("damaged ddprof report: no list of reports")
    return [from_contract(item) for item in reports]


def from_contract(document: Mapping[str, Any]) -> Report:
    """The report in a contract document. Raises NoUsableInput, in one line, where the document is not one."""
    if document.get("schema") != SCHEMA:
        raise NoUsableInput(f"not a ddprof report: schema is {str(document.get('schema'))[:40]!r}, wanted {SCHEMA!r}")
    try:
        return _report(msgspec.convert(document, ReportDocument, str_keys=True))
    except (msgspec.ValidationError, ValueError) as error:
        raise NoUsableInput(f"damaged ddprof report: {error}") from error


def _failure(saved: FailureDocument) -> Failure:
    stated = {
        "kind": saved.kind,
        "sentence": saved.sentence,
        "ranks": list(saved.ranks),
        "waiting": list(saved.waiting),
    }
    return Failure({"schema": FAILURE_SCHEMA, **stated, "line": None, "stuck": [], "per_rank": [], "notes": []})


def _report(document: ReportDocument) -> Report:
    run, steps, clock, ledger = document.run, document.steps, document.clock, document.ledger
    return Report(
        run=_same(RunInfo, run),
        health=tuple(_same(HealthItem, item) for item in document.health),
        clock=ClockInfo(
            {
                host: HostClockInfo(_number(c.offset_us), _number(c.drift_ppm), c.error_us)
                for host, c in clock.hosts.items()
            },
            clock.method,
        ),
        steps=Steps(
            count=steps.count,
            source=steps.source,
            wall_us=_number(steps.wall_us),
            per_step_us=tuple(map(_number, steps.per_step_us)),
            unprofiled_us=steps.untraced_us,
            left_out=tuple(LeftOutStep(step.number, _number(step.wall_us), step.why) for step in steps.left_out),
            timed_us=tuple(map(_number, steps.timed_us)),
            timed=steps.timed,
            waited_share=steps.waited_share,
        ),
        ledger=Ledger(
            per_rank={rank: _ledger_from_json(row) for rank, row in ledger.per_rank.items()},
            job=_ledger_from_json(ledger.job),
            per_step={cause: tuple(map(_number, values)) for cause, values in ledger.per_step.items()},
        ),
        efficiency=document.efficiency,
        findings=tuple(map(_finding, document.findings)),
        what_if=tuple(
            WhatIf(w.change, _number(w.predicted_step_us), _number(w.low_us), _number(w.high_us))
            for w in document.what_if
        ),
        replay=_same(Replay, document.replay),
        verdict=_same(Verdict, document.verdict),
        abstentions=tuple(_same(Abstention, item) for item in document.abstentions),
        checked=document.checked,
        training=_training(document.training),
        applied=tuple(_same(AppliedSetting, setting) for setting in document.applied),
        failure=None if document.failure is None else _failure(document.failure),
        calibration={
            f.id: Calibration(f.calibration.inside, f.calibration.predictions)
            for f in document.findings
            if f.calibration
        },
    )


def _finding_to_json(report: Report, finding: Finding) -> dict[str, Any]:
    gain, calibration = finding.recoverable_us, report.calibration.get(finding.id)
    return {
        "id": finding.id,
        "summary": finding.summary,
        "severity": report.severity_of(finding),
        "ranks": list(finding.ranks),
        "lost_us": _us(finding.lost_us),
        "recoverable_us": _gain_to_json(gain),
        "recoverable_untraced_us": None if finding.unprofiled_us is None else _gain_to_json(finding.unprofiled_us),
        "recoverable_by_ledger_us": None if finding.by_ledger_us is None else _gain_to_json(finding.by_ledger_us),
        "recoverable_alone_us": None if finding.alone_us is None else _gain_to_json(finding.alone_us),
        "waited_us": _us(finding.waited_us),
        "predicted_step_us": _us(report.predicted_step_us(finding)),
        "confidence": _finite(finding.confidence, 6),
        "basis": finding.basis,
        "doubts": list(finding.doubts),
        "grounds": finding.grounds,
        "calibration": None
        if calibration is None
        else {"inside": calibration.inside, "predictions": calibration.total},
        **_shown(finding),
    }


def _shown(of: Finding | Remark) -> dict[str, Any]:
    """Evidence and fixes; `applies` is {} where `ddprof run --apply` cannot make a fix."""
    evidence = [{**asdict(e), "start_us": _us(e.start_us), "end_us": _us(e.end_us)} for e in of.evidence]
    fixes = [{**asdict(fix), "applies": dict(fix.applies), "at": list(fix.at)} for fix in of.fixes]
    for fix in fixes:
        del fix["alters"]
    return {"evidence": evidence, "fixes": fixes}


def _training_to_json(training: Training) -> dict[str, Any]:
    remarks = [
        {"id": r.id, "severity": r.severity, "summary": r.summary, "ranks": list(r.ranks), **_shown(r)}
        for r in training.remarks
    ]
    return {**asdict(training), "remarks": remarks}


def _gain_to_json(gain: Recoverable) -> dict[str, Any]:
    return {"value": _us(gain.value), "low": _us(gain.low), "high": _us(gain.high)}


def _gain(gain: GainDocument) -> Recoverable:
    return Recoverable(_number(gain.value), _number(gain.low), _number(gain.high))


def _finding(item: FindingDocument) -> Finding:
    unprofiled = item.recoverable_untraced_us
    return Finding(
        id=item.id,
        summary=item.id if item.summary is None else item.summary,
        ranks=item.ranks,
        lost_us=_number(item.lost_us),
        recoverable_us=_gain(item.recoverable_us),
        unprofiled_us=None if unprofiled is None else _gain(unprofiled),
        by_ledger_us=None if item.recoverable_by_ledger_us is None else _gain(item.recoverable_by_ledger_us),
        alone_us=None if item.recoverable_alone_us is None else _gain(item.recoverable_alone_us),
        waited_us=item.waited_us,
        confidence=_number(item.confidence),
        evidence=tuple(_same(Evidence, evidence) for evidence in item.evidence),
        fixes=tuple(map(_fix, item.fixes)),
        basis=item.basis,
        doubts=item.doubts,
        grounds=item.grounds,
    )


def _fix(item: FixDocument) -> Fix:
    return _same(Fix, item, applies=tuple(item.applies.items()))


def _training(item: TrainingDocument) -> Training:
    return _same(Training, item, remarks=tuple(map(_remark, item.remarks)))


def _remark(item: RemarkDocument) -> Remark:
    evidence = tuple(_same(Evidence, evidence) for evidence in item.evidence)
    return _same(Remark, item, evidence=evidence, fixes=tuple(map(_fix, item.fixes)))


def _same(kind: type[T], item: msgspec.Struct, **changed: Any) -> T:
    """The part of a report with the fields of a document's, but for those that are `changed`."""
    return kind(**{name: getattr(item, name) for name in item.__struct_fields__} | changed)


def _run(run: RunInfo) -> dict[str, Any]:
    return {
        "name": run.name,
        "paths": list(run.paths),
        "world_size": run.world_size,
        "ranks": list(run.ranks),
        "missing_ranks": list(run.missing_ranks),
        "hosts": {str(rank): host for rank, host in run.hosts.items()},
        "backend": run.backend,
        "device": run.device,
        "device_name": run.device_name,
        "framework": list(run.framework),
        "source": run.source,
        "started_unix_s": _finite(run.started_unix_s, 3),
        "commit": run.commit,
    }


def _clock_to_json(clock: HostClockInfo) -> dict[str, float | None]:
    return {
        "offset_us": _us(clock.offset_us),
        "drift_ppm": _finite(clock.drift_ppm, 6),
        "error_us": _us(clock.error_us),
    }


def _ledger_row(row: Mapping[str, float]) -> dict[str, float | None]:
    """Every cause of the contract, 0 where the row has none of it."""
    return {"wall_us": _us(row.get("wall_us", 0.0)), **{cause: _us(row.get(cause, 0.0)) for cause in CAUSES}}


def _ledger_from_json(row: LedgerRow) -> dict[str, float]:
    return {name: _number(value) for name, value in row.items()}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _us(value: float | None) -> float | None:
    return _finite(value, 3)


def _finite(value: float | None, digits: int) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), digits)


def _plain(value: Any) -> Any:
    """Nested mappings and sequences as JSON values: finite floats or None, keys as text, numpy scalars as numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return _finite(value, 6) if isinstance(value, float) else value
