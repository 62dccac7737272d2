"""Why a job that left traces failed. Most jobs end well: what explains a failure is imported for those that did not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddprof.errors import NoUsableInput
from ddprof.readers.companions.manifests import run_end

if TYPE_CHECKING:
    from ddprof.hangs.model import Hang


def failure_of(manifests: Iterable[str]) -> Hang | None:
    """Why the run that these manifests belong to failed or hung; None where it did not. What cannot be read is none."""
    for folder in dict.fromkeys(os.path.dirname(path) for path in manifests):
        end = run_end(folder)
        if end is None or not (end.exit_code or end.hang):
            continue
        from ddprof.analyzers.hangs.explain import failed_job

        try:
            failure = failed_job(folder)
        except NoUsableInput:
            continue
        if failure is not None:
            return failure
    return None
