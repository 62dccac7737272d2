"""Prices and how far they are believed: the range of a prediction, and the price that ledger and blame alone say."""

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captured import on_cpu, steps, with_sidecars
from labelled_runs import Runs

from ddprof.analyzers import rules
from ddprof.analyzers.job.charged import waited_us
from ddprof.analyzers.job.host_costs import COMPILING
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import Alone
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.trust.believed import LedgerPrice, believed, ledger_price, of_candidate, of_step
from ddprof.findings import Basis, Candidate, Change, Recoverable

CHANGES = (Change("no_sync"),)


def test_a_range_grows_with_the_doubt_up_to_the_floor_and_down_to_nothing(labelled: Runs) -> None:
    prices = labelled("host.sync").pricer
    step_us, floor_us = prices.measures.step_us, prices.floor_us(CHANGES)
    gain_us = (step_us - floor_us) / 2
    narrow, wide, widest = (believed(prices, CHANGES, gain_us, doubt_us) for doubt_us in (50.0, 150.0, step_us))
    assert narrow.low < gain_us < narrow.high
    assert (narrow.low - wide.low, wide.high - narrow.high) == pytest.approx((100.0, 100.0))
    assert (widest.low, widest.high) == pytest.approx((0.0, step_us - floor_us))


def test_a_loss_has_a_range_too(labelled: Runs) -> None:
    prices = labelled("clean.ddp").pricer
    step_us = prices.measures.step_us
    low_us, high_us = of_step(prices, CHANGES, step_us + 1_000.0, 100.0)
    assert step_us < low_us < step_us + 1_000.0 < high_us


def timed_gain(
    measures: Measures, prices: Pricer, identifier: str, share: float, *, rank: int = 1, line: bool = False
) -> tuple[float, float, float]:
    """Low, value and high of a finding on one rank that is priced at `share` of the time by which the timers of the
    run show rank 1 late; `line`: it runs a line alone. In shares of that time."""
    late_us = 0.05 * measures.step_us
    timed = np.where(np.arange(len(measures.job.ranks)) == 1, late_us, 0.0)
    alone = {1: Alone("train.py:9 audit()", "", late_us, 0.0)} if line else {}
    known = replace(measures, timed_us=timed, loading_late_us=timed, alone=alone)
    late = Candidate(identifier, "late", share * late_us, Basis.COMPARED, (measures.job.rank_ids[rank],))
    priced = of_candidate(replace(prices, measures=known), late, share * late_us)
    return priced.low / late_us, priced.value / late_us, priced.high / late_us


def test_the_timers_of_the_run_decide_what_a_named_late_rank_costs(labelled: Runs) -> None:
    """They do where they are clear, and the finding is of most of it, or of the line that this rank runs alone."""
    run = labelled("straggler.host")
    gain = partial(timed_gain, on_cpu(run, {}), run.pricer)
    low, value, high = gain("straggler.host", 0.9)
    assert low >= 0.7 and value == pytest.approx(0.9) and high >= 1.0
    for timed in (gain("straggler.host", 0.6), gain("straggler.host", 0.1, line=True), gain("input.straggler", 0.1)):
        assert timed == pytest.approx((0.7, 1.0, 1.3))
    for other in (gain("straggler.host", 0.1), gain("straggler.host", 0.1, rank=0), gain("host.checkpoint", 0.1)):
        assert other[1] == pytest.approx(0.1) and other[2] < 0.7


@pytest.mark.parametrize(("identifier", "line"), [("input.straggler", False), ("straggler.host", True)])
def test_a_late_host_costs_a_device_with_work_what_the_replay_says(labelled: Runs, identifier: str, line: bool) -> None:
    run = labelled("straggler.host")
    assert timed_gain(run.measures, run.pricer, identifier, 0.1, line=line)[1] == pytest.approx(0.1)


def test_pauses_of_the_whole_run_decide_what_they_cost(labelled: Runs) -> None:
    """Every second step saves in the trace, every tenth of the run: others wait for a rank that saves alone."""
    run, peer = labelled("host.checkpoint"), {"steps": steps(110, 1_000_000)}
    saves = [{"start_ns": at * 10_000_000, "dur_ns": 400_000, "what": "torch.save"} for at in range(2, 11)]

    def gain(saving: dict[str, Any], us: float, given: Callable[..., Measures] = on_cpu) -> Recoverable:
        found = Candidate("host.checkpoint", "saves", 0.0, Basis.RECORDED, (0,), CHANGES)
        return of_candidate(replace(run.pricer, measures=given(run, saving, peer)), found, us)

    step_us = run.measures.step_us
    told = gain({**peer, "checkpoints": saves}, 0.3 * step_us)
    assert told.value == pytest.approx(0.04 * step_us, rel=0.15) and told.low < told.value < told.high < 0.3 * step_us
    assert gain({**peer, "checkpoints": saves[:1]}, 0.3 * step_us).low == 0.0  # one may be chance
    assert gain(peer, 0.3 * step_us).value == 0.3 * step_us
    # Of a device, which works meanwhile, what the replay says of a pause.
    traced_us = run.measures.host_spans_us["checkpoint"].mean() * len(run.job.ranks)
    for us in (0.1 * step_us, 0.3 * step_us):
        told = gain({**peer, "checkpoints": saves}, us, with_sidecars)
        assert told.value == pytest.approx(us * 0.04 * step_us / traced_us, rel=0.15)


# Priced by a formula or a rate, of which nothing is booked.
WITHOUT_LEDGER = {"pipeline_schedule", "keep_activations"}


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
