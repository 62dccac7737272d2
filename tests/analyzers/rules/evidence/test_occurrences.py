"""A cost that not every step has is told per occurrence too."""

import re

import pytest
from labelled_runs import Runs, fires

from ddprof.analyzers.rules.evidence.occurrences import occurrences


def test_a_save_in_one_step_of_three_is_told_and_doubted(labelled: Runs) -> None:
    run = labelled("host.checkpoint")
    told = fires(run, "host.checkpoint").evidence[0].text
    found = re.search(r"per traced step: once in 3 steps, ([\d.]+) (µs|ms|s); how often it recurs", told)
    assert found is not None, told
    each_us = float(found[1]) * {"µs": 1, "ms": 1e3, "s": 1e6}[found[2]]
    assert each_us / 3 == pytest.approx(float(run.measures.host_spans_us["checkpoint"].max()), rel=0.02)
    # Its price per step assumes that it comes again as often.
    (found,) = [f for f in labelled("host.checkpoint").report.findings if f.id == "host.checkpoint"]
    assert "one_event" in found.doubts
    assert not occurrences(labelled("clean.ddp").measures, 0, "gc").evidence


@pytest.mark.parametrize(("name", "cause"), [("host.allocator", "allocator"), ("input.starved", "dataloader")])
def test_a_cost_of_every_step_is_told_per_step_alone(labelled: Runs, name: str, cause: str) -> None:
    assert not occurrences(labelled(name).measures, 0, cause).evidence
