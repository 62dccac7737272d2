"""The JSON document of a verdict (docs/hangs.md, schema "ddprof.hang/1"). Missing is null, times are unix ns."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ddprof.report.model import FAILURE_SCHEMA
from ddprof.slices.hangs.evidence import Call, StackFrame
from ddprof.slices.hangs.model import Hang, Passed, RankRow, Stuck
from ddprof.untrusted.secrets import masked_data


def hang_document(hang: Hang) -> dict[str, Any]:
    """Plain dicts, lists, strings without secrets, numbers and None."""
    document = {
        "schema": FAILURE_SCHEMA,
        "kind": hang.kind,
        "sentence": hang.sentence,
        "ranks": list(hang.ranks),
        "waiting": list(hang.waiting),
        "line": _line(hang.frame),
        "stuck": [_stuck(stuck) for stuck in hang.stuck],
        "per_rank": [_row(row) for row in hang.rows],
        "notes": list(hang.notes),
    }
    return masked_data(document)


def _stuck(stuck: Stuck) -> dict[str, Any]:
    return {
        "group": stuck.group,
        "number": stuck.number,
        "operation": stuck.op,
        "entered": list(stuck.entered),
        "missing": list(stuck.missing),
        "unseen": list(stuck.unseen),
        "since_ns": stuck.since_ns,
        "line": _line(stuck.frame),
        "differs": stuck.differs or None,
        "variants": [{"ranks": list(each.ranks), **_call(each.call)} for each in stuck.variants],
        "passed": [_passed(passed) for passed in stuck.passed],
    }


def _passed(passed: Passed) -> dict[str, Any]:
    return {
        "rank": passed.rank,
        "left_out": None if passed.is_extra else _call(passed.left_out),
        "instead": _call(passed.instead),
    }


def _row(row: RankRow) -> dict[str, Any]:
    return {
        "rank": row.rank,
        "host": row.host or None,
        "state": row.state,
        "steps": row.steps,
        "call": None if row.call is None else _call(row.call),
        "line": _line(row.frame),
        "loader_workers": [{"worker": w.worker, "line": _line(w.frame)} for w in row.workers],
    }


def _call(call: Call) -> dict[str, Any]:
    return {
        "operation": call.op,
        "group": call.group,
        "number": call.number,
        "peer": call.peer,
        "input_sizes": [list(size) for size in call.input_sizes],
        "output_sizes": [list(size) for size in call.output_sizes],
        "input_dtypes": list(call.input_dtypes),
        "entered_ns": call.entered_ns,
    }


def _line(frame: StackFrame | None) -> dict[str, Any] | None:
    return None if frame is None else {**asdict(frame), "source": frame.source or None}
