"""Every price against the ledger's: no finding gains more than is booked to its cause, and two estimates agree."""

from dataclasses import replace

import pytest
from corpus import CLEAN, FAULTY, PRICED
from labelled_runs import Runs, serious

from ddprof.analyzers.diagnose import diagnose
from ddprof.findings import Basis, Candidate, Change, Doubt, Finding, Rule


@pytest.mark.parametrize("name", [*CLEAN, *FAULTY])
def test_no_finding_gains_more_than_is_booked_or_less(labelled: Runs, name: str) -> None:
    report = labelled(name).report
    assert {f.id for f in report.findings if Doubt.PRICES_DIFFER.value in f.doubts} & serious(report).keys() == set()


def test_where_two_prices_differ_the_range_says_so_alone(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow device of which a rule claims a tenth: its range reaches what the ledger books."""
    run = labelled("straggler.compute")
    slow = Candidate("straggler.compute", "", 0.0, Basis.COMPARED, (2,), (Change("scale_compute", (2,), (1.3,)),))

    def priced(candidate: Candidate) -> Finding:
        rule = Rule(slow.id, slow.id, lambda _: iter([candidate]))
        monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: {rule.id: rule})
        (finding,) = diagnose(run.measures, run.pricer).findings
        return finding

    whole = priced(slow)
    tenth = priced(replace(slow, ceiling_us=whole.recoverable_us.value / 10))
    assert whole.doubts == () and tenth.doubts == (Doubt.PRICES_DIFFER.value,)
    assert tenth.recoverable_us.value == pytest.approx(whole.recoverable_us.value / 10)
    assert whole.by_ledger_us is not None and tenth.by_ledger_us == whole.by_ledger_us
    assert tenth.recoverable_us.high == pytest.approx(whole.by_ledger_us.value)
    assert tenth.confidence == whole.confidence and tenth.grounds == whole.grounds


@pytest.mark.parametrize("name", PRICED)
def test_every_fault_of_a_run_has_its_true_price(labelled: Runs, name: str) -> None:
    """Saving is no part of what reading values costs; what others wait for the launches of a late host is."""
    run = labelled(name)
    gains_us = {finding.id: finding.recoverable_us.value for finding in run.report.findings}
    for fault in run.label["faults"]:
        low_us, high_us = fault["recoverable_range_us"]
        assert low_us - 0.03 * run.label["step_us"] <= gains_us[fault["id"]] <= high_us + 0.03 * run.label["step_us"]
