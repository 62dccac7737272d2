"""Phrases for what each check looks for."""

from __future__ import annotations

from ddprof.analyzers.catalogue import catalogue


def check_words(rule_id: str) -> str:
    """The title of a rule, or its identifier where the rule is not installed here."""
    rule = catalogue().get(rule_id)
    return rule.title if rule else rule_id
