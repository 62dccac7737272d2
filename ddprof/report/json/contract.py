"""Report <-> the JSON document of the report contract (schema "ddprof.report/1").

The only place that knows the JSON names. Missing and NaN become null; times are rounded to 0.001 us, shares to 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.findings import Evidence, Finding, Fix, Recoverable, Remark
from ddprof.report import phrases
from ddprof.report.json.schema import (
    FindingDocument,
    LedgerRow,
    RemarkDocument,
    ReportDocument,
)
from ddprof.report.model import (
    FAILURE_SCHEMA,
    SCHEMA,
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
    WhatIf,
    step_causes,
)
from ddprof.untrusted.regular_files import open_regular, read_bounded
from ddprof.untrusted.secrets import masked_data

REPORTS_SCHEMA = "ddprof.reports/1"
_DIGITS, _US_DIGITS = 6, 3
T = TypeVar("T")


def to_contract(report: Report) -> dict[str, Any]:
    """The JSON-ready document of one run, without secrets: plain dicts, lists, strings, finite numbers and None."""
    run, steps, ledger = report.run, report.steps, report.ledger
    rounded = _plain(
        {
            "schema": SCHEMA,
            "run": {"name": run.name, "paths": run.paths, **asdict(run)},
            "health": [{"rank": h.rank, **asdict(h)} for h in report.health],
            "clock": asdict(report.clock),
            "steps": {
                "count": steps.count,
                "source": steps.source,
                "wall_us": steps.wall_us,
                "per_step_us": steps.per_step_us,
                "untraced_us": steps.unprofiled_us,
                "timed_us": steps.timed_us,
                "timed": steps.timed,
                "waited_share": steps.waited_share,
                "left_out": steps.left_out,
            },
            "ledger": {
                "per_rank": {rank: _ledger_row(row) for rank, row in ledger.per_rank.items()},
                "job": _ledger_row(ledger.job),
                "per_step": _plain(step_causes(report), _US_DIGITS),
            },
            "efficiency": report.efficiency,
            "findings": [_finding_to_json(report, finding) for finding in report.ranked_findings()],
            "what_if": report.what_if,
            "replay": report.replay,
            "verdict": {**asdict(report.verdict), "check_first": phrases.check_first_words(report) or None},
            "abstentions": [{"id": a.id, "reason": a.reason} for a in report.abstentions],
            "checked": report.checked,
        }
    )
    remarks = [
        {"id": r.id, "severity": r.severity, "summary": r.summary, "ranks": list(r.ranks), **_shown(r)}
        for r in report.training.remarks
    ]
    document = {
        **rounded,
        "training": {**asdict(report.training), "remarks": remarks},
        "applied": _plain(report.applied),
        "failure": None if report.failure is None else dict(report.failure.document),
    }
    return masked_data(document)


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


def _report(document: ReportDocument) -> Report:
    steps, ledger, failure = document.steps, document.ledger, None
    if (saved := document.failure) is not None:  # without its details, which the document alone has
        stated = {"kind": saved.kind, "sentence": saved.sentence, "ranks": [*saved.ranks], "waiting": [*saved.waiting]}
        empty: dict[str, Any] = {"line": None, "stuck": [], "per_rank": [], "notes": []}
        failure = Failure({"schema": FAILURE_SCHEMA, **stated, **empty})
    return Report(
        run=_same(RunInfo, document.run),
        health=tuple(_same(HealthItem, item) for item in document.health),
        clock=ClockInfo(
            {host: _same(HostClockInfo, c) for host, c in document.clock.hosts.items()}, document.clock.method
        ),
        steps=_same(Steps, steps, left_out=tuple(_same(LeftOutStep, step) for step in steps.left_out)),
        ledger=Ledger(
            per_rank={rank: _ledger_from_json(row) for rank, row in ledger.per_rank.items()},
            job=_ledger_from_json(ledger.job),
            per_step={cause: tuple(map(_number, values)) for cause, values in ledger.per_step.items()},
        ),
        efficiency=document.efficiency,
        findings=tuple(_finding(item) for item in document.findings),
        what_if=tuple(_same(WhatIf, w) for w in document.what_if),
        replay=_same(Replay, document.replay),
        verdict=document.verdict,
        abstentions=document.abstentions,
        checked=document.checked,
        training=_same(
            Training, document.training, remarks=tuple(_shown_again(Remark, r) for r in document.training.remarks)
        ),
        applied=document.applied,
        failure=failure,
        calibration={f.id: Calibration(c.inside, c.predictions) for f in document.findings if (c := f.calibration)},
    )


def _finding_to_json(report: Report, finding: Finding) -> dict[str, Any]:
    calibration = report.calibration.get(finding.id)
    return {
        "id": finding.id,
        "summary": finding.summary,
        "severity": report.severity_of(finding),
        "ranks": finding.ranks,
        "lost_us": finding.lost_us,
        "recoverable_us": finding.recoverable_us,
        "recoverable_untraced_us": finding.unprofiled_us,
        "recoverable_by_ledger_us": finding.by_ledger_us,
        "recoverable_alone_us": finding.alone_us,
        "waited_us": finding.waited_us,
        "predicted_step_us": report.predicted_step_us(finding),
        "confidence": finding.confidence,
        "basis": finding.basis,
        "doubts": finding.doubts,
        "grounds": finding.grounds,
        "calibration": calibration and {"inside": calibration.inside, "predictions": calibration.total},
        **_shown(finding),
    }


def _shown(of: Finding | Remark) -> dict[str, Any]:
    """Evidence and fixes; `applies` is {} where `ddprof run --apply` cannot make a fix."""
    fixes = [{**asdict(fix), "applies": dict(fix.applies), "at": list(fix.at)} for fix in of.fixes]
    for fix in fixes:
        del fix["alters"]
    return {"evidence": _plain(of.evidence), "fixes": fixes}


def _finding(item: FindingDocument) -> Finding:
    names = ("recoverable_us", "unprofiled_us", "by_ledger_us", "alone_us")
    gains = {name: (gain := getattr(item, name)) and _same(Recoverable, gain) for name in names}
    return _shown_again(Finding, item, summary=item.id if item.summary is None else item.summary, **gains)


def _shown_again(kind: type[T], item: FindingDocument | RemarkDocument, **changed: Any) -> T:
    """A finding or remark with its evidence and fixes."""
    evidence = tuple(_same(Evidence, evidence) for evidence in item.evidence)
    fixes = tuple(_same(Fix, fix, applies=tuple(fix.applies.items())) for fix in item.fixes)
    return _same(kind, item, evidence=evidence, fixes=fixes, **changed)


def _same(kind: type[T], item: msgspec.Struct, **changed: Any) -> T:
    """The part of a report with the fields of a document's, but for those that are `changed`; NaN where a number of the
    report is never missing.
    """
    types = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    given = {name: getattr(item, name) for name in item.__struct_fields__ if name in types} | changed
    for name, value in given.items():
        if types[name] == "float":
            given[name] = _number(value)
        elif types[name] == "tuple[float, ...]":
            given[name] = tuple(map(_number, value))
    return kind(**given)


def _ledger_row(row: Mapping[str, float]) -> dict[str, float | None]:
    """Every cause of the contract, 0 where the row has none of it."""
    return {name: _finite(row.get(name, 0.0), _US_DIGITS) for name in ("wall_us", *CAUSES)}


def _ledger_from_json(row: LedgerRow) -> dict[str, float]:
    return {name: _number(value) for name, value in row.items()}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _finite(value: float, digits: int) -> float | None:
    return round(float(value), digits) if math.isfinite(value) else None


def _plain(value: Any, digits: int = _DIGITS) -> Any:
    """Dataclasses, mappings and sequences as JSON values: finite floats or None, rounded, microseconds and seconds by
    the names that hold them; keys as text, numpy scalars as numbers.
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        in_time = {key: _US_DIGITS if str(key).endswith(("_us", "_s")) else digits for key in value}
        return {str(key): _plain(item, in_time[key]) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, digits) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    is_time = digits == _US_DIGITS and isinstance(value, int)
    return _finite(value, digits) if isinstance(value, float) or is_time else value


# Saved reports: the JSON documents that `ddprof analyze --format json` writes, told apart from traces by content.

MAX_BYTES = 64 << 20  # 4,096 ranks are some 5 MB
_HEAD_BYTES = 400
_MARK = b'"ddprof.report'


def is_saved_report(path: str) -> bool:
    """True where the first bytes of the file state the schema of a report."""
    if not path.endswith(".json"):
        return False
    try:
        with open_regular(path) as stream:
            return _MARK in stream.read(_HEAD_BYTES)
    except (OSError, ValueError):  # whoever reads it as a trace will say why
        return False


def read_saved(file: Path) -> list[Report]:
    """The reports in a saved document. Raises NoUsableInput, naming the file, where it cannot be read."""
    try:
        return from_document(msgspec.json.decode(read_bounded(file, MAX_BYTES), type=dict[str, Any]))
    except OSError as error:
        raise NoUsableInput(f"{file}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoUsableInput(f"{file}: damaged ddprof report: {error}") from error
    except NoUsableInput as error:
        raise NoUsableInput(f"{file}: {error}") from error
