"""The leading finding: a cause before the waiting that it makes, else the largest gain."""

import pytest
from labelled_runs import Runs

from ddprof.analyzers.diagnose import in_order
from ddprof.findings import Finding, Recoverable, severity_of


def finding(identifier: str, share: float, step_us: float, *ranks: int) -> Finding:
    gain_us = share * step_us
    return Finding(identifier, identifier, ranks, gain_us, Recoverable(gain_us, gain_us, gain_us), confidence=0.9)


@pytest.mark.parametrize(
    ("cause", "share", "ranks", "late", "leads"),
    [
        ("host.script", 0.05, (), (), True),  # on all ranks, and never equally long
        *(("host.checkpoint", 0.05, (0,), (), True), ("input.straggler", 0.05, (1,), (), True)),
        ("straggler.host", 0.05, (1,), (), True),
        ("compute.unfused_optimizer", 0.05, (), (), False),  # makes nobody late
        ("host.launch_bound", 0.05, (), (), False),  # its price is a bound itself
        ("host.gc", 0.05, (0,), (1,), False),  # a rank that is named leads a smaller cause on others
        ("host.gc", 0.02, (0,), (), False),  # too little for a warning
    ],
)
def test_a_cause_of_lateness_leads_the_turns_that_ranks_take_at_being_late(
    labelled: Runs, cause: str, share: float, ranks: tuple[int, ...], late: tuple[int, ...], leads: bool
) -> None:
    measures = labelled("clean.ddp").measures
    turns = finding("straggler.unexplained", 0.4, measures.step_us, *late)
    known = finding(cause, share, measures.step_us, *ranks)
    for found in ([turns, known], [known, turns]):
        assert list(in_order(found, measures)) == ([known, turns] if leads else [turns, known])


@pytest.mark.parametrize(
    ("share", "ranks", "low", "confidence", "severity"),
    [
        (0.2, (), 0.1, 0.9, "critical"),
        (0.2, (), 0.0, 0.9, "warning"),
        (0.05, (), 0.0, 0.9, "info"),
        (0.05, (0,), 0.0, 0.9, "warning"),
        (0.2, (0,), 0.0, 0.5, "info"),
        (0.2, (0,), 0.1, 0.5, "critical"),
    ],
)
def test_a_range_from_nothing_is_not_critical(
    share: float, ranks: tuple[int, ...], low: float, confidence: float, severity: str
) -> None:
    gain = Recoverable(share * 1e3, low * 1e3, 2 * share * 1e3)
    assert severity_of(Finding("x", "x", ranks, share * 1e3, gain, confidence), 1e3) == severity
