"""The confidence of findings is counted, and said with what it was counted from."""

import ast
from pathlib import Path

import pytest
from labelled_runs import Runs

from ddprof.analyzers import rules
from ddprof.analyzers.trust.confidence import confidence
from ddprof.analyzers.trust.precision import Precision, Tally
from ddprof.findings import Basis, Doubt

TABLE = Precision("", {}, {"host.gc": {"recorded": Tally(20, 19)}}, {"two_steps": Tally(9, 9)}, Tally(20, 19))


def test_it_is_the_measured_precision_and_each_doubt_lowers_it() -> None:
    sure = confidence("host.gc", Basis.RECORDED, (), TABLE)
    assert sure.value == pytest.approx(19 / 20, abs=0.03)
    assert sure.grounds == "right in 19 of 20 labelled runs"
    assert confidence("host.new", Basis.TIMED, (), TABLE).grounds == "never measured on labelled runs"
    doubted = confidence("host.gc", Basis.RECORDED, (Doubt.TWO_STEPS, Doubt.ONE_STEP, Doubt.MISSING_RANKS), TABLE)
    factor = TABLE.factor("one_step")  # under two steps nothing was wrong
    assert doubted.value == pytest.approx(sure.value * factor * factor)
    assert doubted.grounds.endswith("; less, as only one step was seen and ranks are missing")
    # Which of two gains is true says nothing of the cause: the range is widened (tests/analyzers/test_prices.py).
    assert confidence("host.gc", Basis.RECORDED, (Doubt.PRICES_DIFFER,), TABLE) == sure


def test_findings_say_what_they_stand_on_and_no_rule_states_a_number(labelled: Runs) -> None:
    """A rule says what it stands on; how often such findings are right is not its to say."""
    for file in Path(rules.__file__).parent.rglob("*.py"):
        given = {node.arg for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.keyword)}
        assert "confidence" not in given, file
    for name in ("host.gc", "straggler.compute", "comm.no_overlap"):
        for finding in labelled(name).report.findings:
            assert finding.basis in {basis.value for basis in Basis}
            assert finding.doubts == ()
            assert "labelled runs" in finding.grounds
