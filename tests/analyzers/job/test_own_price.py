"""What all ranks win where late ones keep their pace, by own time alone."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.own_price import levelled_us
from ddprof.causes import CAUSE_CODE, HOST_CAUSES


@pytest.mark.parametrize(
    ("name", "causes"),
    [("straggler.compute", ("compute",)), ("straggler.host", HOST_CAUSES), ("input.straggler", ("dataloader",))],
)
def test_late_ranks_cost_what_they_take_longer_however_they_meet(labelled: Runs, name: str, causes) -> None:
    run = labelled(name)
    measures, fault = run.measures, run.label["faults"][0]
    late = np.flatnonzero(np.isin(measures.job.rank_ids, fault["culprit_ranks"]))
    assert levelled_us(measures, late, causes) == pytest.approx(fault["recoverable_us"], rel=0.1)
    assert levelled_us(measures, late, ()) == pytest.approx(fault["recoverable_us"], rel=0.1)
    # Waits that no recording tells from transfers are waits.
    ledger = measures.job.ledger
    waits = ledger["cause"] == CAUSE_CODE["comm_wait"]
    moved = ledger.replace(cause=np.where(waits, CAUSE_CODE["comm_transfer"], ledger["cause"]))
    blind = replace(measures, job=replace(measures.job, ledger=moved))
    assert levelled_us(blind, late, causes) == pytest.approx(levelled_us(measures, late, causes))


def test_ranks_that_are_not_late_cost_nothing_nor_do_all_of_them(labelled: Runs) -> None:
    measures = labelled("straggler.compute").measures
    culprits = labelled("straggler.compute").label["faults"][0]["culprit_ranks"]
    late = np.flatnonzero(np.isin(measures.job.rank_ids, culprits))
    everybody = np.arange(len(measures.job.ranks))
    assert levelled_us(measures, np.setdiff1d(everybody, late)[:1], ("compute",)) == 0
    assert levelled_us(measures, everybody, ("compute",)) == 0 == levelled_us(measures, late[:0], ("compute",))
