"""Replay: what a change wins, how changes combine, and how findings give way to one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from labelled_runs import Runs

from ddprof.analyzers.diagnose import diagnose
from ddprof.analyzers.replay.changes.table import combined, scenario_of
from ddprof.analyzers.replay.model import Scenario
from ddprof.analyzers.replay.simulate import simulate
from ddprof.analyzers.verdict import verdict
from ddprof.findings import Candidate, Change, Rule

RELAXED = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NAMES = ("clean.ddp", "clean.fsdp", "clean.pp", "straggler.compute")


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_scenario_changes_nothing(labelled: Runs, name: str) -> None:
    graph = labelled(name).pricer.graph
    assert simulate(graph, Scenario()).span_ns == simulate(graph).span_ns
    assert simulate(graph, Scenario() + Scenario()).marks_ns == simulate(graph).marks_ns


@RELAXED
@given(factor=st.floats(1.0, 4.0))
def test_faster_kernels_never_make_the_step_longer(labelled: Runs, factor: float) -> None:
    prices = labelled("clean.ddp").pricer
    slower, faster = (prices.step_us((Change("scale_compute", (), (f,)),)) for f in (factor, factor * 1.5))
    assert faster <= slower * (1 + 1e-6) <= prices.measures.step_us * (1 + 2e-6)


def test_scaling_the_slow_rank_back_gives_the_healthy_step(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    predicted = run.pricer.step_us((Change("scale_compute", (2,), (1.3,)),))
    assert predicted == pytest.approx(run.label["counterfactual_step_us"], rel=0.03)


def test_scaling_a_rank_nobody_waits_for_gains_nothing(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    predicted = run.pricer.step_us((Change("scale_compute", (0,), (1.3,)),))
    assert predicted == pytest.approx(run.measures.step_us, rel=0.02)


def test_free_communication_gives_the_step_without_it(labelled: Runs) -> None:
    run = labelled("comm.bandwidth_bound")
    predicted = run.pricer.step_us((Change("scale_transfer", (), (0.0,)),))
    assert predicted == pytest.approx(run.label["comm_free_step_us"], rel=0.03)


def test_changes_combine_in_any_order(labelled: Runs) -> None:
    prices = labelled("straggler.compute").pricer
    first, second = Change("scale_compute", (2,), (1.3,)), Change("no_sync")
    assert prices.step_us((first, second)) == prices.step_us((second, first))
    assert prices.step_us((first, second)) <= min(prices.step_us((first,)), prices.step_us((second,))) * (1 + 1e-6)


def test_the_same_change_twice_is_that_change(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    change = Change("scale_compute", (2,), (1.3,))
    once = scenario_of(change, run.pricer.graph, run.measures)
    twice = combined((change, change), run.pricer.graph, run.measures)
    assert np.array_equal(once.dur_ns[2], twice.dur_ns[2])


def test_an_unknown_change_is_a_key_error(labelled: Runs) -> None:
    run = labelled("clean.ddp")
    with pytest.raises(KeyError):
        scenario_of(Change("no_such"), run.pricer.graph, run.measures)


def test_gains_are_never_negative_and_keep_to_their_ceiling(labelled: Runs) -> None:
    prices = labelled("straggler.compute").pricer
    slower = Candidate("x", "", (), 0.0, (Change("scale_compute", (), (0.5,)),), 1.0)
    capped = Candidate("x", "", (), 0.0, (Change("scale_compute", (2,), (1.3,)),), 1.0, ceiling_us=100.0)
    assert prices.gain_us(slower) == 0.0
    assert prices.gain_us(capped) == 100.0
    interval = prices.interval(capped, 100.0)
    assert 0.0 <= interval.low <= interval.value <= interval.high <= prices.measures.step_us


def test_the_larger_finding_explains_the_waiting_away(labelled: Runs) -> None:
    """A slow device makes its peers wait; nothing but the device is a warning, and findings come worst first."""
    run = labelled("straggler.compute")
    found = diagnose(run.measures, run.pricer).findings
    serious = [f.id for f in found if run.report.severity_of(f) != "info"]
    assert serious == ["straggler.compute"]
    gains = [f.recoverable_us.value for f in found]
    assert gains == sorted(gains, reverse=True)


def test_the_same_time_under_another_name_gives_way(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two candidates that remove the same time only the larger stays, though each alone would be told."""
    run = labelled("straggler.compute")
    parts = {
        "larger": Change("scale_compute", (2,), (1.3,)),
        "same time": Change("scale_compute", (2,), (1.25,)),
    }

    def found(*names: str) -> list[str]:
        rules = {
            n: Rule(n, n, lambda _, n=n: iter([Candidate(n, n, (), 0.0, (parts[n],), 1.0)]))  # type: ignore[misc]
            for n in names
        }
        monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: rules)
        return [f.id for f in diagnose(run.measures, run.pricer).findings]

    assert found("larger") == ["larger"]
    assert found("same time") == ["same time"]
    assert found("larger", "same time") == ["larger"]


def test_every_rule_either_speaks_abstains_or_was_checked(labelled: Runs) -> None:
    run = labelled("clean.ddp")
    said = diagnose(run.measures, run.pricer)
    assert {a.id for a in said.abstentions}.isdisjoint(said.checked)
    assert all(a.reason for a in said.abstentions)


@pytest.mark.parametrize(("name", "bound"), [("straggler.compute", "straggler"), ("input.starved", "input"),
                                             ("comm.bandwidth_bound", "communication"), ("clean.ddp", "compute"),
                                             ("host.gc", "host"), ("pipeline.imbalance", "pipeline")])  # fmt: skip
def test_the_headline_names_the_bound(labelled: Runs, name: str, bound: str) -> None:
    run = labelled(name)
    said = verdict(run.measures, diagnose(run.measures, run.pricer))
    assert said.bound == bound
    assert not said.headline[0].islower()
    assert ("fixing it wins" in said.headline) == (name != "clean.ddp")
