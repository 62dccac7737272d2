"""Answers on late ranks against a label: of rules and model alike, the findings on ranks alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.attribution.attribute import TURNS, attribute, numbers
from benchmarks.attribution.own_time import OwnTime
from ddprof.findings import WARNING_SHARE
from ddprof.report.model import Report

ON_LINKS = ("comm.", "pipeline.slow_link")  # faults of no rank's own time


@dataclass(frozen=True)
class Answer:
    """One finding on ranks (() where they take turns): how sure, and what it gains (us per step)."""

    id: str
    ranks: tuple[int, ...]
    sure: float
    gain_us: float


@dataclass(frozen=True)
class Judged:
    """Outcome of the answers to one run.

    `cause`, `ranks`: of the first answer, None where nobody is late. `accused`: answers that no fault explains.
    `said`: per answer, how sure and whether it is right. `gain_error`: of the found fault, share of the step.
    """

    cause: bool | None
    ranks: bool | None
    accused: int
    said: tuple[tuple[float, bool], ...]
    gain_error: float | None = None

    @property
    def verdict(self) -> tuple[bool | None, bool | None, int]:
        """The parts by which two judgements are compared."""
        return self.cause, self.ranks, self.accused

    @property
    def is_right(self) -> bool:
        """The late ranks are named for the right cause, and nobody else is."""
        return self.ranks is not False and not self.accused


def by_rules(report: Report) -> list[Answer]:
    """The rules' findings on ranks above "info", in their order."""
    loud = [f for f in report.findings if report.severity_of(f) != "info" and (f.ranks or f.id == TURNS)]
    return [Answer(f.id, f.ranks, f.confidence, f.recoverable_us.value) for f in loud]


def by_model(own: OwnTime) -> list[Answer]:
    """The model's, where they gain as much as a warning needs."""
    loud = [late for late in attribute(own) if late.gain_us >= WARNING_SHARE * own.step_us and late.id != "chance"]
    return [Answer(late.id, numbers(own, late), late.posterior, late.gain_us) for late in loud]


def judge(label: Mapping[str, Any], answers: Sequence[Answer]) -> Judged | None:
    """The answers against a label; None where its faults are of links, which are no rank's."""
    faults = label["faults"]
    if any(fault["id"].startswith(ON_LINKS) and fault["culprit_ranks"] for fault in faults):
        return None
    late = [f for f in faults if f["culprit_ranks"] or f["id"] == TURNS]
    right = [any(_named(fault, answer) for fault in faults) for answer in answers]
    said = tuple((answer.sure, is_right) for answer, is_right in zip(answers, right, strict=True))
    if not late:
        return Judged(None, None, right.count(False), said)
    first = answers[0] if answers else None
    cause = first is not None and any(_is_of(fault, first) for fault in late)
    found = next(((f, a) for f in late for a in answers if _named(f, a)), None)
    error = None if found is None else _gain_error(label, *found)
    return Judged(cause, bool(right) and right[0] and cause, right.count(False), said, error)


def _is_of(fault: Mapping[str, Any], answer: Answer) -> bool:
    return answer.id in (fault["id"], *fault["acceptable_ids"])


def _named(fault: Mapping[str, Any], answer: Answer) -> bool:
    return _is_of(fault, answer) and sorted(answer.ranks) in map(sorted, fault["acceptable_culprits"])


def _gain_error(label: Mapping[str, Any], fault: Mapping[str, Any], answer: Answer) -> float:
    low, high = fault.get("recoverable_range_us") or [fault["recoverable_us"]] * 2
    return max(low - answer.gain_us, answer.gain_us - high, 0.0) / max(label["step_us"], 1e-9)
