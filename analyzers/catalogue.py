"""All rules: one per file in analyzers/rules and those that other packages register, with their pages.

A third party adds a rule by an entry point in the group `ddprof.rules` that resolves to a `findings.Rule`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from ddprof.analyzers import rules
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training import checks
from ddprof.errors import UsageError
from ddprof.findings import Check, Remark, Rule
from ddprof.untrusted.registered import registered
from ddprof.untrusted.suggestions import meant

# The checks of the training itself: one per file in analyzers/training/checks, and all of them run over a job.


@lru_cache(maxsize=1)
def training_checks() -> dict[str, Check]:
    """Checks by identifier, sorted."""
    names = [module.name for module in pkgutil.iter_modules(checks.__path__)]
    own_checks = [importlib.import_module(f"{checks.__name__}.{name}").CHECK for name in names]
    return {check.id: check for check in sorted(own_checks, key=lambda check: check.id)}


def remarks(job: JobFacts) -> tuple[Remark, ...]:
    """Remarks of all checks on a job, in the order of their identifiers."""
    return tuple(remark for check in training_checks().values() for remark in check.detect(job))


GROUP = "ddprof.rules"


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Rule]:
    """Rules by identifier, sorted. Raises ValueError where two share one."""
    rules: dict[str, Rule] = {}
    for rule in [*_own_rules(), *registered(GROUP)]:
        if rule.id in rules:
            raise ValueError(f"two rules call themselves {rule.id}")
        rules[rule.id] = rule
    return dict(sorted(rules.items()))


def _own_rules() -> list[Rule]:
    names = [module.name for module in pkgutil.iter_modules(rules.__path__) if not module.ispkg]
    return [importlib.import_module(f"{rules.__name__}.{name}").RULE for name in names]


def titles() -> dict[str, str]:
    """Title of every rule, then of every check of the training, by identifier."""
    rules, checks = catalogue().values(), training_checks().values()
    return {rule.id: rule.title for rule in rules} | {check.id: check.title for check in checks}


def page(identifier: str) -> str:
    """The documentation page of a rule or check: the docstring of its module.

    Raises UsageError for an unknown identifier, naming the closest one.
    """
    one = catalogue().get(identifier) or training_checks().get(identifier)
    if one is None:
        raise UsageError(f"no finding {identifier!r}{meant(identifier, titles())}; `ddprof explain` lists them")
    return (importlib.import_module(one.detect.__module__).__doc__ or one.title).strip()
