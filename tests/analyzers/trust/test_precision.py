"""Precision of future findings from few counts."""

import pytest

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.trust.precision import NOTHING_KNOWN, Precision, Tally, measured

GC = {"recorded": Tally(30, 30), "timed": Tally(1, 0)}
RULES = {"host.gc": GC, "host.sync": {"recorded": Tally(4, 2)}, "straggler.host": {"untested": Tally(2, 0)}}
DOUBTS = {"one_step": Tally(8, 4), "damaged_files": Tally(40, 40)}
TABLE = Precision("2026-11-23", {"corpus": 60}, RULES, DOUBTS, Tally(40, 38))


def test_few_counts_and_doubts_weigh_what_was_measured_of_them() -> None:
    assert Precision().of("host.gc", "recorded") == NOTHING_KNOWN
    assert TABLE.of("host.gc", "recorded") == pytest.approx(30 / 30, abs=0.03)
    assert TABLE.of("host.sync", "recorded") == pytest.approx(2 / 4, abs=0.1)
    one_wrong = TABLE.of("host.gc", "timed")
    assert 0 < one_wrong < TABLE.of("host.gc", "recorded") / 2  # one finding, and it was wrong: not certainly wrong
    # An identifier that was never measured starts from what else stands on its basis, and from nothing known.
    assert TABLE.of("comm.no_overlap", "untested") < NOTHING_KNOWN < TABLE.of("comm.no_overlap", "recorded") < 0.8
    assert TABLE.factor("one_step") == pytest.approx((4 / 8) / (38 / 40), abs=0.02)
    assert TABLE.factor("damaged_files") == 1.0  # it took nothing
    assert TABLE.factor("never seen") == pytest.approx(NOTHING_KNOWN / (38 / 40), abs=0.02)


def test_the_table_that_ships_was_measured_on_findings_that_exist() -> None:
    table = measured()
    assert sum(table.runs.values()) >= 100 and set(table.findings) <= set(catalogue())
    assert all(tally.right <= tally.said for row in table.findings.values() for tally in row.values())
