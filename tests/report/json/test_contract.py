"""The report and its JSON document say the same thing."""

import dataclasses
import functools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.report.json.contract import (
    from_contract,
    from_document,
    is_saved_report,
    read_saved,
    to_contract,
    to_document,
)
from ddprof.report.model import Report
from ddprof.report.text import render_text

DAMAGED = [
    (b'{"schema": "ddprof.report/1", "x": ' + b"[" * 100_000, "damaged ddprof report: "),
    (b'{"schema": "ddprof.report/1", "x": "\\ud800"}', "damaged ddprof report: "),
    (b'{"schema": "ddprof.reports/1", "reports": 7}', "damaged ddprof report: no list of reports"),
    (b'{"schema": "ddprof.report/1", "x": NaN}', "damaged ddprof report: "),
    *((b"[]", "damaged ddprof report: "), (None, "No such file or directory")),
]
ODD = ["", "x", True, -1, 2**64, 1e308, math.inf, math.nan, [], [None], {}, {"a": 1}, [[[]]]]


def test_document_is_strict_json_with_every_section_and_is_read_back(straggler_report: Report) -> None:
    document = json.loads(json.dumps(to_contract(straggler_report), allow_nan=False))
    assert to_contract(from_contract(document)) == document and document["schema"] == "ddprof.report/1"
    sections = {"run", "health", "clock", "steps", "ledger", "efficiency", "findings", "what_if", "replay", "verdict"}
    assert sections <= set(document) and document["efficiency"]["mfu"] is None
    assert document["efficiency"]["bus_bandwidth_gbps"] == {"allreduce": 123.4}


def test_findings_are_worst_first_every_cause_is_booked_and_several_runs_are_wrapped(straggler_report: Report) -> None:
    document = to_contract(straggler_report)
    (first, second), ledger = document["findings"], document["ledger"]
    assert (first["id"], first["severity"], first["ranks"]) == ("input.straggler", "critical", [2])
    assert (second["id"], second["severity"], first["predicted_step_us"]) == ("comm.bandwidth_bound", "info", 64_000.0)
    for row in (ledger["job"], *ledger["per_rank"].values()):
        assert set(row) == {"wall_us", *CAUSES}
        assert math.isclose(sum(row[cause] for cause in CAUSES), row["wall_us"], rel_tol=1e-3)
    assert [r.run.world_size for r in from_document(to_document([straggler_report, straggler_report]))] == [4, 4]
    steps = dataclasses.replace(straggler_report.steps, count=0, wall_us=math.nan, per_step_us=())
    document = to_contract(dataclasses.replace(straggler_report, steps=steps))
    assert document["steps"]["wall_us"] is None and math.isnan(from_contract(document).steps.wall_us)


@pytest.mark.parametrize("document", [{}, {"schema": "other/1"}, {"schema": "ddprof.report/1"}])
def test_a_foreign_document_is_a_one_line_error(document: dict[str, str]) -> None:
    with pytest.raises(NoUsableInput, match=r"\A.*\Z"):
        from_contract(document)


def _places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*place, key))


def test_no_value_of_a_saved_report_is_taken_for_what_it_is_not(straggler_report: Report, tmp_path: Path) -> None:
    text, file = json.dumps(to_contract(straggler_report)), tmp_path / "report.json"
    accepted = 0
    every = [(place, odd) for place in _places(json.loads(text)) for odd in ODD if place]
    for place, odd in Random(5).sample(every, 200):
        document = json.loads(text)
        functools.reduce(lambda value, key: value[key], place[:-1], document)[place[-1]] = odd
        file.write_text(json.dumps(document))
        try:
            (report,) = read_saved(file)
        except NoUsableInput as error:
            assert str(error).startswith(f"{file}: ") and "\n" not in str(error)
            continue
        accepted += 1
        json.dumps(to_contract(report), allow_nan=False)
        render_text(report).encode()
    assert accepted  # an empty text is a text


@pytest.mark.parametrize(("content", "words"), DAMAGED)
def test_a_damaged_document_is_one_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "report.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(NoUsableInput) as caught:
        read_saved(file)
    assert str(caught.value).startswith(f"{file}: {words}") and "\n" not in str(caught.value)


def test_only_regular_files_are_saved_reports(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert not any(is_saved_report(str(tmp_path / name)) for name in ("pipe.json", "gone.json", ""))
