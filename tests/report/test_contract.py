"""The report and its JSON document say the same thing."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.report.json.contract import REPORTS_SCHEMA, from_contract, from_document, to_contract, to_document
from ddprof.report.model import Report


def test_document_is_strict_json_with_every_section(straggler_report: Report) -> None:
    document = json.loads(json.dumps(to_contract(straggler_report), allow_nan=False))
    assert document["schema"] == "ddprof.report/1"
    for key in ("run", "health", "clock", "steps", "ledger", "efficiency", "findings", "what_if", "replay", "verdict"):
        assert key in document
    assert document["efficiency"]["mfu"] is None
    assert document["efficiency"]["bus_bandwidth_gbps"] == {"allreduce": 123.4}


def test_round_trip_returns_the_same_document(straggler_report: Report) -> None:
    document = json.loads(json.dumps(to_contract(straggler_report)))
    assert to_contract(from_contract(document)) == document


def test_findings_are_worst_first_and_priced(straggler_report: Report) -> None:
    first, second = to_contract(straggler_report)["findings"]
    assert (first["id"], first["severity"], first["ranks"]) == ("input.straggler", "critical", [2])
    assert first["predicted_step_us"] == 64_000.0
    assert (second["id"], second["severity"]) == ("comm.bandwidth_bound", "info")


def test_every_cause_is_booked_and_sums_to_the_wall(straggler_report: Report) -> None:
    ledger = to_contract(straggler_report)["ledger"]
    for row in (ledger["job"], *ledger["per_rank"].values()):
        assert set(row) == {"wall_us", *CAUSES}
        assert math.isclose(sum(row[cause] for cause in CAUSES), row["wall_us"], rel_tol=1e-3)


def test_several_runs_are_wrapped(straggler_report: Report) -> None:
    document = to_document([straggler_report, straggler_report])
    assert document["schema"] == REPORTS_SCHEMA
    assert [r.run.world_size for r in from_document(document)] == [4, 4]


def test_missing_numbers_survive(straggler_report: Report) -> None:
    steps = dataclasses.replace(straggler_report.steps, count=0, wall_us=math.nan, per_step_us=())
    document = to_contract(dataclasses.replace(straggler_report, steps=steps))
    assert document["steps"]["wall_us"] is None
    assert math.isnan(from_contract(document).steps.wall_us)


@pytest.mark.parametrize("document", [{}, {"schema": "other/1"}, {"schema": "ddprof.report/1"}])
def test_a_foreign_document_is_a_one_line_error(document: dict[str, str]) -> None:
    with pytest.raises(NoUsableInput) as caught:
        from_contract(document)
    assert "\n" not in str(caught.value)
