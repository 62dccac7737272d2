"""A finding on collectives that the script calls in none of the traced steps, and in most of those after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ddprof.analyzers.facts.script.barriers import MEETING_CALLS
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.redundant.between import caller_words
from ddprof.analyzers.job.whole_run.called import called_outside
from ddprof.findings import Basis, Candidate, Evidence, Fix
from ddprof.units import format_number, format_share

LEAST = 0.06  # of the mean step: as of Python that runs in some steps only (evidence/script/now_and_then)


def calls_outside(
    measures: Measures, rule_id: str, is_meeting: bool, fix: Callable[[set[str]], Fix]
) -> Iterator[Candidate]:
    """The candidate of a rule on meetings (barriers, objects) or on other collectives; none where they cost little."""
    outside = called_outside(measures.job.ranks)
    if outside is None or outside.cost < LEAST or (outside.lines[0][0].op in MEETING_CALLS) != is_meeting:
        return
    facts = measures.job.ranks[0]
    first, per_step = outside.lines[0]
    cost_us = outside.cost * measures.step_us
    yield Candidate(
        id=rule_id,
        summary=f"{format_number(per_step)} {first.op} calls per step outside the trace take "
        f"{format_share(outside.cost)} of the step, called at {caller_words(facts, first)}",
        lost_us=cost_us,
        basis=Basis.TIMED,
        evidence=(
            Evidence(f"in {outside.often} of {outside.steps} steps outside the trace, in no traced step"),
            *(
                Evidence(
                    f"{calls:.1f} {line.op} calls per step{_of_size(line.size, line.dtype)} "
                    f"at {caller_words(facts, line)}"
                )
                for line, calls in outside.lines[:3]
            ),
        ),
        fixes=(fix({line.op for line, _ in outside.lines}),),
        ceiling_us=cost_us,
        band=0.25,
    )


def _of_size(size: tuple[int, ...] | None, dtype: str) -> str:
    return f" of {list(size)} {dtype.removeprefix('torch.')}" if size else ""
