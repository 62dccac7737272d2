"""The checks of the training itself: one per file in analyzers/training/checks, and all of them run over a job."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training import checks
from ddprof.findings import Check, Remark


@lru_cache(maxsize=1)
def training_checks() -> dict[str, Check]:
    """Checks by identifier, sorted."""
    names = [module.name for module in pkgutil.iter_modules(checks.__path__)]
    own_checks = [importlib.import_module(f"{checks.__name__}.{name}").CHECK for name in names]
    return {check.id: check for check in sorted(own_checks, key=lambda check: check.id)}


def remarks(job: JobFacts) -> tuple[Remark, ...]:
    """Remarks of all checks on a job, in the order of their identifiers."""
    return tuple(remark for check in training_checks().values() for remark in check.detect(job))
