"""Why a job failed or hangs, answered by slices; they are imported only for jobs that did not end well."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from ddprof.errors import NoUsableInput
from ddprof.readers.side_files.manifests import run_end
from ddprof.report.model import Failure
from ddprof.slice import all_slices


class FailureAnswer(Struct, frozen=True):
    """A slice's answer on failed jobs; both functions raise NoUsableInput where they can read no evidence.

    `of_ended`: on the job of a run folder whose manifest says that it failed or hung; None where a person ended it.
    `of_paths`: on any job's files, even while it runs.
    """

    of_ended: Callable[[str], Failure | None]
    of_paths: Callable[[Sequence[str]], Failure]


def failure_of(manifests: Iterable[str]) -> Failure | None:
    """Reason why the run of these manifests failed or hung; None where it did not, or nothing can be read."""
    for folder in dict.fromkeys(os.path.dirname(path) for path in manifests):
        end = run_end(folder)
        if end is None or not (end.exit_code or end.hang):
            continue
        for answer in _answers():
            try:
                failure = answer.of_ended(folder)
            except NoUsableInput:
                continue
            if failure is not None:
                return failure
    return None


def why(paths: Sequence[str]) -> Failure:
    """Reason why the job that left these paths hangs or has failed. Raises NoUsableInput where no slice can tell."""
    refused = None
    for answer in _answers():
        try:
            return answer.of_paths(paths)
        except NoUsableInput as error:
            refused = refused or error
    raise refused or NoUsableInput(f"{', '.join(paths)}: nothing tells why this job hangs or has failed")


def _answers() -> list[FailureAnswer]:
    return [importlib.import_module(module).FAILURE for part in all_slices() for module in part.failures]
