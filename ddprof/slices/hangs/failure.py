"""Answer on why a job hangs or failed, for `ddprof run`, reports and assistants."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.analyzers.failure import FailureAnswer
from ddprof.report.model import Failure
from ddprof.slices.hangs.document import hang_document
from ddprof.slices.hangs.explain import explain, failed_job
from ddprof.slices.hangs.model import Hang
from ddprof.slices.hangs.text import render_hang


def _of_ended(folder: str) -> Failure | None:
    hang = failed_job(folder)
    return None if hang is None else _failure(hang)


def _of_paths(paths: Sequence[str]) -> Failure:
    return _failure(explain(paths))


def _failure(hang: Hang) -> Failure:
    return Failure(hang_document(hang), render_hang(hang), hang.timeout_s)


FAILURE = FailureAnswer(_of_ended, _of_paths)
