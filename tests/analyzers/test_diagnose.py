"""How findings are ordered and give way to one another."""

from __future__ import annotations

import pytest
from labelled_runs import Runs

from ddprof.analyzers.diagnose import diagnose
from ddprof.findings import Basis, Candidate, Change, Rule
from ddprof.report.phrases import gain_words
from ddprof.units import format_us


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
            n: Rule(n, n, lambda _, n=n: iter([Candidate(n, n, (), 0.0, (parts[n],), Basis.RECORDED)]))  # type: ignore[misc]
            for n in names
        }
        monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: rules)
        return [f.id for f in diagnose(run.measures, run.pricer).findings]

    assert found("larger") == ["larger"]
    assert found("same time") == ["same time"]
    assert found("larger", "same time") == ["larger"]


def test_what_a_larger_fix_leaves_nothing_of_keeps_the_price_it_has_alone(
    labelled: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clear cost stays in the list at a price of nothing, and neither its words nor the what-if deny what it is worth
    alone.
    """
    run = labelled("straggler.compute")
    changes = {"larger": Change("scale_compute", (2,), (1.3,)), "shared": Change("scale_compute", (2,), (1.25,))}

    def rule(name: str, change: Change) -> Rule:
        said = Candidate(name, name, (2,), run.measures.step_us, (change,), Basis.COMPARED)
        return Rule(name, name, lambda _: iter([said]))

    rules = {name: rule(name, change) for name, change in changes.items()}
    monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: rules)
    found = diagnose(run.measures, run.pricer)
    larger, shared = found.findings
    alone_us = run.measures.step_us - run.pricer.step_us((changes["shared"],))
    assert larger.alone_us is None and shared.alone_us is not None
    assert shared.alone_us.value == pytest.approx(alone_us) and shared.recoverable_us.value < 0.1 * alone_us
    rows = {row.change: row.predicted_step_us for row in found.what_if}
    assert rows["shared"] == pytest.approx(run.measures.step_us - alone_us)
    assert f"alone {format_us(alone_us)}" in gain_words(run.report, shared)


@pytest.mark.parametrize(("name", "first"), [("input.straggler", "late loader"), ("input.starved", "every loader")])
def test_what_some_ranks_explain_is_not_said_of_all(
    labelled: Runs, monkeypatch: pytest.MonkeyPatch, name: str, first: str
) -> None:
    """A change to all ranks always wins a little more than the same change to the late one, which is the cause."""
    run = labelled(name)
    late = (run.label["faults"][0]["culprit_ranks"] or [0])[0]
    parts: dict[str, tuple[int, ...]] = {"late loader": (late,), "every loader": ()}

    def rule(title: str, ranks: tuple[int, ...]) -> Rule:
        change = Change("instant_loader", ranks)
        said = Candidate(title, title, ranks, 0.9 * run.measures.step_us, (change,), Basis.RECORDED)
        return Rule(title, title, lambda _: iter([said]))

    rules = {title: rule(title, ranks) for title, ranks in parts.items()}
    monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: rules)
    assert diagnose(run.measures, run.pricer).findings[0].id == first


def test_every_rule_either_speaks_abstains_or_was_checked(labelled: Runs) -> None:
    run = labelled("clean.ddp")
    said = diagnose(run.measures, run.pricer)
    assert {a.id for a in said.abstentions}.isdisjoint(said.checked)
    assert all(a.reason for a in said.abstentions)


def test_a_slow_device_is_not_explained_by_what_is_done_to_all_ranks(
    labelled: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels a tenth as long leave the slow device nothing to win: it is slow in this run nevertheless."""
    run = labelled("straggler.compute")
    parts = {
        "all": ((), Change("scale_compute", (), (10.0,))),
        "slow device": ((2,), Change("scale_compute", (2,), (1.3,), "peers")),
    }
    rules = {
        n: Rule(n, n, lambda _, n=n, r=r, c=c: iter([Candidate(n, n, r, 0.0, (c,), Basis.RECORDED)]))  # type: ignore[misc]
        for n, (r, c) in parts.items()
    }
    monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: rules)
    found = {f.id: f for f in diagnose(run.measures, run.pricer).findings}
    assert found["slow device"].recoverable_us.value > 0.03 * run.measures.step_us
    assert found["all"].recoverable_us.value > found["slow device"].recoverable_us.value
