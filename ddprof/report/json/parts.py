"""Parts of the JSON document that findings and remarks share, and its `training` section."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from ddprof.findings import Evidence, Fix, Remark
from ddprof.report.json.schema import AppliedDocument, EvidenceDocument, FixDocument, RemarkDocument, TrainingDocument
from ddprof.report.model import AppliedSetting, Training


def evidence_document(evidence: Evidence) -> dict[str, Any]:
    """Evidence as JSON values: times to 0.001 us, unknown values null."""
    start_us, end_us = (_rounded(value) for value in (evidence.start_us, evidence.end_us))
    return {
        "text": evidence.text,
        "rank": evidence.rank,
        "start_us": start_us,
        "end_us": end_us,
        "event": evidence.event,
    }


def evidence_from(item: EvidenceDocument) -> Evidence:
    """Evidence from JSON values."""
    return Evidence(item.text, item.rank, item.start_us, item.end_us, item.event)


def fix_document(fix: Fix) -> dict[str, Any]:
    """A fix as JSON values; `applies` is {} where `ddprof run --apply` cannot make it."""
    shown = {name: value for name, value in asdict(fix).items() if name != "alters"}
    return {**shown, "applies": dict(fix.applies), "at": list(fix.at)}


def fix_from(item: FixDocument) -> Fix:
    """A fix from JSON values."""
    applies = tuple(item.applies.items())
    words = (item.setting, item.suggested, item.why, item.source, item.current, item.patch)
    return Fix(*words, applies, item.at, condition=item.condition)


def training_document(training: Training) -> dict[str, Any]:
    """The `training` section with its remarks."""
    return {
        "samples_per_rank": training.samples_per_rank,
        "samples_per_step": training.samples_per_step,
        "learning_rate": training.learning_rate,
        "optimizer": training.optimizer,
        "remarks": [
            {
                "id": remark.id,
                "severity": remark.severity,
                "summary": remark.summary,
                "ranks": list(remark.ranks),
                "evidence": [evidence_document(evidence) for evidence in remark.evidence],
                "fixes": [fix_document(fix) for fix in remark.fixes],
            }
            for remark in training.remarks
        ],
    }


def training_from(item: TrainingDocument) -> Training:
    """The `training` section of a saved report."""
    return Training(
        item.samples_per_rank,
        item.samples_per_step,
        item.learning_rate,
        item.optimizer,
        tuple(map(_remark, item.remarks)),
    )


def applied_document(setting: AppliedSetting) -> dict[str, Any]:
    """One entry of `applied`."""
    return {**asdict(setting), "ranks": list(setting.ranks)}


def applied_from(item: AppliedDocument) -> AppliedSetting:
    """One entry of `applied` of a saved report."""
    return AppliedSetting(
        item.setting, item.value, item.at, item.object, item.before, item.applied, item.why, item.ranks
    )


def _remark(item: RemarkDocument) -> Remark:
    fixes, evidence = tuple(map(fix_from, item.fixes)), tuple(map(evidence_from, item.evidence))
    return Remark(item.id, item.summary, item.ranks, evidence, fixes, item.severity)


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 3)
