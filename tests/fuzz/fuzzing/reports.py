"""Conditions that every JSON report must meet."""

import json
import math
from collections.abc import Iterator
from typing import Any

MOST_RANKS = 2**20 + 1  # no job has more (docs/threat-model.md); a header that says so is damaged
MOST_CHARACTERS = 20_000_000
TOLERANCE = 2e-3  # of a ledger row: causes sum to the step to 0.1 %, rounding aside
BOUNDS = ("compute", "input", "communication", "straggler", "host", "pipeline", "memory", "none")


def parsed(text: str) -> dict[str, Any]:
    """The document. Raises ValueError where it is no JSON, or one with NaN."""
    value = json.loads(text, parse_constant=refused)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def refused(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def runs(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The reports of a document of one run or several."""
    return list(document.get("reports", [document]))


def defects(text: str, is_ours: bool = True) -> Iterator[str]:
    """Impossible values in a document, in words; for a saved and since damaged one only invalid JSON."""
    if len(text) > MOST_CHARACTERS:
        yield f"a report of {len(text):,} characters"
    try:
        document = parsed(text)
    except ValueError as error:
        yield f"no JSON: {error}"
        return
    for report in runs(document) if is_ours else ():
        yield from _of_run(report)
        yield from _of_ledger(report)
        for finding in report["findings"]:
            yield from _of_finding(finding, report)


def _of_run(report: dict[str, Any]) -> Iterator[str]:
    run, steps = report["run"], report["steps"]
    if run["world_size"] > MOST_RANKS or len(run["missing_ranks"]) > MOST_RANKS:
        yield f"a world of {run['world_size']} ranks is believed"
    if len(set(run["ranks"])) < len(run["ranks"]) or set(run["ranks"]) & set(run["missing_ranks"]):
        yield "a rank is listed twice, or as there and missing"
    if any(rank < 0 for rank in run["ranks"]):
        yield "a negative rank"
    if len(steps["per_step_us"]) != steps["count"]:
        yield f"{steps['count']} steps, but {len(steps['per_step_us'])} times"
    if any(value is None or value < 0 for value in (steps["wall_us"], *steps["per_step_us"])):
        yield "a step of negative or unknown length"
    if report["verdict"]["bound"] not in BOUNDS or not report["verdict"]["headline"]:
        yield f"no verdict: {report['verdict']}"
    if any("\n" in item["issue"] or not item["issue"] or not item["effect"] for item in report["health"]):
        yield "a health note that is not one line"


def _of_ledger(report: dict[str, Any]) -> Iterator[str]:
    for rank, row in [*report["ledger"]["per_rank"].items(), ("job", report["ledger"]["job"])]:
        parts = [value for cause, value in row.items() if cause != "wall_us"]
        if any(value is None for value in row.values()):
            yield f"ledger of {rank}: unknown parts"
        elif any(value < -1e-3 for value in parts) or abs(sum(parts) - row["wall_us"]) > TOLERANCE * row["wall_us"] + 1:
            yield f"ledger of {rank}: parts do not sum to the step"


def _of_finding(finding: dict[str, Any], report: dict[str, Any]) -> Iterator[str]:
    gain, step = finding["recoverable_us"], report["steps"]["wall_us"] or 0.0
    numbers = (gain["low"], gain["value"], gain["high"], finding["lost_us"])
    if any(value is None or not math.isfinite(value) for value in numbers):
        yield f"{finding['id']}: unknown gain"
    elif not gain["low"] - 1 <= gain["value"] <= gain["high"] + 1 or gain["value"] > step * 1.001 + 1:
        yield f"{finding['id']}: gain outside its range, or beyond the step"
    if not 0 <= (finding["confidence"] or 0) <= 1:
        yield f"{finding['id']}: confidence {finding['confidence']}"
    if not set(finding["ranks"]) <= set(report["run"]["ranks"]) | set(report["run"]["missing_ranks"]):
        yield f"{finding['id']}: accuses ranks that are not of the job"


def recording(document: dict[str, Any]) -> list[Any]:
    """Values that depend on the recording alone, not on its packing."""
    return [[r["steps"], r["ledger"]["per_rank"], [f["id"] for f in r["findings"]]] for r in runs(document)]


def notes(document: dict[str, Any]) -> set[str]:
    return {item["issue"] for report in runs(document) for item in report["health"]}


def missing(document: dict[str, Any]) -> set[int]:
    """Ranks that the document says have left no trace."""
    return {rank for report in runs(document) for rank in report["run"]["missing_ranks"]}
