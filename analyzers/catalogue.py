"""The rules there are: one per file in analyzers/rules, and those that other packages register.

A third party adds a rule by an entry point in the group `ddprof.rules` that resolves to a `findings.Rule`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from importlib.metadata import entry_points

from ddprof.analyzers import rules
from ddprof.findings import Rule

GROUP = "ddprof.rules"


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Rule]:
    """Rules by identifier, sorted. Raises ValueError where two share one."""
    found: dict[str, Rule] = {}
    for rule in [*_own_rules(), *_foreign_rules()]:
        if rule.id in found:
            raise ValueError(f"two rules call themselves {rule.id}")
        found[rule.id] = rule
    return dict(sorted(found.items()))


def _own_rules() -> list[Rule]:
    names = [module.name for module in pkgutil.iter_modules(rules.__path__) if not module.ispkg]
    return [importlib.import_module(f"{rules.__name__}.{name}").RULE for name in names]


def _foreign_rules() -> list[Rule]:
    return [point.load() for point in entry_points(group=GROUP)]


def page(rule_id: str) -> str:
    """The documentation page of a rule: the docstring of the module that defines it.

    Raises KeyError for an unknown id.
    """
    rule = catalogue()[rule_id]
    module = importlib.import_module(rule.detect.__module__)
    return (module.__doc__ or rule.title).strip()
