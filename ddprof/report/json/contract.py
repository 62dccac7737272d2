"""Report <-> the JSON document of the report contract (schema "ddprof.report/1").

The only place that knows the JSON names. Missing and NaN become null; times are rounded to 0.001 us, shares to 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import msgspec

from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.findings import Finding, Fix, Remark
from ddprof.report import phrases
from ddprof.report.model import FAILURE_SCHEMA, SCHEMA, Calibration, Failure, Ledger, Report, Steps, step_causes
from ddprof.untrusted.regular_files import open_regular, read_bounded
from ddprof.untrusted.secrets import masked_data

REPORTS_SCHEMA = "ddprof.reports/1"
_DIGITS, _US_DIGITS = 6, 3
MAX_DEPTH = 16  # of values in a document: twice the deepest of ours, what which ranks called where a job hangs
ROUNDED = 1.001  # causes sum to the wall to 0.1 %, says the contract
_MAX_MAGNITUDE = 1e300  # sums of such numbers stay finite
# Gains of a finding beside `recoverable_us`: the document's word for each, and the report's.
_GAINS = {"untraced": "unprofiled", "by_ledger": "by_ledger", "alone": "alone"}


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
        _check_values(document)
        parts = {name: value for name, value in document.items() if name != "tables"}
        report = msgspec.convert(_in_report(Report, parts), Report, str_keys=True)
        _check_sums(report.ledger)
        fared = {row["id"]: row["calibration"] for row in document.get("findings", ()) if row.get("calibration")}
        of_ids = dict[str, Calibration]
        return replace(report, calibration=msgspec.convert(_in_report(of_ids, fared), of_ids))
    except (msgspec.ValidationError, ValueError) as error:
        raise NoUsableInput(f"damaged ddprof report: {error}") from error


# Keys of the document that have another name in the report.
_NAMES: dict[Any, dict[str, str]] = {
    Steps: {"untraced_us": "unprofiled_us"},
    Finding: {f"recoverable_{key}_us": f"{name}_us" for key, name in _GAINS.items()},
    Calibration: {"predictions": "total"},
}


_hints = cache(get_type_hints)


def _in_report(kind: Any, value: Any) -> Any:
    """A value of a document as the report's type has it, for msgspec to check: with the report's names and shapes, and
    NaN where a number of the report is never missing.
    """
    if value is None:
        return math.nan if kind is float else None
    if isinstance(kind, UnionType):
        kind = get_args(kind)[0]
    is_row = is_dataclass(kind) and isinstance(value, dict)
    if is_row:
        names, hints = _NAMES.get(kind, {}), _hints(kind)
        row = {names.get(key, key): item for key, item in _SHAPES.get(kind, dict)(value).items()}
        return {name: _in_report(hints[name], item) for name, item in row.items() if name in hints}
    inside = get_args(kind)
    if isinstance(value, dict) and inside:
        return {key: _in_report(inside[-1], item) for key, item in value.items()}
    return [_in_report(inside[0], item) for item in value] if isinstance(value, list) and inside else value


class _SavedFailure(msgspec.Struct):
    """`failure`, without the details of its ranks, which the document alone has."""

    kind: str
    sentence: str
    ranks: list[int] = []
    waiting: list[int] = []


def _failure(row: dict[str, Any]) -> dict[str, Any]:
    details: dict[str, Any] = {"line": None, "stuck": [], "per_rank": [], "notes": []}
    saved = msgspec.structs.asdict(msgspec.convert(row, _SavedFailure))
    return {"document": {"schema": FAILURE_SCHEMA, **saved, **details}}


def _fix(row: dict[str, Any]) -> dict[str, Any]:
    applies = row.get("applies")
    return {**row, "applies": list(applies.items())} if isinstance(applies, dict) else row


_SHAPES: dict[Any, Callable[[dict[str, Any]], dict[str, Any]]] = {
    Finding: lambda row: {**row, "summary": row.get("id")} if row.get("summary") is None else row,
    Fix: _fix,
    Failure: _failure,
}


def _check_sums(ledger: Ledger) -> None:
    """Raise ValueError where the causes of a row do not sum to its wall time."""
    for row in (ledger.job, *ledger.per_rank.values()):
        if "wall_us" not in row:
            raise ValueError("a row of the ledger without wall_us")
        known = {name: us for name, us in row.items() if math.isfinite(us)}
        wall_us = known.pop("wall_us", 0.0)
        if min(known.values(), default=0.0) < 0 or sum(known.values()) > ROUNDED * wall_us + 1:
            raise ValueError("a row of the ledger whose causes do not sum to wall_us")


def _check_values(value: Any, depth: int = MAX_DEPTH) -> None:
    """Raise ValueError where a number is beyond all measure, or values are nested deeper than any of ours."""
    if isinstance(value, dict | list | tuple):
        if not depth:
            raise ValueError(f"values nested more than {MAX_DEPTH} deep")
        for item in value.values() if isinstance(value, dict) else value:
            _check_values(item, depth - 1)
    elif isinstance(value, int | float) and not abs(value) <= _MAX_MAGNITUDE:
        raise ValueError("a number beyond all measure")


def _finding_to_json(report: Report, finding: Finding) -> dict[str, Any]:
    calibration = report.calibration.get(finding.id)
    return {
        "id": finding.id,
        "summary": finding.summary,
        "severity": report.severity_of(finding),
        "ranks": finding.ranks,
        "lost_us": finding.lost_us,
        "recoverable_us": finding.recoverable_us,
        **{f"recoverable_{key}_us": getattr(finding, f"{name}_us") for key, name in _GAINS.items()},
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


def _ledger_row(row: Mapping[str, float]) -> dict[str, float | None]:
    """Every cause of the contract, 0 where the row has none of it."""
    return {name: _finite(row.get(name, 0.0), _US_DIGITS) for name in ("wall_us", *CAUSES)}


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
