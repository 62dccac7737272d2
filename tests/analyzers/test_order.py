"""What leads: a cause before the waiting that it makes, else the largest gain."""

from __future__ import annotations

import pytest
from labelled_runs import Runs

from ddprof.analyzers.order import in_order
from ddprof.findings import Finding, Recoverable


def finding(identifier: str, share: float, step_us: float, *ranks: int) -> Finding:
    """A finding that wins a share of the step."""
    gain_us = share * step_us
    return Finding(identifier, identifier, ranks, gain_us, Recoverable(gain_us, gain_us, gain_us), confidence=0.9)


@pytest.mark.parametrize(
    ("cause", "ranks", "leads"),
    [
        ("host.script", (), True),  # on all ranks, and never equally long
        ("host.checkpoint", (0,), True),
        ("input.straggler", (1,), True),
        ("straggler.host", (1,), True),
        ("compute.unfused_optimizer", (), False),  # makes nobody late
        ("host.launch_bound", (), False),  # its price is a bound itself
    ],
)
def test_a_cause_of_lateness_leads_the_turns_that_ranks_take_at_being_late(
    labelled: Runs, cause: str, ranks: tuple[int, ...], leads: bool
) -> None:
    measures = labelled("clean.ddp").measures
    turns = finding("straggler.unexplained", 0.4, measures.step_us)
    known = finding(cause, 0.05, measures.step_us, *ranks)
    first, second = in_order([turns, known], measures)
    assert (first, second) == ((known, turns) if leads else (turns, known))


def test_a_rank_that_is_named_leads_a_smaller_cause_on_others(labelled: Runs) -> None:
    measures = labelled("clean.ddp").measures
    late = finding("straggler.unexplained", 0.4, measures.step_us, 1)
    other = finding("host.gc", 0.05, measures.step_us, 0)
    assert in_order([other, late], measures)[0] is late


def test_what_costs_too_little_for_a_warning_leads_nothing(labelled: Runs) -> None:
    measures = labelled("clean.ddp").measures
    turns = finding("straggler.unexplained", 0.4, measures.step_us)
    small = finding("host.gc", 0.02, measures.step_us, 0)
    assert in_order([small, turns], measures)[0] is turns
