"""Identifiers are constants of one module, and those of the rules and checks that there are."""

from ddprof import finding_ids
from ddprof.analyzers.catalogue import titles


def test_every_constant_is_a_rule_or_check_and_every_rule_and_check_a_constant() -> None:
    constants = {name: value for name, value in vars(finding_ids).items() if name.isupper()}
    assert set(constants.values()) == set(titles())
    assert all(name == value.replace(".", "_").upper() for name, value in constants.items())
