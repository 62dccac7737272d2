"""Who is late takes longer in all, and not in one thing alone."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs, latest

from ddprof.analyzers.attribution.own_time import takes_no_longer
from ddprof.analyzers.job.measures import Measures
from ddprof.causes import CAUSE_CODE
from ddprof.findings import Basis, Candidate

LOADER = "input.straggler"


def candidate(measures: Measures, identifier: str = LOADER) -> Candidate:
    return Candidate(identifier, "late", 1.0, Basis.COMPARED, measures.ranks([latest(measures)]))


def with_more(measures: Measures, position: int, cause: str, us: float) -> Measures:
    ledger = measures.ledger_us.copy()
    ledger[position, CAUSE_CODE[cause]] += us
    return replace(measures, ledger_us=ledger)


def test_a_late_rank_stands_unless_its_peers_take_longer_for_something_else(labelled: Runs) -> None:
    measures = labelled(LOADER).measures
    assert takes_no_longer(candidate(measures), measures) is None
    for position in np.setdiff1d(np.arange(len(measures.job.ranks)), [latest(measures)]).tolist():
        measures = with_more(measures, position, "gc", measures.step_us)
    assert "no rank waits for it" in (takes_no_longer(candidate(measures), measures) or "")


def test_waits_for_what_was_loaded_before_the_trace_clear_no_rank(labelled: Runs) -> None:
    """Peers wait three times as long as the rank loads longer in the traced steps: it had begun before them."""
    measures = labelled(LOADER).measures
    waiting = replace(measures, late_us=3 * measures.late_us)
    assert takes_no_longer(candidate(waiting), waiting) is None
    assert takes_no_longer(candidate(waiting, "straggler.unexplained"), waiting) is not None


@pytest.mark.parametrize("cause", ["comm_wait", "comm_transfer", "pipeline_bubble"])
def test_meeting_the_others_is_no_time_of_its_own(labelled: Runs, cause: str) -> None:
    measures = labelled(LOADER).measures
    assert np.allclose(with_more(measures, 0, cause, 1e6).own_us, measures.own_us)
