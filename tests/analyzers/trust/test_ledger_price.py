"""The second price: what ledger and blame alone say a change gains."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers import rules
from ddprof.analyzers.job.charged import waited_us
from ddprof.analyzers.job.host_parts import COMPILING
from ddprof.analyzers.trust.ledger_price import LedgerPrice, ledger_price
from ddprof.findings import Change, Recoverable

# Priced by a formula or a rate, of which nothing is booked.
WITHOUT_LEDGER = {"pipeline_schedule"}


def test_pauses_cost_what_is_booked_and_what_waits_for_them(labelled: Runs) -> None:
    """Collections of four ranks in turn: each rank pauses for its own and waits for the others'."""
    measures = labelled("host.gc").measures
    price = ledger_price(measures, (Change("remove_host", target="gc"),))
    assert price is not None
    own, waited = measures.cause_us("gc"), waited_us(measures, ("gc",), np.arange(4))
    assert (price.value, price.most) == pytest.approx(((own + waited).mean(), (own + waited).max()))
    assert own.mean() < price.value / 2  # most of it is waiting
    assert price.value == pytest.approx(labelled("host.gc").fault["recoverable_us"], rel=0.1)


def test_only_ranks_that_are_named_or_wait_gain_and_prices_apart_are_brought_together(labelled: Runs) -> None:
    measures = labelled("straggler.compute").measures
    slow = ledger_price(measures, (Change("scale_compute", (2,), (1.3,)),))
    other = ledger_price(measures, (Change("scale_compute", (1,), (1.3,)),))
    assert slow is not None and other is not None and other.value < 0.5 * slow.value
    assert slow.value == pytest.approx(labelled("straggler.compute").fault["recoverable_us"], rel=0.1)
    untraced = replace(measures, job=replace(measures.job, missing_ranks=(9,)))
    seen = ledger_price(untraced, (Change("scale_compute", (2,), (1.3,)),))
    assert seen == replace(slow, sees_more=True)
    assert seen.widened(Recoverable(10.0, 8.0, 12.0)).value == slow.value
    ledger = LedgerPrice(50.0, 60.0)
    assert ledger.agrees(Recoverable(45.0, 40.0, 52.0))
    low, high = Recoverable(10.0, 8.0, 12.0), Recoverable(90.0, 80.0, 95.0)
    assert not ledger.agrees(low) and ledger.widened(low) == Recoverable(10.0, 8.0, 50.0)
    assert not ledger.agrees(high) and ledger.widened(high) == Recoverable(90.0, 60.0, 95.0)


def test_formulas_have_no_second_price_and_every_change_that_a_rule_proposes_has_one(labelled: Runs) -> None:
    measures = labelled("clean.pp").measures
    assert ledger_price(measures, ()) is None
    assert ledger_price(measures, (Change("pipeline_schedule", (), (16.0, 1.0)),)) is None
    measures = labelled("clean.ddp").measures
    for file in sorted(Path(rules.__file__).parent.glob("*.py")):
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        made = [call.args[0] for call in calls if ast.unparse(call.func) == "Change"]
        for kind in (str(name.value) for name in made if isinstance(name, ast.Constant)):
            target = COMPILING if kind in ("no_compiling", "scale_part") else "gc"
            assert kind in WITHOUT_LEDGER or ledger_price(measures, (Change(kind, (0, 1), (1.5, 1.0), target),)), file
