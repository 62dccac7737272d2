"""Judgement of ddprof's findings on a script by the generator's truth and the difference of bare step times."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.strangers.execute import NAMES, step_ms
from benchmarks.strangers.faults import FAULTS
from benchmarks.strangers.spec import Spec

LEAST = 0.08  # of the step: faults below are too small to be asked for
NEAR = 0.25  # of the measured gain: as good as inside the range
_OWN = ("lines", "functions")


@dataclass(frozen=True)
class Judgement:
    """`share`: of the bare step that the fault takes, measured. `accused`: ranks of the twin's loud findings; `loud`:
    its loud findings on the whole job. `gain`: whether the measured one is in the range, or near its middle."""

    spec: Spec
    share: float
    ranks: bool
    line: bool
    mechanism: bool
    gain: bool | None
    said: str
    twin_said: str
    accused: tuple[int, ...]
    loud: tuple[str, ...]
    step_ms: float

    @property
    def is_asked(self) -> bool:
        """True where the fault is large enough to be required."""
        return self.share >= LEAST

    @property
    def is_right(self) -> bool:
        """Ranks, line and mechanism of the first finding."""
        return self.ranks and self.line and self.mechanism


def judge(folder: Path) -> Judgement:
    """Judgement of a folder that was run and analyzed."""
    about = json.loads((folder / "spec.json").read_text())
    spec = Spec(**{name: value for name, value in about.items() if name not in _OWN})
    with_fault, without = (step_ms(folder, name) for name in NAMES)
    report, twin = (json.loads((folder / f"{name}.json").read_text()) for name in NAMES)
    share = 1 - without / with_fault
    first = next((one for one in loud(report) if _has_line(one, about) or not _is_told(one, twin)), None)
    return Judgement(
        spec,
        share,
        **right_in(first, spec, about),
        gain=None if first is None else _is_priced(first, report, share),
        said=said(report),
        twin_said=said(twin),
        accused=tuple(sorted({rank for finding in loud(twin) for rank in finding["ranks"]})),
        loud=tuple(finding["id"] for finding in loud(twin) if not finding["ranks"]),
        step_ms=with_fault,
    )


def right_in(first: dict[str, Any] | None, spec: Spec, about: dict[str, Any]) -> dict[str, bool]:
    """True for each of ranks, line and mechanism that the first finding has right; `about`: what spec.json says."""
    if first is None:
        return {"ranks": False, "line": False, "mechanism": False}
    fault = FAULTS[spec.fault]
    return {
        "ranks": _ranks(first, spec) == spec.culprits,
        "line": _has_line(first, about) or fault.is_inline,
        "mechanism": first["id"] in fault.accepted(spec.who, spec.where),
    }


def loud(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Findings that are more than information, the first one first."""
    return [finding for finding in report["findings"] if finding["severity"] != "info"]


def _is_told(finding: dict[str, Any], twin: dict[str, Any]) -> bool:
    """True where the twin has the same finding: it is due to the structure then, and counted there."""
    return any(one["id"] == finding["id"] and one["ranks"] == finding["ranks"] for one in loud(twin))


def _ranks(finding: dict[str, Any], spec: Spec) -> tuple[int, ...]:
    """Ranks that the finding names; () where it names all of them."""
    named = tuple(finding["ranks"])
    return () if len(named) == spec.ranks else named


def _has_line(finding: dict[str, Any], about: dict[str, Any]) -> bool:
    """True where it names a line of the fault, or a function around it: of the script, or of its loader."""
    words = json.dumps(finding)
    lines = any(
        f"script.py:{number}" in words and not words.split(f"script.py:{number}")[1][:1].isdigit()
        for number in about["lines"]
    )
    own = [name for name in about["functions"] if name not in ("main", "run", "fit", "__init__")]
    return lines or any(f"{name}()" in words for name in own)


def _is_priced(finding: dict[str, Any], report: dict[str, Any], share: float) -> bool:
    gain, step = finding["recoverable_us"], report["steps"]["wall_us"]
    low, high, middle = (gain[name] / step for name in ("low", "high", "value"))
    return low <= share <= high or abs(middle - share) <= NEAR * share


def said(report: dict[str, Any]) -> str:
    """The verdict and every finding, in one text."""
    found = [f"{f['severity']} {f['id']} {f['ranks']}: {f['summary']}" for f in report["findings"]]
    return "\n".join([report["verdict"]["headline"], *found])
